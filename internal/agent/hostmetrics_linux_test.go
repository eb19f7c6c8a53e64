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
	for began := used(&before); used(&after)-began < 100*time.Millisecond; {
		_ = fmt.Sprint(began) // use CPU time
	}
	if s := h.sample(nil); s.AgentCPU <= 0 || s.AgentRSS < 1<<20 {
		t.Errorf("%+v after 100 ms of processor time", s)
	}
}

// TestWhatAChildOfADriverUsesIsFound measures real processes: a shell, and its child.
func TestWhatAChildOfADriverUsesIsFound(t *testing.T) {
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
	for deadline := time.Now().Add(hang); ; time.Sleep(100 * time.Millisecond) {
		var s record.HostSample
		children.sample([]int{c.Process.Pid}, &s)
		if s.AgentCPU > 0 && s.AgentRSS > 0 && s.DriverThread > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the last sample has %+v", s)
		}
	}
}
