package agent

import (
	"cmp"
	"errors"
	"io/fs"
	"strconv"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// brokerProcesses measures the processes of one broker, of which none, some or all may be on this host. It must be used
// by one goroutine at a time.
type brokerProcesses struct {
	proc    procfs
	all     []brokerProcess
	require bool // all must be here; else only those that were found before
}

// brokerProcess is one process with its last counters.
type brokerProcess struct {
	process plan.Process
	pid     int // 0: not found
	before  usage
	disk    byteCounters
	network map[string]byteCounters // by interface
	seen    bool                    // it was found here before
}

// Reasons for missing metrics of disks and networks.
const (
	noRight = "this agent has no permission to see it on the broker's host; " +
		"run the agent as the user of the broker, as root or with CAP_SYS_PTRACE"
	noCount  = "not available on the broker's host"
	noSpaces = "several processes, and this agent has no permission to see which of them share a network; " +
		"run the agent as their user, as root or with CAP_SYS_PTRACE"
)

// reason returns why a file of proc could not be read.
func reason(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return noRight
	}
	return noCount
}

// newBrokerProcesses starts to measure. The first sample covers the time from this call.
func newBrokerProcesses(proc procfs, of plan.Processes) brokerProcesses {
	b := brokerProcesses{proc: proc, all: make([]brokerProcess, len(of))}
	for i := range b.all {
		b.all[i].process = of[i]
		b.find(&b.all[i])
	}
	return b
}

// find looks for a process and starts to measure it.
func (b *brokerProcesses) find(p *brokerProcess) {
	p.before, p.disk, p.network = usage{}, byteCounters{}, nil
	var ok bool
	if p.pid = b.proc.find(p.process); p.pid != 0 {
		pid := strconv.Itoa(p.pid)
		p.disk, _ = b.proc.disk(pid) // the first sample reports errors
		p.network, _ = b.proc.network(pid)
		p.before, ok = b.proc.usage(pid)
	}
	p.seen = p.seen || ok
}

// sample sets the sums over all processes. A process that is named twice counts once. There is no sum while a process
// that was here before is missing, as a partial sum would look complete.
func (b *brokerProcesses) sample(s *record.HostSample) {
	var sum record.HostSample
	counted, spaces := map[int]bool{}, map[string]bool{}
	whole := true
	for i := range b.all {
		p := &b.all[i]
		now, there := b.proc.usage(strconv.Itoa(p.pid))
		if !there || now.start != p.before.start { // not found yet, or restarted: measured from now on
			b.find(p)
			whole = whole && !p.seen && !b.require
			continue
		}
		one := b.since(p, now)
		if !counted[p.pid] {
			sum.BrokerCPU, sum.BrokerRSS = sum.BrokerCPU+one.BrokerCPU, sum.BrokerRSS+now.rss
			sum.DiskRead, sum.DiskWrite = sum.DiskRead+one.DiskRead, sum.DiskWrite+one.DiskWrite
			sum.NoDisk = cmp.Or(sum.NoDisk, one.NoDisk)
			b.addNetwork(&sum, one, p.pid, spaces)
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

// since returns the usage of one process since the last call, and stores now for the next.
func (b *brokerProcesses) since(p *brokerProcess, now usage) (s record.HostSample) {
	pid := strconv.Itoa(p.pid)
	s.BrokerCPU = now.since(p.before)
	elapsed := now.at.Sub(p.before.at)
	p.before = now
	disk, err := b.proc.disk(pid)
	if err != nil {
		s.NoDisk = reason(err)
	} else {
		s.DiskRead, s.DiskWrite = disk.since(p.disk).rates(elapsed)
		p.disk = disk
	}
	network, err := b.proc.network(pid)
	if err != nil {
		s.NoNet = reason(err)
		return s
	}
	var sum byteCounters
	for name, n := range network {
		if before, known := p.network[name]; known { // a new interface counts from the next call on
			c := n.since(before)
			sum.in, sum.out = sum.in+c.in, sum.out+c.out
		}
	}
	s.NetIn, s.NetOut = sum.rates(elapsed)
	p.network = network
	return s
}

// addNetwork adds the traffic of a process's network namespace, once for all processes in it.
func (b *brokerProcesses) addNetwork(sum *record.HostSample, one record.HostSample, pid int, spaces map[string]bool) {
	space, err := b.proc.networkSpace(strconv.Itoa(pid))
	if err != nil && spaces[""] {
		sum.NoNet = noSpaces // a single process needs no distinction
	}
	if !spaces[space] {
		sum.NetIn, sum.NetOut, sum.NoNet = sum.NetIn+one.NetIn, sum.NetOut+one.NetOut, cmp.Or(sum.NoNet, one.NoNet)
	}
	spaces[space] = true
}
