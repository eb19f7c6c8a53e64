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

	"example.org/lockstep/lockstep/internal/plan"
)

// procfs is the path of a proc file system. The agent reads it directly: it needs few files of a known format, and a
// library would bring dependencies for each operating system. Without proc there are no metrics. Safe for concurrent
// use.
type procfs string

// ticksPerSecond is USER_HZ: 100 on every Linux that Go supports.
const ticksPerSecond = 100

// maxThreads is the maximum number of threads per process that are read.
const maxThreads = 256

// usage is the total usage of a process or thread at a time.
type usage struct {
	at    time.Time
	cpu   time.Duration
	rss   int64
	start string // its start time, as another one may get the same pid
}

// since returns the mean CPU usage in cores.
func (u usage) since(before usage) float64 {
	elapsed := u.at.Sub(before.at)
	if elapsed <= 0 || before.at.IsZero() {
		return 0
	}
	return float64(u.cpu-before.cpu) / float64(elapsed)
}

// read returns a file of a process or thread. pid may be "self" or the folder of a thread.
func (p procfs) read(pid string, name ...string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(p), pid, filepath.Join(name...)))
}

// stat returns the fields of /proc/PID/stat from the third on; nil: there is no such process.
func (p procfs) stat(pid string) []string {
	stat, err := p.read(pid, "stat")
	end := bytes.LastIndexByte(stat, ')') // the name before it may contain anything
	if err != nil || end < 0 {
		return nil
	}
	return strings.Fields(string(stat[end+1:]))
}

// usage returns the CPU time and resident memory of a process or thread.
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

// processes returns the processes that match, except this one.
func (p procfs) processes(match func(pid string) bool) (pids []int) {
	entries, _ := os.ReadDir(string(p))
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() && match(e.Name()) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// find returns the pid of the process that a matrix or file describes; 0: none.
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

// hasCommand reports whether the command line of a process contains words.
func (p procfs) hasCommand(pid, words string) bool {
	command, err := p.read(pid, "cmdline")
	return err == nil && strings.Contains(string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})), words)
}

// largest returns the matching process with the most memory: a server rather than the shell that started it.
func (p procfs) largest(match func(pid string) bool) (found int) {
	largest := int64(-1)
	for _, pid := range p.processes(match) {
		if u, ok := p.usage(strconv.Itoa(pid)); ok && u.rss > largest {
			largest, found = u.rss, pid
		}
	}
	return found
}

// listener returns the process that listens on a TCP port; 0: none. An agent sees only processes of its own user,
// unless it is root.
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

// portOf returns the port of an address such as 0100007F:1538.
func portOf(address string) int {
	b, err := hex.DecodeString(address[strings.LastIndexByte(address, ':')+1:])
	if err != nil || len(b) != 2 {
		return -1
	}
	return int(b[0])<<8 | int(b[1])
}

// program returns the path of a process's program, without the suffix of a deleted file.
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

// threads returns the folders of a process's threads, relative to /proc.
func (p procfs) threads(pid int) (paths []string) {
	dir := fmt.Sprintf("%d/task", pid)
	entries, _ := os.ReadDir(filepath.Join(string(p), dir))
	for _, e := range entries[:min(len(entries), maxThreads)] {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	return paths
}

// byteCounters are two counters of bytes: read from and written to disks, or received and sent by an interface.
type byteCounters struct{ in, out int64 }

// since returns the difference to before. Counters may restart at 0.
func (c byteCounters) since(before byteCounters) byteCounters {
	return byteCounters{max(0, c.in-before.in), max(0, c.out-before.out)}
}

// rates returns bytes per second.
func (c byteCounters) rates(elapsed time.Duration) (in, out float64) {
	if elapsed <= 0 {
		return 0, 0
	}
	return float64(c.in) / elapsed.Seconds(), float64(c.out) / elapsed.Seconds()
}

// disk returns the bytes that a process has made the kernel read from and write to disks. Only the process's user, root
// and processes with CAP_SYS_PTRACE may read the file.
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

// network returns the counters of each interface in a process's network namespace, including the loopback.
func (p procfs) network(pid string) (map[string]byteCounters, error) {
	text, err := p.read(pid, "net", "dev")
	if err != nil {
		return nil, err
	}
	all := map[string]byteCounters{}
	for line := range strings.Lines(string(text)) {
		name, counts, is := strings.Cut(line, ":")
		const in, out = 0, 8 // received and sent bytes, see proc(5)
		if f := strings.Fields(counts); is && len(f) > out {
			all[strings.TrimSpace(name)] = byteCounters{number(f[in]), number(f[out])}
		}
	}
	if len(all) == 0 {
		return nil, fs.ErrNotExist
	}
	return all, nil
}

// networkSpace returns the id of a process's network namespace.
func (p procfs) networkSpace(pid string) (string, error) {
	return os.Readlink(filepath.Join(string(p), pid, "ns", "net"))
}

// number parses a decimal number; the kernel writes no other format.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
