package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// gentle is how long a process may take to end by itself. What is in the lab is thrown away, so it is short.
const gentle = 2 * time.Second

// Process is one program that the lab starts, and can kill and start again. Its methods are safe for concurrent use.
type Process struct {
	Name    string
	Command []string
	Env     []string // all of its environment
	Dir     string
	Log     string // file that takes its output

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts it in a process group of its own, which signals from a terminal do not reach.
func (p *Process) Start() error {
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
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = p.Env, p.Dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	go func() {
		_ = cmd.Wait() // how it ended does not matter; that it ended does
		close(ended)
	}()
	return nil
}

func (p *Process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Check says whether it still runs.
func (p *Process) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.hasEnded() {
		return fmt.Errorf("%s has ended; see %s", p.Name, p.Log)
	}
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
	if patience > 0 && !p.hasEnded() {
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
