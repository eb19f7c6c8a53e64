package agent

import (
	"os"
	"path/filepath"
	"strings"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// hostMetrics measures this process and those of its driver, the host's CPUs, and the broker's processes on this host.
// It must be used by one goroutine at a time.
type hostMetrics struct {
	proc     procfs
	self     usage
	spun     int64                   // clock.Spun() at self.at
	threads  map[string]threadCounts // of this process
	cpus     cpuTicks
	broker   brokerProcesses
	children childProcesses
}

// newHostMetrics starts to measure. The first sample covers the time from this call.
func newHostMetrics(proc procfs, broker plan.Processes) *hostMetrics {
	h := &hostMetrics{proc: proc, broker: newBrokerProcesses(proc, broker), children: childProcesses{proc: proc}}
	h.self, _ = proc.usage("self")
	h.spun = clock.Spun()
	h.waited()
	h.cpu()
	return h
}

// sample returns the usage since the last sample. clients are the processes of the driver's client.
func (h *hostMetrics) sample(clients []int) record.HostSample {
	s := record.HostSample{PID: os.Getpid()}
	s.HostCPU, s.HostCores = h.cpu()
	s.AgentWaited = h.waited()
	if now, ok := h.proc.usage("self"); ok {
		s.AgentCPU, s.AgentRSS = now.since(h.self), now.rss
		if elapsed := now.at.Sub(h.self.at); elapsed > 0 {
			spun := clock.Spun()
			s.AgentSpin = float64(spun-h.spun) / float64(elapsed)
			h.spun = spun
		}
		h.self = now
	}
	h.broker.sample(&s)
	h.children.sample(clients, &s)
	return s
}

// threadCounts is how long a thread ran, and how long it was runnable and waited for a CPU, in ns.
type threadCounts struct{ ran, waited int64 }

// waited returns the share of runnable time in which this process's threads waited for a CPU since the last call. It
// uses the first two fields of schedstat (Documentation/scheduler/sched-stats.rst of Linux). Threads that have ended
// are not counted.
func (h *hostMetrics) waited() float64 {
	before, sum := h.threads, threadCounts{}
	h.threads = map[string]threadCounts{}
	threads, err := os.ReadDir(filepath.Join(string(h.proc), "self", "task"))
	if err != nil {
		return 0
	}
	for _, thread := range threads {
		text, err := h.proc.read("self", "task", thread.Name(), "schedstat")
		f := strings.Fields(string(text))
		if err != nil || len(f) < 2 {
			continue
		}
		now, was := threadCounts{number(f[0]), number(f[1])}, before[thread.Name()]
		h.threads[thread.Name()] = now
		sum.ran, sum.waited = sum.ran+max(0, now.ran-was.ran), sum.waited+max(0, now.waited-was.waited)
	}
	if sum.waited == 0 {
		return 0
	}
	return float64(sum.waited) / float64(sum.ran+sum.waited)
}

// cpuTicks counts the ticks of all CPUs since the host started.
type cpuTicks struct{ busy, idle int64 }

// cpu returns how many cores all processes used since the last call, including time stolen by a hypervisor, and the
// number of cores. It reads the cpu lines of /proc/stat (proc(5)).
func (h *hostMetrics) cpu() (used float64, cores int) {
	text, err := h.proc.read("stat")
	if err != nil {
		return 0, 0
	}
	var now cpuTicks
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		const user, idle, iowait, steal = 1, 4, 5, 8
		switch {
		case len(f) <= idle || !strings.HasPrefix(f[0], "cpu"):
		case f[0] != "cpu":
			cores++
		default:
			for i := user; i < len(f) && i <= steal; i++ { // guest time, in later fields, is part of user time
				if i == idle || i == iowait {
					now.idle += number(f[i])
				} else {
					now.busy += number(f[i])
				}
			}
		}
	}
	was := h.cpus
	h.cpus = now
	if ran, all := now.busy-was.busy, now.busy-was.busy+now.idle-was.idle; ran > 0 && all > 0 {
		used = float64(cores) * float64(ran) / float64(all)
	}
	return used, cores
}
