package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// gentle is the time for a process to end after SIGTERM. It is short, because the data of a lab is not needed any more.
const gentle = 2 * time.Second

// Process is a program that the lab starts, and can kill and start again. Its methods are safe for concurrent use.
type Process struct {
	Name    string
	First   []string // optional command that prepares the folder, run once before the first start
	Command []string
	Env     []string // the whole environment; nil: that of the lab
	Dir     string
	Log     string // file for its output
	// Ready returns an error until this broker answers. It is not called for helpers.
	Ready func(ctx context.Context) error

	mu      sync.Mutex
	cmd     *exec.Cmd
	ended   chan struct{}
	paused  bool
	logFrom int64 // offset of the latest start in the log
}

// Start starts it in its own process group, so that it does not receive signals from a terminal.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && !p.hasEnded() {
		return fmt.Errorf("start %s: it runs already", p.Name)
	}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	defer log.Close()
	if len(p.First) > 0 {
		first := tool(ctx, p.Dir, p.First[0], p.First[1:]...)
		first.Env = p.Env
		if err := finish(first); err != nil {
			return fmt.Errorf("start %s: %w", p.Name, err)
		}
		p.First = nil
	}
	size, err := log.Stat()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = p.Env, p.Dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended, p.paused, p.logFrom = cmd, ended, false, size.Size()
	go func() {
		_ = cmd.Wait() // only the end matters, not the exit code
		close(ended)
	}()
	return nil
}

// starter starts processes from a thread that ends with the lab. The system kills a process when the thread that
// started it ends, so no broker outlives a killed lab.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for do := range work {
			do()
		}
	}()
	return work
})

func (p *Process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Check returns an error if the process has ended.
func (p *Process) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && !p.hasEnded() {
		return nil
	}
	return fmt.Errorf("%s has ended; %s", p.Name, p.logEnd())
}

// logEnd returns the end of the log for an error, because the file may be removed before a user looks at it.
func (p *Process) logEnd() string {
	log, _ := os.ReadFile(p.Log) // without a log, the error has no output
	const maxLog = 2000          // bytes
	return fmt.Sprintf("the log of %s ends:\n%s", p.Name, log[max(0, len(log)-maxLog):])
}

// Running reports whether the process runs and is not paused.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil && !p.hasEnded() && !p.paused
}

// PID returns the process number, or 0 if it was not started.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Logged reports whether the log of the latest start contains a text.
func (p *Process) Logged(text string) bool {
	p.mu.Lock()
	from := p.logFrom
	p.mu.Unlock()
	log, err := os.ReadFile(p.Log)
	return err == nil && int64(len(log)) > from && strings.Contains(string(log[from:]), text)
}

// Pause stops the process without closing its connections, as on a machine that hangs. Resume continues it.
func (p *Process) Pause() error  { return p.signal(syscall.SIGSTOP, true) }
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT, false) }

func (p *Process) signal(s syscall.Signal, paused bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.hasEnded() {
		return fmt.Errorf("%s does not run", p.Name)
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, s); err != nil {
		return fmt.Errorf("send %v to %s: %w", s, p.Name, err)
	}
	p.paused = paused
	return nil
}

// Kill kills it and its child processes at once.
func (p *Process) Kill() { p.end(0) }

// Stop sends SIGTERM, and kills it after the time gentle.
func (p *Process) Stop() { p.end(gentle) }

func (p *Process) end(patience time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	group := -p.cmd.Process.Pid
	if patience > 0 && !p.hasEnded() && !p.paused {
		_ = syscall.Kill(group, syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(patience):
		}
	}
	// The system does not reuse the group's number while one of its processes exists. If none exists, this returns
	// ESRCH.
	if err := syscall.Kill(group, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return
	}
	<-p.ended
	p.cmd = nil
}
