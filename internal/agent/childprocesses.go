package agent

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/record"
)

// maxChildProcesses is the maximum number of processes of one driver that are measured.
const maxChildProcesses = 256

// childProcesses measures the processes of a driver's client and their descendants. It must be used by one goroutine at
// a time.
type childProcesses struct {
	proc procfs
	at   time.Time                // time of the last sample; zero: none
	used map[string]time.Duration // CPU time by process or thread
}

// sample adds the usage of these processes and their descendants since the last sample to the usage of the agent.
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
		key := path + " " + u.start // another process with the same pid has no earlier usage
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

// descendants returns the processes and all their descendants. If the kernel does not list children, it returns only
// the processes.
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
