package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// process is one of the broker's that may run here.
type process struct {
	plan.Process
	pid     int // 0: not found
	before  usage
	disk    moved
	network map[string]moved // by interface
	seen    bool             // it was found here at some time
}

// moved are two counters of bytes: read from disks and written to them, or taken in by an interface and sent out.
type moved struct{ in, out int64 }

// since is what was moved after before. The kernel's counters begin anew where something is made again.
func (m moved) since(before moved) moved {
	return moved{max(0, m.in-before.in), max(0, m.out-before.out)}
}

// Why there are no figures of disks and networks.
const (
	noRight  = "the broker's host does not let this agent see it: run the agent as the broker's user, as root or with CAP_SYS_PTRACE"
	noCount  = "the broker's host does not count it"
	noSpaces = "several processes, and the broker's host does not let this agent see which share a network: run the agent as their user, as root or with CAP_SYS_PTRACE"
)

// reason is why a file of /proc could not be read.
func reason(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return noRight
	}
	return noCount
}

// look looks for a process and begins to measure it.
func (h *host) look(p *process) {
	p.before, p.disk, p.network = usage{}, moved{}, nil
	var ok bool
	if p.pid = h.find(p.Process); p.pid != 0 {
		pid := strconv.Itoa(p.pid)
		p.disk, _ = h.disk(pid) // why it is not known comes with the first sample
		p.network, _ = h.network(pid)
		p.before, ok = h.usage(pid)
	}
	p.seen = p.seen || ok
}

// brokers adds up the broker's processes, each once whoever names it. While one that was here is not, there is no sum: the rest
// would look like the whole.
func (h *host) brokers(s *record.HostSample) {
	var sum record.HostSample
	counted, spaces := map[int]bool{}, map[string]bool{}
	whole := true
	for i := range h.broker {
		p := &h.broker[i]
		now, there := h.usage(strconv.Itoa(p.pid))
		if !there || now.start != p.before.start { // not found yet, or restarted: measured from here on
			h.look(p)
			whole = whole && !p.seen && !h.every
			continue
		}
		one := h.since(p, now)
		if !counted[p.pid] {
			sum.BrokerCPU, sum.BrokerRSS = sum.BrokerCPU+one.BrokerCPU, sum.BrokerRSS+now.rss
			sum.DiskRead, sum.DiskWrite, sum.NoDisk = sum.DiskRead+one.DiskRead, sum.DiskWrite+one.DiskWrite, either(sum.NoDisk, one.NoDisk)
			h.addNetwork(&sum, one, p.pid, spaces)
		}
		counted[p.pid] = true
	}
	if len(spaces) > 1 && spaces[""] {
		sum.NoNet = noSpaces
	}
	if !whole || len(counted) == 0 {
		return
	}
	s.HasBroker, s.BrokerCPU, s.BrokerRSS = true, sum.BrokerCPU, sum.BrokerRSS
	if s.NoDisk = sum.NoDisk; s.NoDisk == "" {
		s.DiskRead, s.DiskWrite = sum.DiskRead, sum.DiskWrite
	}
	if s.NoNet = sum.NoNet; s.NoNet == "" {
		s.NetIn, s.NetOut = sum.NetIn, sum.NetOut
	}
}

func either(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// since is what one process used since it was looked at last, and notes now for the next time.
func (h *host) since(p *process, now usage) (s record.HostSample) {
	pid := strconv.Itoa(p.pid)
	s.BrokerCPU = now.since(p.before)
	elapsed := now.at.Sub(p.before.at)
	p.before = now
	disk, err := h.disk(pid)
	if err != nil {
		s.NoDisk = reason(err)
	} else {
		s.DiskRead, s.DiskWrite = disk.since(p.disk).rates(elapsed)
		p.disk = disk
	}
	network, err := h.network(pid)
	if err != nil {
		s.NoNet = reason(err)
		return s
	}
	var sum moved
	for name, n := range network {
		if before, known := p.network[name]; known { // one that was not there before counts from here on
			m := n.since(before)
			sum.in, sum.out = sum.in+m.in, sum.out+m.out
		}
	}
	s.NetIn, s.NetOut = sum.rates(elapsed)
	p.network = network
	return s
}

// rates are bytes a second.
func (m moved) rates(elapsed time.Duration) (in, out float64) {
	if elapsed <= 0 {
		return 0, 0
	}
	return float64(m.in) / elapsed.Seconds(), float64(m.out) / elapsed.Seconds()
}

// addNetwork adds what the network namespace of a process moved, once for all processes in it.
func (h *host) addNetwork(sum *record.HostSample, one record.HostSample, pid int, spaces map[string]bool) {
	space, err := os.Readlink(filepath.Join(h.proc, strconv.Itoa(pid), "ns", "net"))
	if err != nil && spaces[""] {
		sum.NoNet = noSpaces // a single process needs no telling apart
	}
	if !spaces[space] {
		sum.NetIn, sum.NetOut, sum.NoNet = sum.NetIn+one.NetIn, sum.NetOut+one.NetOut, either(sum.NoNet, one.NoNet)
	}
	spaces[space] = true
}

// disk is what a process has had the kernel read from disks and write to them; whom it does not belong to may need rights to see it.
func (h *host) disk(pid string) (m moved, err error) {
	text, err := os.ReadFile(filepath.Join(h.proc, pid, "io"))
	if err != nil {
		return m, err
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "read_bytes":
			m.in, found = number(value), found+1
		case "write_bytes":
			m.out, found = number(value), found+1
		}
	}
	if found < 2 {
		return m, fs.ErrNotExist
	}
	return m, nil
}

// network is what each interface of a process's network namespace has moved, the loopback included.
func (h *host) network(pid string) (map[string]moved, error) {
	text, err := os.ReadFile(filepath.Join(h.proc, pid, "net", "dev"))
	if err != nil {
		return nil, err
	}
	all := map[string]moved{}
	for line := range strings.Lines(string(text)) {
		name, counts, is := strings.Cut(line, ":")
		const in, out = 0, 8 // bytes received and sent, see proc(5)
		if f := strings.Fields(counts); is && len(f) > out {
			all[strings.TrimSpace(name)] = moved{number(f[in]), number(f[out])}
		}
	}
	if len(all) == 0 {
		return nil, fs.ErrNotExist
	}
	return all, nil
}
