package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// fakeProc is a fake /proc with three processes: 100 is a shell, 200 the broker that it started, 300 another one.
type fakeProc string

func (p fakeProc) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(string(p), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// process writes a process with this CPU time and memory. Its name has blanks and parentheses, which the kernel
// permits.
func (p fakeProc) process(t *testing.T, pid int, command string, ticks, pages int64, begin string) {
	t.Helper()
	stat := fmt.Sprintf("%d (a) R b) S 1 1 1 0 -1 4194560 1 2 3 4 %d %d 0 0 20 0 1 0 %s 1000 %d 18446744073709551615 1",
		pid, ticks-1, 1, begin, pages)
	p.write(t, fmt.Sprintf("%d/stat", pid), stat)
	p.write(t, fmt.Sprintf("%d/cmdline", pid), command)
}

func newProc(t *testing.T) fakeProc {
	t.Helper()
	p := fakeProc(t.TempDir())
	p.process(t, 100, "sh\x00-c\x00beam.smp start\x00", 10, 50, "1")
	p.process(t, 200, "/usr/lib/beam.smp\x00start\x00", 1000, 5000, "2")
	p.process(t, 300, "other\x00", 10, 90000, "3")
	p.write(t, "net/tcp",
		"  sl  local_address rem_address   st\n   0: 0100007F:1628 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 777 1\n"+
			"   1: 0100007F:1628 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 888 1\n")
	for pid, socket := range map[int]string{200: "777", 300: "888"} {
		dir := filepath.Join(string(p), fmt.Sprint(pid), "fd")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("socket:["+socket+"]", filepath.Join(dir, "5")); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func TestBrokerProcessIsFound(t *testing.T) {
	p := newProc(t)
	for _, broker := range []plan.Process{{PID: 200}, {Port: 5672}, {Command: "beam.smp"}} {
		h := newHostMetrics(procfs(p), plan.Processes{broker})
		if h.broker.all[0].pid != 200 {
			t.Errorf("%+v: got process %d, want 200", broker, h.broker.all[0].pid)
		}
	}
	for _, broker := range []plan.Process{{}, {PID: 999}, {Port: 5673}, {Command: "nothing"}} {
		h := newHostMetrics(procfs(p), plan.Processes{broker})
		if s := h.sample(nil); s.HasBroker {
			t.Errorf("%+v, without such a process: got metrics %+v, want none", broker, s)
		}
	}
}

func TestBrokerMetrics(t *testing.T) {
	p := newProc(t)
	h := newHostMetrics(procfs(p), plan.Processes{{Command: "beam.smp"}})
	h.broker.all[0].before.at = h.broker.all[0].before.at.Add(-2 * time.Second) // sampled two seconds ago
	p.process(t, 200, "/usr/lib/beam.smp\x00", 1300, 6000, "2")
	s := h.sample(nil)
	if !s.HasBroker || s.BrokerCPU < 1.4 || s.BrokerCPU > 1.51 || s.BrokerRSS != 6000*int64(os.Getpagesize()) {
		t.Errorf("got %+v, want 3 s of CPU time in 2 s, and 6000 pages", s)
	}
	p.process(t, 200, "/usr/lib/beam.smp\x00", 5, 10, "99") // restarted with the same pid
	if s := h.sample(nil); s.HasBroker {
		t.Errorf("first sample after a restart: got %+v, want no metrics", s)
	}
	p.process(t, 200, "/usr/lib/beam.smp\x00", 15, 10, "99")
	if s := h.sample(nil); !s.HasBroker || s.BrokerCPU < 0 {
		t.Errorf("second sample after a restart: got %+v, want metrics", s)
	}
}

// The nodes of a cluster on one host are one broker. Their metrics are added up, each process once. If a node is
// missing, there is no sum.
func TestSeveralProcessesAreAddedUp(t *testing.T) {
	p := newProc(t)
	p.process(t, 400, "node-b\x00", 500, 1000, "4")
	h := newHostMetrics(procfs(p), plan.Processes{{PID: 200}, {Port: 5672}, {Command: "node-b"}, {Command: "not here"}})
	h.broker.all[0].before.at = h.broker.all[0].before.at.Add(-2 * time.Second)
	h.broker.all[2].before.at = h.broker.all[2].before.at.Add(-2 * time.Second)
	p.process(t, 200, "/usr/lib/beam.smp\x00", 1300, 6000, "2")
	p.process(t, 400, "node-b\x00", 600, 2000, "4")
	s := h.sample(nil)
	if !s.HasBroker || s.BrokerCPU < 1.9 || s.BrokerCPU > 2.01 || s.BrokerRSS != 8000*int64(os.Getpagesize()) {
		t.Errorf("got %+v, want 4 s of CPU time in 2 s, and 8000 pages", s)
	}
	if err := os.RemoveAll(filepath.Join(string(p), "400")); err != nil {
		t.Fatal(err)
	}
	if s := h.sample(nil); s.HasBroker {
		t.Errorf("one of two nodes: got %+v, want no metrics", s)
	}
	p.process(t, 400, "node-b\x00", 1, 1000, "9")
	h.sample(nil) // found after its restart
	if s := h.sample(nil); !s.HasBroker || s.BrokerRSS != 7000*int64(os.Getpagesize()) {
		t.Errorf("second sample after the restart of a node: got %+v, want 7000 pages", s)
	}
}

func TestNoProc(t *testing.T) {
	missing := newHostMetrics(procfs(t.TempDir()), plan.Processes{{Port: 1, Command: "x"}})
	if s := missing.sample(nil); s.AgentCPU != 0 || s.AgentRSS != 0 {
		t.Errorf("without /proc: got %+v, want no metrics", s)
	}
}

// The time that a process waits for a CPU is added up over its threads. The busy CPU time is that of the whole host.
func TestWaitingForTheHost(t *testing.T) {
	p := newProc(t)
	p.process(t, 0, "agent\x00", 10, 10, "1")
	if err := os.Rename(filepath.Join(string(p), "0"), filepath.Join(string(p), "self")); err != nil {
		t.Fatal(err)
	}
	p.write(t, "self/task/1/schedstat", "1000000000 1000000000 7\n")
	p.write(t, "self/task/2/schedstat", "5 0 7\n")
	p.write(t, "stat",
		"cpu  100 10 50 1000 40 5 5 30 7 0\ncpu0 50 5 25 500 20 2 2 15 3 0\ncpu1 50 5 25 500 20 3 3 15 4 0\nintr 5\n")
	h := newHostMetrics(procfs(p), nil)
	p.write(t, "self/task/1/schedstat", "1250000000 1250000000 7\n")
	p.write(t, "self/task/3/schedstat", "250000000 250000000 7\n") // a new thread
	p.write(t, "stat",
		"cpu  140 10 60 1040 40 5 5 40 17 0\ncpu0 50 5 25 500 20 2 2 15 3 0\ncpu1 50 5 25 500 20 3 3 15 4 0\nintr 5\n")
	s := h.sample(nil)
	if s.AgentWaited < 0.499 || s.AgentWaited > 0.501 {
		t.Errorf("AgentWaited: got %v, want 0.5", s.AgentWaited)
	}
	if s.HostCores != 2 || s.HostCPU < 1.199 || s.HostCPU > 1.201 { // 40 + 10 + 10 of 100 ticks on two CPUs
		t.Errorf("got %v of %d CPUs used, want 1.2 of 2", s.HostCPU, s.HostCores)
	}
	if s := h.sample(nil); s.AgentWaited != 0 || s.HostCPU != 0 {
		t.Errorf("unchanged counters: got AgentWaited %v, HostCPU %v, want 0, 0", s.AgentWaited, s.HostCPU)
	}
}
