package agent

import (
	"cmp"
	"errors"
	"io/fs"
	"strconv"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// brokerProcesses measures the processes of one broker, of which none, some or all are on this host. One goroutine at a
// time.
type brokerProcesses struct {
	proc    procfs
	all     []brokerProcess
	require bool // all are to be here; else those that were found at some time
}

// brokerProcess is one of them, with what it had used when it was last read.
type brokerProcess struct {
	plan.Process
	pid     int // 0: not found
	before  usage
	disk    byteCounters
	network map[string]byteCounters // by interface
	seen    bool                    // it was found here at some time
}

// Why there are no metrics of disks and networks.
const (
	noRight = "the broker's host does not let this agent see it: " +
		"run the agent as the broker's user, as root or with CAP_SYS_PTRACE"
	noCount  = "the broker's host does not count it"
	noSpaces = "several processes, and the broker's host does not let this agent see which share a network: " +
		"run the agent as their user, as root or with CAP_SYS_PTRACE"
)

// reason is why a file of /proc could not be read.
func reason(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return noRight
	}
	return noCount
}

// newBrokerProcesses begins to measure; the first sample is of the time from here.
func newBrokerProcesses(proc procfs, of plan.Processes) brokerProcesses {
	b := brokerProcesses{proc: proc, all: make([]brokerProcess, len(of))}
	for i := range b.all {
		b.all[i].Process = of[i]
		b.find(&b.all[i])
	}
	return b
}

// find looks for a process and begins to measure it.
func (b *brokerProcesses) find(p *brokerProcess) {
	p.before, p.disk, p.network = usage{}, byteCounters{}, nil
	var ok bool
	if p.pid = b.proc.find(p.Process); p.pid != 0 {
		pid := strconv.Itoa(p.pid)
		p.disk, _ = b.proc.disk(pid) // why it is not known comes with the first sample
		p.network, _ = b.proc.network(pid)
		p.before, ok = b.proc.usage(pid)
	}
	p.seen = p.seen || ok
}

// sample adds up the processes, each once whoever names it. While one that was here is not, there is no sum: the rest
// would look like the whole.
func (b *brokerProcesses) sample(s *record.HostSample) {
	var sum record.HostSample
	counted, spaces := map[int]bool{}, map[string]bool{}
	whole := true
	for i := range b.all {
		p := &b.all[i]
		now, there := b.proc.usage(strconv.Itoa(p.pid))
		if !there || now.start != p.before.start { // not found yet, or restarted: measured from here on
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

// since is what one process used since it was last read, and keeps now for the next time.
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
		if before, known := p.network[name]; known { // one that was not there before counts from here on
			c := n.since(before)
			sum.in, sum.out = sum.in+c.in, sum.out+c.out
		}
	}
	s.NetIn, s.NetOut = sum.rates(elapsed)
	p.network = network
	return s
}

// addNetwork adds what the network namespace of a process received and sent, once for all processes in it.
func (b *brokerProcesses) addNetwork(sum *record.HostSample, one record.HostSample, pid int, spaces map[string]bool) {
	space, err := b.proc.networkSpace(strconv.Itoa(pid))
	if err != nil && spaces[""] {
		sum.NoNet = noSpaces // a single process needs no telling apart
	}
	if !spaces[space] {
		sum.NetIn, sum.NetOut, sum.NoNet = sum.NetIn+one.NetIn, sum.NetOut+one.NetOut, cmp.Or(sum.NoNet, one.NoNet)
	}
	spaces[space] = true
}
