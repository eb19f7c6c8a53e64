package agent

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// writeCounters writes the disk bytes of a process, and the counters of the interfaces in its network namespace.
func (p fakeProc) writeCounters(t *testing.T, pid int, read, written int64, interfaces map[string]byteCounters) {
	t.Helper()
	p.write(t, fmt.Sprintf("%d/io", pid),
		fmt.Sprintf("rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: %d\nwrite_bytes: %d\ncancelled_write_bytes: 5\n", read, written))
	text := "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n"
	for name, m := range interfaces {
		text += fmt.Sprintf("%6s: %d 1 2 3 4 5 6 7 %d 1 2 3 4 5 6 7\n", name, m.in, m.out)
	}
	p.write(t, fmt.Sprintf("%d/net/dev", pid), text)
}

// setNetworkNamespace puts a process into a network namespace.
func (p fakeProc) setNetworkNamespace(t *testing.T, pid int, space string) {
	t.Helper()
	dir := filepath.Join(string(p), strconv.Itoa(pid), "ns")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("net:["+space+"]", filepath.Join(dir, "net")); err != nil {
		t.Fatal(err)
	}
}

// isAbout compares rates. It permits lower rates, because some time passes until the sample is taken.
func isAbout(got, want float64) bool { return got >= 0.7*want && got <= 1.05*want }

func TestDisksAndNetworks(t *testing.T) {
	p := newProc(t)
	p.writeCounters(t, 200, 1000, 5000, map[string]byteCounters{"lo": {100, 100}, "eth0": {1 << 20, 10}, "old": {7, 7}})
	h := newHostMetrics(procfs(p), plan.Processes{{PID: 200}})
	h.broker.all[0].before.at = h.broker.all[0].before.at.Add(-2 * time.Second)
	p.writeCounters(t, 200, 3000, 9000, map[string]byteCounters{"lo": {300, 300}, "eth0": {1<<20 + 3800, 10 + 1800},
		"new": {1 << 40, 1 << 40}})
	s := h.sample(nil)
	if s.NoDisk != "" || !isAbout(s.DiskRead, 1000) || !isAbout(s.DiskWrite, 2000) {
		t.Errorf("disk: got %+v, want 1000 bytes per second read, 2000 written", s)
	}
	if s.NoNet != "" || !isAbout(s.NetIn, 2000) || !isAbout(s.NetOut, 1000) {
		t.Errorf("network: got %+v, want 2000 bytes per second in, 1000 out: only interfaces that are in both samples",
			s)
	}
	p.writeCounters(t, 200, 3, 9, map[string]byteCounters{"lo": {3, 3}}) // the counters restarted
	if s := h.sample(nil); s.DiskRead != 0 || s.DiskWrite != 0 || s.NetIn != 0 || s.NetOut != 0 {
		t.Errorf("after counters decreased: got %+v, want rates of 0", s)
	}
}

func TestMissingHostMetricsHaveAReason(t *testing.T) {
	p := newProc(t)
	h := newHostMetrics(procfs(p), plan.Processes{{PID: 200}})
	if s := h.sample(nil); !s.HasBroker || s.NoDisk != noCount || s.NoNet != noCount {
		t.Errorf("without disk and network counters: got %+v, want the other metrics, and the reason %q", s, noCount)
	}
	if why := reason(&fs.PathError{Err: fs.ErrPermission}); why != noRight {
		t.Errorf("reason of a permission error: got %q, want %q", why, noRight)
	}
}

// Interfaces belong to a network namespace, so processes that share one count them once.
func TestProcessesThatShareANetworkCountItOnce(t *testing.T) {
	p := newProc(t)
	p.process(t, 400, "node-b\x00", 500, 1000, "4")
	moves := func(n int64) {
		p.writeCounters(t, 200, 0, 10*n, map[string]byteCounters{"eth0": {n, n}})
		p.writeCounters(t, 400, 0, 10*n, map[string]byteCounters{"eth0": {n, n}})
	}
	sample := func(h *hostMetrics) (in, written float64, why string) {
		moves(0)
		for i := range h.broker.all {
			h.broker.find(&h.broker.all[i])
			h.broker.all[i].before.at = h.broker.all[i].before.at.Add(-time.Second)
		}
		moves(1000)
		s := h.sample(nil)
		return s.NetIn, s.DiskWrite, s.NoNet
	}
	h := newHostMetrics(procfs(p), plan.Processes{{PID: 200}, {PID: 400}})
	if in, written, why := sample(h); why != noSpaces || in != 0 || !isAbout(written, 20000) {
		t.Errorf("unknown network namespaces: got %v in, %v written, reason %q, want 0, 20000, %q", in, written, why,
			noSpaces)
	}
	p.setNetworkNamespace(t, 200, "1")
	p.setNetworkNamespace(t, 400, "1")
	if in, _, why := sample(h); why != "" || !isAbout(in, 1000) {
		t.Errorf("shared network namespace: got %v in, reason %q, want 1000 and no reason", in, why)
	}
	if err := os.RemoveAll(filepath.Join(string(p), "400", "ns")); err != nil {
		t.Fatal(err)
	}
	p.setNetworkNamespace(t, 400, "2")
	if in, _, why := sample(h); why != "" || !isAbout(in, 2000) {
		t.Errorf("separate network namespaces: got %v in, reason %q, want 2000 and no reason", in, why)
	}
}
