package process

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// listener records the errors and logs of a test.
type listener struct {
	testing.TB
	failed bool
	said   []string
	after  []func()
}

func (l *listener) Helper()           {}
func (l *listener) Cleanup(do func()) { l.after = append(l.after, do) }
func (l *listener) Failed() bool      { return l.failed }
func (l *listener) Logf(format string, v ...any) {
	l.said = append(l.said, fmt.Sprintf(format, v...))
}
func (l *listener) Errorf(format string, v ...any) {
	l.failed = true
	l.Logf(format, v...)
}

func (l *listener) end() string {
	for _, do := range l.after {
		do()
	}
	return strings.Join(l.said, "\n")
}

func shell(dir, script string) Command {
	return Command{Dir: dir, Argv: []string{"sh", "-c", script}}
}

// A process that continues the log of another one has its own output and exit code.
func TestStartedAgain(t *testing.T) {
	c := shell(t.TempDir(), "echo $GREETING; exit $CODE")
	c.Name = "p"
	for i, greeting := range []string{"hello", "hello again"} {
		c.Env = []string{"GREETING=" + greeting, fmt.Sprint("CODE=", i+3)}
		p := Start(t, c)
		if code := p.ExitCode(); code != i+3 || p.Tail(100) != greeting {
			t.Errorf("it exited with %d and said %q, want %d and %q", code, p.Tail(100), i+3, greeting)
		}
	}
	if text, err := os.ReadFile(c.Dir + "/p.log"); err != nil || string(text) != "hello\nhello again\n" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// A bare process does not receive Lockstep's variables of the test.
func TestBare(t *testing.T) {
	t.Setenv("LOCKSTEP_CANARY", "seen")
	c := shell(t.TempDir(), `echo "canary $LOCKSTEP_CANARY home $HOME own $LOCKSTEP_OWN"`)
	c.Env, c.Bare = []string{"LOCKSTEP_OWN=given"}, true
	p := Start(t, c)
	p.ExitCode()
	if want := "canary  home " + os.Getenv("HOME") + " own given"; p.Tail(1000) != want {
		t.Errorf("it said %q, want %q", p.Tail(1000), want)
	}
}

// The end of a test kills its processes, and prints their output if the test failed.
func TestKilledWithTheTest(t *testing.T) {
	for _, failed := range []bool{false, true} {
		l := &listener{TB: t, failed: failed}
		p := Start(l, shell(t.TempDir(), "echo still here; exec sleep 600"))
		Eventually(t, "output of the program", func() bool { return p.Output() != "" })
		if p.RSS() <= 0 {
			t.Error("it uses no memory")
		}
		if said := l.end(); strings.Contains(said, "still here") != failed {
			t.Errorf("failed: %v, and told: %q", failed, said)
		}
		if err := syscall.Kill(p.PID(), 0); err == nil {
			t.Error("it is still there")
		}
	}
}

// A race fails the test also if the program was killed and has no exit code.
func TestRaceFailsTheTest(t *testing.T) {
	l := &listener{TB: t}
	p := Start(l, shell(t.TempDir(), "echo WARNING: DATA RACE; exec sleep 600"))
	Eventually(t, "output of the program", func() bool { return p.Output() != "" })
	if said := l.end(); !l.failed || !strings.Contains(said, "has a data race") {
		t.Errorf("failed: %v, and told: %q", l.failed, said)
	}
}
