package procs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Groups reports whether AwaitExit waits and KillGroup kills the whole group.
const Groups = true

// NewGroup gives a command its own process group. If killedWithParent is true, it is killed when the thread that
// started it ends.
func NewGroup(c *exec.Cmd, killedWithParent bool) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if killedWithParent {
		c.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
}

// NewSession gives a command its own session, so that signals to this process's group do not reach it.
func NewSession(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// Self returns a path of this program that stays valid if its file is replaced.
func Self() (string, error) { return "/proc/self/exe", nil }

// DropAmbient clears the ambient capabilities of the calling thread. A program that the thread then starts has none,
// unless its file grants some. The caller must lock its goroutine to the thread, and must not unlock it, so that both
// end together.
func DropAmbient() error {
	err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: the kernel has no ambient capabilities
		return fmt.Errorf("drop ambient capabilities: %w", err)
	}
	return nil
}

// AwaitExit returns when a child has ended. Its pid stays reserved until the caller waits for the child.
func AwaitExit(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// KillGroup kills the process group whose leader is a child.
func KillGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

// Pause stops a process, and Resume continues it.
func Pause(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func Resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
