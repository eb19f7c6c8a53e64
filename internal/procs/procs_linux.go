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

// NewGroup gives a command a process group of its own. With killedWithParent it is killed when the thread that started
// it ends.
func NewGroup(c *exec.Cmd, killedWithParent bool) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if killedWithParent {
		c.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
}

// NewSession gives a command a session of its own, so that signals to this process's group do not reach it.
func NewSession(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// Self is the path of this program, also when its file was replaced since it began.
func Self() (string, error) { return "/proc/self/exe", nil }

// DropAmbient clears the ambient capabilities of the calling thread: a program that the thread starts then has none,
// unless its file gives it some. The caller has locked its goroutine to the thread and lets both end together.
func DropAmbient() error {
	err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if err != nil && !errors.Is(err, unix.EINVAL) { // a kernel without them
		return fmt.Errorf("drop ambient capabilities: %w", err)
	}
	return nil
}

// AwaitExit returns when a child has ended. The pid stays reserved until the caller waits for the child.
func AwaitExit(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// KillGroup kills the group that a child leads.
func KillGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

// Pause stops a process, and Resume lets it run again.
func Pause(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func Resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
