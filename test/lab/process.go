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

// gentle is how long a process may take to end by itself. What is in the lab is thrown away, so it is short.
const gentle = 2 * time.Second

// Process is one program that the lab starts, and can kill and start again. Its methods are safe for concurrent use.
type Process struct {
	Name    string
	First   []string // a command that makes its folder ready, run once, before the first start; may be empty
	Command []string
	Env     []string // all of its environment; nil: the lab's
	Dir     string
	Log     string // file that takes its output
	// Ready says what is missing until this broker answers. It is not asked of helpers.
	Ready func(ctx context.Context) error

	mu      sync.Mutex
	cmd     *exec.Cmd
	ended   chan struct{}
	paused  bool
	logFrom int64 // where its latest start begins in the log
}

// Start starts it in a process group of its own, which signals from a terminal do not reach.
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
	if err := fromLastingThread(cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended, p.paused, p.logFrom = cmd, ended, false, size.Size()
	go func() {
		_ = cmd.Wait() // how it ended does not matter; that it ended does
		close(ended)
	}()
	return nil
}

// lasting is a thread that ends with the lab. The system kills a process when the thread that started it ends, so that
// no broker outlives a lab that was itself killed.
var lasting = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for do := range work {
			do()
		}
	}()
	return work
})

func fromLastingThread(do func() error) error {
	done := make(chan error)
	lasting() <- func() { done <- do() }
	return <-done
}

func (p *Process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Check says whether it has not ended, and if it has, what it said last: its log may be gone when somebody looks for
// it.
func (p *Process) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && !p.hasEnded() {
		return nil
	}
	log, _ := os.ReadFile(p.Log) // without it there is nothing to say
	const most = 2000
	return fmt.Errorf("%s has ended; its log ends:\n%s", p.Name, log[max(0, len(log)-most):])
}

// Running says whether it has not ended and is not paused.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil && !p.hasEnded() && !p.paused
}

// PID is the broker's number, or 0 while it has none.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Logged reports whether a text is in the log of the latest start.
func (p *Process) Logged(text string) bool {
	p.mu.Lock()
	from := p.logFrom
	p.mu.Unlock()
	log, err := os.ReadFile(p.Log)
	return err == nil && int64(len(log)) > from && strings.Contains(string(log[from:]), text)
}

// Pause stops it where it stands, as a machine that hangs; Resume lets it go on.
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

// Kill ends it and all that it started at once, as a power cut would.
func (p *Process) Kill() { p.end(0) }

// Stop asks it to end, and kills it if it takes its time.
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
	// The group's number is not given to anybody else while one of its processes lives; without any, this finds nobody.
	if err := syscall.Kill(group, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return
	}
	<-p.ended
	p.cmd = nil
}
