package rabbitmq

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// process describes a process of this host, read from /proc. On systems without /proc, localProcess finds none.
type process struct {
	used   time.Duration // processor time, user and system
	age    time.Duration
	rabbit bool // the process runs RabbitMQ
}

// clockTick is the unit of times in /proc. It is 1/100 s on every Linux that Go supports.
const clockTick = time.Second / 100

func localProcess(pid string) (p process, ok bool) {
	if _, err := strconv.Atoi(pid); err != nil {
		return p, false
	}
	dir := filepath.Join("/proc", pid)
	stat, noStat := os.ReadFile(filepath.Join(dir, "stat"))
	uptime, noUptime := os.ReadFile("/proc/uptime")
	command, noCommand := os.ReadFile(filepath.Join(dir, "cmdline"))
	if errors.Join(noStat, noUptime, noCommand) != nil {
		return p, false
	}
	// the process name before it may contain any character
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	// proc(5) numbers these fields 14, 15 and 22; fields begins with field 3
	const user, system, start = 11, 12, 19
	if len(fields) <= start {
		return p, false
	}
	ticks := func(i int) time.Duration {
		n, _ := strconv.ParseInt(fields[i], 10, 64) // always a number
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
