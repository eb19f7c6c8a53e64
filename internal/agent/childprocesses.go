package agent

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/internal/record"
)

// maxChildProcesses bounds the processes of one driver that are read.
const maxChildProcesses = 256

// childProcesses measures the processes that a driver's client runs in, with those that they have started. One
// goroutine at a time.
type childProcesses struct {
	proc procfs
	at   time.Time                // of the last sample; zero: there was none
	used map[string]time.Duration // by each process and thread
}

// sample adds what these processes and their descendants used since the last sample to what the agent did: it is the
// agent's as if it had done that itself.
func (c *childProcesses) sample(roots []int, s *record.HostSample) {
	if len(roots) == 0 {
		return
	}
	now, used := time.Now(), map[string]time.Duration{}
	since := func(path string) (usage, float64) {
		u, ok := c.proc.usage(path)
		if !ok {
			return u, 0
		}
		key := path + " " + u.start // of another process with the same number nothing was used before
		used[key] = u.cpu
		if c.at.IsZero() {
			return u, 0
		}
		return u, max(0, float64(u.cpu-c.used[key])/float64(now.Sub(c.at)))
	}
	for _, pid := range c.descendants(roots) {
		u, cpu := since(strconv.Itoa(pid))
		s.AgentCPU, s.AgentRSS = s.AgentCPU+cpu, s.AgentRSS+u.rss
		for _, thread := range c.proc.threads(pid) {
			_, cpu := since(thread)
			s.DriverThread = max(s.DriverThread, min(cpu, 1))
		}
	}
	c.at, c.used = now, used
}

// descendants are processes with all that descend from them. Where the kernel does not list children, the processes
// alone.
func (c *childProcesses) descendants(roots []int) []int {
	all := slices.Clone(roots)
	for i := 0; i < len(all) && len(all) < maxChildProcesses; i++ {
		for _, thread := range c.proc.threads(all[i]) {
			text, _ := c.proc.read(thread, "children")
			for _, word := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(word); err == nil && !slices.Contains(all, pid) {
					all = append(all, pid)
				}
			}
		}
	}
	return all
}
