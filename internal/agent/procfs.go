package agent

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/internal/plan"
)

// procfs is the path of a /proc. The agent reads it directly: a few small files of a known format, where the usual
// library brings a dependency for each operating system. Without a /proc there are no metrics. Safe for concurrent use.
type procfs string

// ticksPerSecond is USER_HZ, 100 on every Linux that Go runs on.
const ticksPerSecond = 100

// maxThreads bounds the threads of one process that are read.
const maxThreads = 256

// usage is what a process or thread had used at a time.
type usage struct {
	at    time.Time
	cpu   time.Duration
	rss   int64
	start string // when it began: another one may get the same pid
}

// since is the mean use of the processor, in cores.
func (u usage) since(before usage) float64 {
	elapsed := u.at.Sub(before.at)
	if elapsed <= 0 || before.at.IsZero() {
		return 0
	}
	return float64(u.cpu-before.cpu) / float64(elapsed)
}

// read returns a file of a process or thread; pid may be "self" or the folder of a thread.
func (p procfs) read(pid string, name ...string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(p), pid, filepath.Join(name...)))
}

// stat returns the fields of /proc/PID/stat from the third on; nil if the process is not there.
func (p procfs) stat(pid string) []string {
	stat, err := p.read(pid, "stat")
	end := bytes.LastIndexByte(stat, ')') // the name before it may hold anything
	if err != nil || end < 0 {
		return nil
	}
	return strings.Fields(string(stat[end+1:]))
}

// usage reads the processor time and resident memory of a process or thread.
func (p procfs) usage(pid string) (usage, bool) {
	const user, system, start, rss = 11, 12, 19, 21 // proc(5): fields 14, 15, 22 and 24, counted from the third
	fields := p.stat(pid)
	if len(fields) <= rss {
		return usage{}, false
	}
	ticks := number(fields[user]) + number(fields[system])
	return usage{at: time.Now(), cpu: time.Duration(ticks) * (time.Second / ticksPerSecond),
		rss: number(fields[rss]) * int64(os.Getpagesize()), start: fields[start]}, true
}

// processes lists the processes that match, except this one.
func (p procfs) processes(match func(pid string) bool) (pids []int) {
	entries, _ := os.ReadDir(string(p))
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() && match(e.Name()) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// find returns the pid of a process as a matrix or a file names it, or 0.
func (p procfs) find(x plan.Process) int {
	switch {
	case x.PID != 0:
		return x.PID
	case x.Port != 0:
		return p.listener(x.Port)
	case x.Command != "":
		return p.largest(func(pid string) bool { return p.hasCommand(pid, x.Command) })
	}
	return 0
}

// hasCommand reports whether a process has words in its command line.
func (p procfs) hasCommand(pid, words string) bool {
	command, err := p.read(pid, "cmdline")
	return err == nil && strings.Contains(string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})), words)
}

// largest is the process with the most memory of those that match: a server rather than the shell that started it.
func (p procfs) largest(match func(pid string) bool) (found int) {
	largest := int64(-1)
	for _, pid := range p.processes(match) {
		if u, ok := p.usage(strconv.Itoa(pid)); ok && u.rss > largest {
			largest, found = u.rss, pid
		}
	}
	return found
}

// listener is the process that listens on a TCP port, or 0. An agent sees those of its own user, or all as root.
func (p procfs) listener(port int) int {
	sockets := map[string]bool{}
	for _, name := range []string{"tcp", "tcp6"} {
		table, _ := p.read("net", name)
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
	return p.largest(func(pid string) bool {
		dir := filepath.Join(string(p), pid, "fd")
		fds, _ := os.ReadDir(dir)
		return slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
			to, err := os.Readlink(filepath.Join(dir, fd.Name()))
			return err == nil && sockets[to]
		})
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

// program is the path of what a process runs, without the mark of a file that was replaced meanwhile.
func (p procfs) program(pid int) string {
	path, _ := os.Readlink(filepath.Join(string(p), strconv.Itoa(pid), "exe"))
	return strings.TrimSuffix(path, " (deleted)")
}

// isAncestor reports whether a process is an ancestor of this one.
func (p procfs) isAncestor(pid int) bool {
	for parent := os.Getppid(); parent > 1; {
		if parent == pid {
			return true
		}
		fields := p.stat(strconv.Itoa(parent))
		if len(fields) < 2 {
			return false
		}
		parent = int(number(fields[1]))
	}
	return false
}

// threads are the folders of a process's threads, below /proc.
func (p procfs) threads(pid int) (paths []string) {
	dir := fmt.Sprintf("%d/task", pid)
	entries, _ := os.ReadDir(filepath.Join(string(p), dir))
	for _, e := range entries[:min(len(entries), maxThreads)] {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	return paths
}

// byteCounters are two counters of bytes: read from disks and written to them, or received by an interface and sent.
type byteCounters struct{ in, out int64 }

// since is what was counted after before. The kernel's counters restart at 0 where something is made again.
func (c byteCounters) since(before byteCounters) byteCounters {
	return byteCounters{max(0, c.in-before.in), max(0, c.out-before.out)}
}

// rates are bytes per second.
func (c byteCounters) rates(elapsed time.Duration) (in, out float64) {
	if elapsed <= 0 {
		return 0, 0
	}
	return float64(c.in) / elapsed.Seconds(), float64(c.out) / elapsed.Seconds()
}

// disk is what a process has had the kernel read from disks and write to them. The file is readable for the process's
// user, root and those with CAP_SYS_PTRACE.
func (p procfs) disk(pid string) (c byteCounters, err error) {
	text, err := p.read(pid, "io")
	if err != nil {
		return c, err
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "read_bytes":
			c.in, found = number(value), found+1
		case "write_bytes":
			c.out, found = number(value), found+1
		}
	}
	if found < 2 {
		return c, fs.ErrNotExist
	}
	return c, nil
}

// network is what each interface of a process's network namespace has received and sent, the loopback included.
func (p procfs) network(pid string) (map[string]byteCounters, error) {
	text, err := p.read(pid, "net", "dev")
	if err != nil {
		return nil, err
	}
	all := map[string]byteCounters{}
	for line := range strings.Lines(string(text)) {
		name, counts, is := strings.Cut(line, ":")
		const in, out = 0, 8 // bytes received and sent, see proc(5)
		if f := strings.Fields(counts); is && len(f) > out {
			all[strings.TrimSpace(name)] = byteCounters{number(f[in]), number(f[out])}
		}
	}
	if len(all) == 0 {
		return nil, fs.ErrNotExist
	}
	return all, nil
}

// networkSpace names the network namespace of a process.
func (p procfs) networkSpace(pid string) (string, error) {
	return os.Readlink(filepath.Join(string(p), pid, "ns", "net"))
}

// number reads a decimal; the kernel writes no other.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
