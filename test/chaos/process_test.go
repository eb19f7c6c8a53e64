package chaos

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is one program, running. What it says is in a file of its row's folder.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	log string
	end chan struct{}

	begun time.Time
}

// command is how a process is started, and started again.
type command struct {
	name string // of its log
	env  []string
	argv []string
}

// starter is a thread that ends with the tests: the system kills a process when the thread that started it ends, so none is left over.
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

func (r *row) start(c command) *process {
	r.t.Helper()
	log, err := os.OpenFile(filepath.Join(r.dir, c.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	p := &process{t: r.t, cmd: exec.Command(c.argv[0], c.argv[1:]...), log: log.Name(), end: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), c.env...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = r.dir, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	starter() <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		r.t.Fatalf("start %s: %v", c.name, err)
	}
	p.begun = time.Now()
	go func() {
		_ = p.cmd.Wait() // the exit code is read where it matters
		close(p.end)
	}()
	r.t.Cleanup(func() { p.kill() })
	return p
}

// kill ends it as a power cut would, and returns when that was.
func (p *process) kill() time.Time {
	at := time.Now()
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.end
	return at
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal: %v", err)
	}
}

// leaves waits for the end and returns the exit code.
func (p *process) leaves(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.end:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		p.t.Fatalf("%s is still there after %v; it said last:\n%s", filepath.Base(p.log), within, p.tail(3000))
		return 0
	}
}

// said is all that it has written so far, with what its predecessors of the same name wrote.
func (p *process) said() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

func (p *process) tail(most int) []byte {
	text, _ := os.ReadFile(p.log) // without it there is nothing to show
	text = text[max(0, len(text)-most):]
	return bytes.TrimSpace(text)
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, within time.Duration, is func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !is(); {
		if time.Now().After(end) {
			t.Fatalf("after %v: not %s", within, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
