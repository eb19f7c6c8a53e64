package agent

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// Figures come from /proc directly: two small files of a known format, where the usual library brings a dependency for each
// operating system and reads more than is wanted. Where there is no /proc the figures are absent.

// ticksPerSecond is USER_HZ, 100 on every Linux that Go runs on.
const ticksPerSecond = 100

// host measures this process and the broker's, if they are here. One goroutine at a time.
type host struct {
	proc   string
	self   usage
	spun   int64                // clock.Spun() at self.at
	waited map[string]scheduled // by thread of this process
	all    jiffies              // of the host
	broker []process
	every  bool // of broker are to be here; else those that were found at some time

	outside outside
}

// usage is what a process had used at a time.
type usage struct {
	at    time.Time
	cpu   time.Duration
	rss   int64
	start string // when the process began: another one may get the same pid
}

// newHost begins to measure; the first sample is of the time from here.
func newHost(proc string, broker plan.Processes) *host {
	h := &host{proc: proc, broker: make([]process, len(broker))}
	h.self, _ = h.usage("self")
	h.spun = clock.Spun()
	h.wait()
	h.busy()
	for i := range h.broker {
		h.broker[i].Process = broker[i]
		h.look(&h.broker[i])
	}
	return h
}

// sample is what was used since the last one.
func (h *host) sample() record.HostSample {
	s := record.HostSample{PID: os.Getpid()}
	s.HostCPU, s.HostCores = h.busy()
	s.AgentWaited = h.wait()
	if now, ok := h.usage("self"); ok {
		s.AgentCPU, s.AgentRSS = now.since(h.self), now.rss
		if elapsed := now.at.Sub(h.self.at); elapsed > 0 {
			spun := clock.Spun()
			s.AgentSpin = float64(spun-h.spun) / float64(elapsed)
			h.spun = spun
		}
		h.self = now
	}
	h.brokers(&s)
	return s
}

// scheduled is how long a thread ran, and how long it was runnable and waited for a CPU, ns.
type scheduled struct{ ran, waited int64 }

// wait is the part of the time in which threads of this process were runnable that they waited for a CPU, since it was last called. It is of the
// first two fields of schedstat (Documentation/scheduler/sched-stats.rst of Linux). What threads did that have ended is not known.
func (h *host) wait() float64 {
	before, sum := h.waited, scheduled{}
	h.waited = map[string]scheduled{}
	threads, err := os.ReadDir(filepath.Join(h.proc, "self", "task"))
	if err != nil {
		return 0
	}
	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join(h.proc, "self", "task", thread.Name(), "schedstat"))
		f := strings.Fields(string(text))
		if err != nil || len(f) < 2 {
			continue
		}
		now, was := scheduled{number(f[0]), number(f[1])}, before[thread.Name()]
		h.waited[thread.Name()] = now
		sum.ran, sum.waited = sum.ran+max(0, now.ran-was.ran), sum.waited+max(0, now.waited-was.waited)
	}
	if sum.waited == 0 {
		return 0
	}
	return float64(sum.waited) / float64(sum.ran+sum.waited)
}

// jiffies is what the CPUs of the host did since it started, in ticks.
type jiffies struct{ busy, idle int64 }

// busy is how many cores all processes of the host used since it was last called, time that a hypervisor took included, and how many there are:
// from the first line of /proc/stat (proc(5)).
func (h *host) busy() (used float64, cores int) {
	text, err := os.ReadFile(filepath.Join(h.proc, "stat"))
	if err != nil {
		return 0, 0
	}
	var now jiffies
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		const user, idle, iowait, steal = 1, 4, 5, 8
		switch {
		case len(f) <= idle || !strings.HasPrefix(f[0], "cpu"):
		case f[0] != "cpu":
			cores++
		default:
			for i := user; i < len(f) && i <= steal; i++ { // guest time, behind, is part of user time
				if i == idle || i == iowait {
					now.idle += number(f[i])
				} else {
					now.busy += number(f[i])
				}
			}
		}
	}
	was := h.all
	h.all = now
	if ran, all := now.busy-was.busy, now.busy-was.busy+now.idle-was.idle; ran > 0 && all > 0 {
		used = float64(cores) * float64(ran) / float64(all)
	}
	return used, cores
}

// since is the mean use of the processor, in cores.
func (u usage) since(before usage) float64 {
	elapsed := u.at.Sub(before.at)
	if elapsed <= 0 || before.at.IsZero() {
		return 0
	}
	return float64(u.cpu-before.cpu) / float64(elapsed)
}

// usage reads a process's processor time and resident memory.
func (h *host) usage(pid string) (usage, bool) {
	stat, err := os.ReadFile(filepath.Join(h.proc, pid, "stat"))
	if err != nil {
		return usage{}, false
	}
	end := bytes.LastIndexByte(stat, ')') // the name before it may hold anything
	fields := strings.Fields(string(stat[end+1:]))
	const user, system, start, rss = 11, 12, 19, 21 // proc(5): fields 14, 15, 22 and 24, counted from the third
	if end < 0 || len(fields) <= rss {
		return usage{}, false
	}
	ticks := number(fields[user]) + number(fields[system])
	return usage{at: time.Now(), cpu: time.Duration(ticks) * (time.Second / ticksPerSecond),
		rss: number(fields[rss]) * int64(os.Getpagesize()), start: fields[start]}, true
}

// find is the pid of a process of the broker, or 0.
func (h *host) find(p plan.Process) int {
	switch {
	case p.PID != 0:
		return p.PID
	case p.Port != 0:
		return h.listener(p.Port)
	case p.Command != "":
		return h.largest(func(pid string) bool { return h.holds(pid, p.Command) })
	}
	return 0
}

// holds tells whether a process has words in its command line.
func (h *host) holds(pid, words string) bool {
	command, err := os.ReadFile(filepath.Join(h.proc, pid, "cmdline"))
	return err == nil && strings.Contains(string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})), words)
}

// matching lists the processes that a target by its command may be, this one excepted, as "123 (name)". Figures may be of the largest; a signal
// may go to no other than was meant.
func (h *host) matching(p plan.Process) (all []string) {
	if p.Command == "" || p.PID != 0 || p.Port != 0 {
		return nil
	}
	entries, _ := os.ReadDir(h.proc)
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid == os.Getpid() || !h.holds(e.Name(), p.Command) {
			continue
		}
		name, _ := os.ReadFile(filepath.Join(h.proc, e.Name(), "comm"))
		all = append(all, fmt.Sprintf("%s (%s)", e.Name(), strings.TrimSpace(string(name))))
	}
	return all
}

// largest is the process with the most memory of those that match: a server rather than the shell that started it. Never this one.
func (h *host) largest(match func(pid string) bool) (found int) {
	entries, err := os.ReadDir(h.proc)
	if err != nil {
		return 0
	}
	most := int64(-1)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !match(e.Name()) {
			continue
		}
		if u, ok := h.usage(e.Name()); ok && u.rss > most {
			most, found = u.rss, pid
		}
	}
	return found
}

// listener is the process that listens on a TCP port; an agent sees those of its own user, or all as root.
func (h *host) listener(port int) int {
	sockets := map[string]bool{}
	for _, name := range []string{"tcp", "tcp6"} {
		table, err := os.ReadFile(filepath.Join(h.proc, "net", name))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(table)) {
			f := strings.Fields(line)
			const local, state, inode, listening = 1, 3, 9, "0A"
			if len(f) > inode && f[state] == listening && portOf(f[local]) == port {
				sockets["socket:["+f[inode]+"]"] = true
			}
		}
	}
	if len(sockets) == 0 {
		return 0
	}
	return h.largest(func(pid string) bool {
		dir := filepath.Join(h.proc, pid, "fd")
		fds, err := os.ReadDir(dir)
		if err != nil {
			return false
		}
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && sockets[to] {
				return true
			}
		}
		return false
	})
}

// portOf reads the port of an address like 0100007F:1538.
func portOf(address string) int {
	b, err := hex.DecodeString(address[strings.LastIndexByte(address, ':')+1:])
	if err != nil || len(b) != 2 {
		return -1
	}
	return int(b[0])<<8 | int(b[1])
}

// number reads a decimal; the kernel writes no other.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
