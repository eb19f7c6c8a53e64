package external

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/procs"
)

const (
	exitGrace = 2 * time.Second // for a process to end by itself after its standard input was closed
	restGrace = time.Second     // for reading the rest of the pipes of a process that has ended
	maxLines  = 500             // maximum number of logged lines of standard error, per process
	maxLine   = 1 << 10         // maximum length of a logged line, in bytes
	lastLines = 5               // number of lines kept for the error of a process that died
)

// process is a driver's process. Neither the process nor its process group outlives stop.
type process struct {
	stdin, stdout *os.File
	ended         chan struct{} // closed when the process has ended and err is set
	err           error

	mu   sync.Mutex
	pid  int // 0 after the process has ended
	tail tail
}

// start starts a command. Its standard error is logged.
func start(c Command, log *slog.Logger) (*process, error) {
	var files []*os.File
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			files = append(files, r, w)
		}
		return r, w, err
	}
	abandon := func(err error) (*process, error) {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, fmt.Errorf("start %s: %w", c.Command[0], err)
	}
	in, stdin, err := pipe()
	if err != nil {
		return abandon(err)
	}
	stdout, out, err := pipe()
	if err != nil {
		return abandon(err)
	}
	stderr, errOut, err := pipe()
	if err != nil {
		return abandon(err)
	}
	cmd := exec.Command(c.Command[0], c.Command[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Dir, c.environment(), in, out, errOut
	procs.NewGroup(cmd, true)
	widen(stdin)
	widen(stdout)
	p := &process{stdin: stdin, stdout: stdout, ended: make(chan struct{}),
		tail: tail{log: log, done: make(chan struct{})}}
	started := make(chan error, 1)
	go p.live(cmd, stderr, started)
	if err := <-started; err != nil {
		return abandon(err)
	}
	for _, f := range []*os.File{in, out, errOut} {
		_ = f.Close()
	}
	return p, nil
}

// live starts the process without capabilities, and waits for its end. It does so on a locked thread, because the
// system kills the process when the thread that started it ends. Without the lock, that could happen at any time.
func (p *process) live(cmd *exec.Cmd, stderr *os.File, started chan<- error) {
	runtime.LockOSThread()
	err := procs.DropAmbient()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	go p.tail.read(stderr)
	started <- nil
	procs.AwaitExit(p.pid)
	p.mu.Lock()
	if procs.Groups {
		_ = procs.KillGroup(p.pid) // kill its children before the process number can be reused
		p.pid = 0
	}
	p.mu.Unlock()
	err = cmd.Wait()
	p.mu.Lock()
	p.pid = 0
	p.mu.Unlock()
	rest := time.Now().Add(restGrace)
	_ = p.stdout.SetReadDeadline(rest) // a process outside the group may keep the pipes open
	_ = stderr.SetReadDeadline(rest)
	<-p.tail.done
	_ = stderr.Close()
	if err != nil {
		p.err = fmt.Errorf("the driver's process ended: %w", err)
	} else {
		p.err = errors.New("the driver's process ended by itself")
	}
	if last := p.tail.last(); last != "" {
		p.err = fmt.Errorf("%w; its last words: %s", p.err, last)
	}
	close(p.ended)
}

// kill kills the process and its group immediately.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid != 0 {
		_ = procs.KillGroup(p.pid)
	}
}

// stop closes standard input, which asks the process to end. It kills the process after exitGrace.
func (p *process) stop() {
	_ = p.stdin.Close()
	timer := time.AfterFunc(exitGrace, p.kill)
	defer timer.Stop()
	<-p.ended
}

func (c Command) environment() []string {
	env := procs.Environment()
	for name, value := range c.Env { // later entries take precedence
		env = append(env, name+"="+value)
	}
	return env
}

// Command describes how to start a driver's process.
type Command struct {
	// program and arguments; a program with a slash is relative to Dir
	Command []string          `json:"command"`
	Env     map[string]string `json:"env,omitempty"` // in addition to the inherited variables, such as PATH and HOME
	Dir     string            `json:"dir,omitempty"` // working directory
}

// From returns c with an absolute Dir. A relative Dir is relative to folder.
func (c Command) From(folder string) Command {
	if !filepath.IsAbs(c.Dir) {
		c.Dir = filepath.Join(folder, c.Dir)
	}
	return c
}

// tail logs the lines of standard error and keeps the last ones. read runs in its own goroutine.
type tail struct {
	log  *slog.Logger
	done chan struct{}

	mu    sync.Mutex
	lines []string
}

func (t *tail) read(r *os.File) {
	defer close(t.done)
	reader := bufio.NewReaderSize(r, maxLine)
	for n := 0; ; n++ {
		line, cut, err := reader.ReadLine()
		for rest := cut; rest && err == nil; { // skip the rest of a long line
			_, rest, err = reader.ReadLine()
		}
		if text := strings.ToValidUTF8(string(line), ""); text != "" {
			t.keep(text, n)
		}
		if err != nil {
			return
		}
	}
}

func (t *tail) keep(text string, n int) {
	switch {
	case n < maxLines:
		t.log.LogAttrs(context.Background(), slog.LevelInfo, "driver log", slog.String("line", text))
	case n == maxLines:
		t.log.Warn("driver writes too much: the rest of its standard error is not logged")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, text)
	if len(t.lines) > lastLines {
		t.lines = slices.Delete(t.lines, 0, 1)
	}
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, " | ")
}
