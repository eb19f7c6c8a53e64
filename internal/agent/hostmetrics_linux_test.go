package agent

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/record"
)

func TestOwnMetrics(t *testing.T) {
	h := newHostMetrics("/proc", nil)
	var before, after syscall.Rusage
	used := func(r *syscall.Rusage) time.Duration {
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, r); err != nil {
			t.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	for begin := used(&before); used(&after)-begin < 100*time.Millisecond; {
		_ = fmt.Sprint(begin) // use CPU time
	}
	if s := h.sample(nil); s.AgentCPU <= 0 || s.AgentRSS < 1<<20 {
		t.Errorf("after 100 ms of CPU time: got %+v, want CPU use, and at least 1 MiB of memory", s)
	}
}

// TestChildrenOfDriverProcessesAreMeasured measures real processes: a shell and its child.
func TestChildrenOfDriverProcessesAreMeasured(t *testing.T) {
	c := exec.Command("sh", "-c", "sh -c 'while :; do :; done' & wait")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
	}()
	children := childProcesses{proc: "/proc"}
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(100 * time.Millisecond) {
		var s record.HostSample
		children.sample([]int{c.Process.Pid}, &s)
		if s.AgentCPU > 0 && s.AgentRSS > 0 && s.DriverThread > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("last sample: got %+v, want CPU use, memory and the use of a thread", s)
		}
	}
}
