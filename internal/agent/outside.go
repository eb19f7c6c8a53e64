package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// mostOutside bounds the processes of one driver that are looked at, and the threads of each.
const mostOutside = 256

// outside is what was used, when it was last looked at, by the processes that a driver's client runs in. The zero value has not looked yet.
type outside struct {
	at   time.Time
	used map[string]time.Duration // by each process and thread
}

// outside lists the processes that the session's client runs in, besides this one.
func (t *task) outside() []int {
	if o, is := t.openSession().(drivers.Outside); is {
		return o.Processes()
	}
	return nil
}

// add counts what these processes, and those that they have started, used since the last time: it is the agent's as if it had done that itself.
func (o *outside) add(h *host, roots []int, s *record.HostSample) {
	if len(roots) == 0 {
		return
	}
	now := outside{at: time.Now(), used: map[string]time.Duration{}}
	since := func(path string) (usage, float64) {
		u, ok := h.usage(path)
		if !ok {
			return u, 0
		}
		key := path + " " + u.start // of another process with the same number nothing was used before
		now.used[key] = u.cpu
		if o.at.IsZero() {
			return u, 0
		}
		return u, max(0, float64(u.cpu-o.used[key])/float64(now.at.Sub(o.at)))
	}
	for _, pid := range h.families(roots) {
		u, cpu := since(strconv.Itoa(pid))
		s.AgentCPU, s.AgentRSS = s.AgentCPU+cpu, s.AgentRSS+u.rss
		for _, thread := range h.threads(pid) {
			_, cpu := since(thread)
			s.DriverThread = max(s.DriverThread, min(cpu, 1))
		}
	}
	*o = now
}

// families are processes with all that descend from them. Where the kernel does not tell children, the processes alone.
func (h *host) families(roots []int) []int {
	all, seen := append([]int(nil), roots...), map[int]bool{}
	for _, pid := range roots {
		seen[pid] = true
	}
	for i := 0; i < len(all) && len(all) < mostOutside; i++ {
		for _, thread := range h.threads(all[i]) {
			text, _ := os.ReadFile(filepath.Join(h.proc, thread, "children"))
			for _, word := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(word); err == nil && !seen[pid] {
					seen[pid] = true
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// threads are the folders of a process's threads, below /proc.
func (h *host) threads(pid int) (paths []string) {
	dir := fmt.Sprintf("%d/task", pid)
	entries, _ := os.ReadDir(filepath.Join(h.proc, dir))
	for _, e := range entries[:min(len(entries), mostOutside)] {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	return paths
}
