package rabbitmq

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// process is one of this host's, as /proc tells of it. Where there is no /proc there is none.
type process struct {
	used   time.Duration // processor time, user and system
	age    time.Duration
	rabbit bool // it is RabbitMQ's
}

// clockTick is the unit of times in /proc, on every Linux that Go runs on.
const clockTick = time.Second / 100

func localProcess(pid string) (p process, ok bool) {
	if _, err := strconv.Atoi(pid); err != nil {
		return p, false
	}
	dir := filepath.Join("/proc", pid)
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return p, false
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return p, false
	}
	command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return p, false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name before it may hold anything
	// proc(5): fields 14, 15 and 22, counted from the third
	const user, system, start = 11, 12, 19
	if len(fields) <= start {
		return p, false
	}
	ticks := func(i int) time.Duration {
		n, _ := strconv.ParseInt(fields[i], 10, 64) // the kernel writes no other
		return time.Duration(n) * clockTick
	}
	since, _, _ := strings.Cut(string(uptime), " ")
	seconds, err := strconv.ParseFloat(since, 64)
	if err != nil {
		return p, false
	}
	p.used = ticks(user) + ticks(system)
	p.age = time.Duration(seconds*float64(time.Second)) - ticks(start)
	p.rabbit = bytes.Contains(command, []byte("beam")) && bytes.Contains(command, []byte("rabbit"))
	return p, true
}
