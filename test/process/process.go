// Package process runs the programs under test as separate processes. It builds, starts, signals and ends them, and
// reads their output and resource use. They end with the tests, and the output of a process is printed if its test
// fails.
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

// Command describes how a process is started. It can be started again.
type Command struct {
	Dir string // working folder, which also has the log
	// name of the log file NAME.log in Dir, which is continued when the process is started again. Empty: a new file
	// with the program's name.
	Name string
	Env  []string // NAME=value, in addition to the test's own variables
	Bare bool     // removes Lockstep's variables from those of the test
	Argv []string
}

// Process is a running or ended program. Its methods are safe for concurrent use.
type Process struct {
	Begun time.Time // time of the start

	t    testing.TB
	cmd  *exec.Cmd
	log  string
	from int64 // offset of this process in the log
	end  chan struct{}
}

// starter starts processes from a thread that ends with the tests. The system kills a process when the thread that
// started it ends, so no process is left.
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

// ProgramsVariable names a folder with the three built programs: subfolder plain without, and race with the race
// detector. Tests build them if the variable is not set.
const ProgramsVariable = "LOCKSTEP_PROGRAMS"

// Programs returns the folder of the three programs. It builds them into dir if ProgramsVariable is not set. With race,
// they are built with the race detector, and a test that starts one fails if a race is found.
func Programs(dir string, race bool) (string, error) {
	kind, args := "plain", []string{"example.org/lockstep/lockstep/cmd/..."}
	if race {
		kind, args = "race", []string{"-race", "example.org/lockstep/lockstep/cmd/..."}
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

// Beside sets the number of parallel tests, unless the command line sets it. These tests mostly wait, so the number
// does not depend on the cores. Call it after flag.Parse.
func Beside(tests int) error {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(tests))
}

// Build builds programs into a folder. args are those of "go build".
func Build(dir string, args ...string) error {
	build := exec.Command("go", append([]string{"build", "-o", dir + string(filepath.Separator)}, args...)...)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build programs: %w\n%s", err, out)
	}
	return nil
}

// Start starts a program and kills it at the end of the test. If a program with the race detector finds a race, the
// test fails.
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
		_ = p.cmd.Wait() // the exit code is read where it is needed
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

// logFile opens the log file and returns its length.
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
	output := p.Output()
	if i := strings.Index(output, "WARNING: DATA RACE"); i >= 0 {
		p.t.Errorf("%s has a data race:\n%s", p, output[i:min(len(output), i+4000)])
	}
	if p.t.Failed() {
		p.t.Logf("last output of %s:\n%s", p, p.Tail(8000))
	}
}

// String returns the name of the log and the process number.
func (p *Process) String() string {
	return fmt.Sprintf("%s (pid %d)", strings.TrimSuffix(filepath.Base(p.log), ".log"), p.PID())
}

// PID returns the process number, also after the end.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill sends SIGKILL, waits for the end of the process, and returns the time of the signal.
func (p *Process) Kill() time.Time {
	at := time.Now()
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.end
	return at
}

// Signal sends a signal. The test fails if the process has ended.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("send %v to %s: %v", s, p, err)
	}
}

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.end }

// patience is the time limit of a wait. It ends a test that hangs; it is no statement about performance.
func patience() time.Duration {
	if os.Getenv("LOCKSTEP_LONG") != "" {
		return 40 * time.Minute
	}
	return 10 * time.Minute
}

// ExitCode waits for the end of the process and returns its exit code.
func (p *Process) ExitCode() int {
	p.t.Helper()
	select {
	case <-p.end:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience()):
		p.t.Fatalf("%s still runs after %v", p, patience())
		return 0
	}
}

// Exits waits for the end of the process and checks its exit code.
func (p *Process) Exits(want int) {
	p.t.Helper()
	if code := p.ExitCode(); code != want {
		p.t.Errorf("%s exited with %d, want %d", p, code, want)
	}
}

// Output returns the output so far.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.log)
	if err != nil || int64(len(text)) < p.from {
		p.t.Errorf("read the output of %s: %d bytes, %v", p, len(text), err)
		return ""
	}
	return string(text[p.from:])
}

// Tail returns the end of the output, at most this number of bytes.
func (p *Process) Tail(limit int) string {
	text := p.Output()
	return string(bytes.TrimSpace([]byte(text[max(0, len(text)-limit):])))
}

// RSS returns the resident memory in bytes.
func (p *Process) RSS() int {
	p.t.Helper()
	return RSS(p.t, p.PID())
}

// RSS returns the resident memory of a process in bytes.
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

// Eventually waits until a condition is true.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience()); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out after %v waiting for %s", patience(), what)
		}
	}
}

// Ports returns different free ports of 127.0.0.1.
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

// Listening waits until a port of 127.0.0.1 accepts connections.
func Listening(t testing.TB, port int) {
	t.Helper()
	Eventually(t, fmt.Sprintf("a server on port %d", port), func() bool {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), time.Second)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}
