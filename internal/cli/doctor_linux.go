package cli

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"example.org/lockstep/lockstep/internal/display"
)

// hostChecks checks the load, the limits and the clock of this host.
func hostChecks() []check {
	return []check{cpuLoad(), openFiles(), localPorts(), hostClock()}
}

// cpuLoad checks whether processes already use the CPUs.
func cpuLoad() check {
	k := check{Name: "CPU load", State: stateOK}
	text, err := os.ReadFile("/proc/loadavg")
	var load float64
	if err == nil {
		_, err = fmt.Sscan(string(text), &load)
	}
	if err != nil {
		return check{k.Name, stateWarning, err.Error() + "; check that /proc is mounted"}
	}
	k.Result = fmt.Sprintf("%s, load average of the last minute %.1f", display.Count(runtime.NumCPU(), "core"), load)
	if load > float64(runtime.NumCPU())/2 {
		k.State = stateWarning
		k.Result += "; stop other processes before you measure"
	}
	return k
}

func openFiles() check {
	k := check{Name: "open files", State: stateOK}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return check{k.Name, stateWarning, err.Error() + "; check ulimit -n"}
	}
	k.Result = display.Decimals(float64(limit.Max), 0) + " per process" // Go programs raise their limit to the maximum
	if limit.Max < minOpenFiles {
		k.State = stateWarning
		k.Result += fmt.Sprintf("; raise the hard limit (ulimit -Hn) to %d for many connections", minOpenFiles)
	}
	return k
}

func localPorts() check {
	k := check{Name: "local ports", State: stateOK}
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	var low, high int
	if err == nil {
		_, err = fmt.Sscan(string(text), &low, &high)
	}
	if err != nil {
		return check{k.Name, stateWarning, err.Error() + "; check sysctl net.ipv4.ip_local_port_range"}
	}
	k.Result = display.Decimals(float64(high-low+1), 0) + " for outgoing connections"
	if high-low+1 < minPorts {
		k.State = stateWarning
		k.Result += "; widen net.ipv4.ip_local_port_range for modes with a connection per message"
	}
	return k
}

// hostClock checks whether the kernel's clock is synchronised. Agents compare their clocks themselves; only schedules
// and the times in records use the wall clock.
func hostClock() check {
	k := check{"clock", stateOK, "synchronised"}
	state, err := unix.Adjtimex(&unix.Timex{})
	switch {
	case err != nil:
		k.State, k.Result = stateWarning, err.Error()+"; check the time synchronisation of this host"
	case state == unix.TIME_ERROR:
		k.State, k.Result = stateWarning, "not synchronised; start chrony or systemd-timesyncd"
	}
	return k
}

// freeDisk returns the free bytes of a file system for this user.
func freeDisk(dir string) (bytes float64, known bool) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, false
	}
	return float64(s.Bavail) * float64(s.Bsize), true
}
