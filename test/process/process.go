// Package process handles the programs under test as processes of their own: it builds, starts, signals and ends them,
// waits for them, and reads what they say and use. None outlives the tests, and what a process says is printed when its
// test fails.
package process

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Command is how a process is started, and can be started again.
type Command struct {
	Dir string // where it runs, and where what it says is kept
	// of the file NAME.log there, which goes on when it is started again; none: a new file of the program's name
	Name string
	Env  []string // NAME=value, besides the test's own
	Bare bool     // of the test's own variables it gets none that is Lockstep's
	Argv []string
}

// Process is a program, running or ended. Its methods may be called from several goroutines.
type Process struct {
	Begun time.Time // when it was started

	t    testing.TB
	cmd  *exec.Cmd
	log  string
	from int64 // where in the log this process begins
	end  chan struct{}
}

// starter is a thread that ends with the tests: the system kills a process when the thread that started it ends, so
// none is left over.
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

// ProgramsVariable names a folder with the three programs, built in advance: plain as users have them, and race with
// the race detector. Tests build them if it is not set.
const ProgramsVariable = "LOCKSTEP_PROGRAMS"

// Programs returns the folder of the three programs, and builds them into dir if there is none yet. With race they have
// the race detector, and a test that starts one fails by what that finds.
func Programs(dir string, race bool) (string, error) {
	kind, args := "plain", []string{"lockstep/cmd/..."}
	if race {
		kind, args = "race", []string{"-race", "lockstep/cmd/..."}
	}
	if built := os.Getenv(ProgramsVariable); built != "" {
		return filepath.Join(built, kind), nil
	}
	dir = filepath.Join(dir, kind)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return dir, Build(dir, args...)
}

// Beside has so many tests run side by side that say they may, on any machine, unless the command line says how many:
// they wait most of their time. It is called with flags parsed.
func Beside(tests int) error {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(tests))
}

// Build builds programs into a folder; args are those of "go build".
func Build(dir string, args ...string) error {
	build := exec.Command("go", append([]string{"build", "-o", dir + string(filepath.Separator)}, args...)...)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build programs: %w\n%s", err, out)
	}
	return nil
}

// Start starts a program that is killed with the test at the latest. Programs built with the race detector fail the
// test by what that finds.
func Start(t testing.TB, c Command) *Process {
	t.Helper()
	log, from := c.logFile(t)
	defer log.Close()
	p := &Process{t: t, cmd: exec.Command(c.Argv[0], c.Argv[1:]...), log: log.Name(), from: from,
		end: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = c.Dir, c.environment(), log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	starter() <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", c.Argv[0], err)
	}
	p.Begun = time.Now()
	go func() {
		_ = p.cmd.Wait() // the exit code is read where it matters
		close(p.end)
	}()
	t.Cleanup(p.finish)
	return p
}

func (c Command) environment() (env []string) {
	for _, v := range os.Environ() {
		if !c.Bare || !strings.HasPrefix(v, "LOCKSTEP_") {
			env = append(env, v)
		}
	}
	return append(env, c.Env...)
}

// logFile opens the file that is to have what the process says, and tells how long it is.
func (c Command) logFile(t testing.TB) (log *os.File, length int64) {
	t.Helper()
	var err error
	if c.Name == "" {
		log, err = os.CreateTemp(c.Dir, filepath.Base(c.Argv[0])+"-*.log")
	} else {
		log, err = os.OpenFile(filepath.Join(c.Dir, c.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if length, err = log.Seek(0, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	return log, length
}

func (p *Process) finish() {
	p.Kill()
	said := p.Said()
	if i := strings.Index(said, "WARNING: DATA RACE"); i >= 0 {
		p.t.Errorf("%s has a data race:\n%s", p, said[i:min(len(said), i+4000)])
	}
	if p.t.Failed() {
		p.t.Logf("%s said last:\n%s", p, p.Tail(8000))
	}
}

// String names the process by its log and number.
func (p *Process) String() string {
	return fmt.Sprintf("%s (pid %d)", strings.TrimSuffix(filepath.Base(p.log), ".log"), p.PID())
}

// PID is its number, also when it has ended.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends it as a power cut would, unless it has ended, and returns when that was.
func (p *Process) Kill() time.Time {
	at := time.Now()
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.end
	return at
}

// Signal sends it a signal; the test fails if it has ended.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("send %v to %s: %v", s, p, err)
	}
}

// Ended is closed when it has ended.
func (p *Process) Ended() <-chan struct{} { return p.end }

// patience bounds a wait. It ends a test that hangs, and says nothing about how long anything takes.
func patience() time.Duration {
	if os.Getenv("LOCKSTEP_LONG") != "" {
		return 40 * time.Minute
	}
	return 10 * time.Minute
}

// Leaves waits for its end and returns its exit code.
func (p *Process) Leaves() (code int) {
	p.t.Helper()
	select {
	case <-p.end:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience()):
		p.t.Fatalf("%s is still there after %v", p, patience())
		return 0
	}
}

// Said is all that it has written so far.
func (p *Process) Said() string {
	text, err := os.ReadFile(p.log)
	if err != nil || int64(len(text)) < p.from {
		p.t.Errorf("read what %s said: %d bytes, %v", p, len(text), err)
		return ""
	}
	return string(text[p.from:])
}

// Tail is the end of what it has written, so many bytes at most.
func (p *Process) Tail(most int) string {
	text := p.Said()
	return string(bytes.TrimSpace([]byte(text[max(0, len(text)-most):])))
}

// RSS is its resident memory in bytes.
func (p *Process) RSS() int {
	p.t.Helper()
	return RSS(p.t, p.PID())
}

// RSS is the resident memory of a process in bytes.
func RSS(t testing.TB, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); f[0] == "VmRSS:" {
			kib, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("process %d has no VmRSS", pid)
	return 0
}

// Eventually waits until something is so.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience()); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v: not %s", patience(), what)
		}
	}
}

// Ports asks the system for ports of 127.0.0.1 that nobody listens on, all different.
func Ports(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("find a free port: %v", err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// Listening waits until somebody takes connections at a port of 127.0.0.1.
func Listening(t testing.TB, port int) {
	t.Helper()
	Eventually(t, fmt.Sprintf("anybody listening on port %d", port), func() bool {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), time.Second)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}
