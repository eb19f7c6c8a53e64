package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// startSleep starts a process as the target of faults.
func startSleep(t *testing.T) *exec.Cmd {
	t.Helper()
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c
}

// awaitProcessState waits until a process is in a state of proc(5), or, if want is false, in another one.
func awaitProcessState(t *testing.T, pid int, state string, want bool) {
	t.Helper()
	for end := time.Now().Add(waitLimit); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if _, self := os.Stat("/proc/self/stat"); self != nil {
			t.Skipf("needs /proc: %v", self)
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(stat), ") "+state+" ") == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("process %d: got %s, want state %s: %t", pid, stat, state, want)
		}
	}
}

func mustFindTarget(t *testing.T, target plan.Target) *targetProcess {
	t.Helper()
	p, err := findTarget(target, "/proc", 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPauseIsUndone(t *testing.T) {
	c := startSleep(t)
	undo, err := mustFindTarget(t, plan.Target{Process: plan.Process{PID: c.Process.Pid}}).pause()
	if err != nil {
		t.Fatal(err)
	}
	awaitProcessState(t, c.Process.Pid, "T", true)
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	awaitProcessState(t, c.Process.Pid, "T", false)
}

// A guard detects the end of a killed agent only by the end of its pipe.
func TestGuardRevertsFaultsOfADeadAgent(t *testing.T) {
	c := startSleep(t)
	g, err := newGuard(0, []string{"/bin/sh", "-c", "kill -CONT " + strconv.Itoa(c.Process.Pid)})
	if err != nil {
		t.Fatal(err)
	}
	_ = exec.Command("kill", "-STOP", strconv.Itoa(c.Process.Pid)).Run()
	awaitProcessState(t, c.Process.Pid, "T", true)
	g.pipe.Close()
	awaitProcessState(t, c.Process.Pid, "T", false)

	mark := t.TempDir() + "/mark"
	g, err = newGuard(0, []string{"touch", mark})
	if err != nil {
		t.Fatal(err)
	}
	g.dismiss()
	if err := <-g.ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a dismissed guard executed its command")
	}
}

// Commands of targets do not get the agent's secrets, or the settings of its own runtime.
func TestCommandsOfTargetsGetNoVariablesOfTheAgent(t *testing.T) {
	t.Setenv("LOCKSTEP_TOKEN", "top-secret")
	t.Setenv("BROKER_PASSWORD", "top-secret")
	t.Setenv("GOMEMLIMIT", "1GiB")
	dir := t.TempDir()
	g, err := newGuard(0, []string{"/bin/sh", "-c", "env >" + dir + "/undo"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-g.fire(), runCommand(slog.New(slog.DiscardHandler),
		[]string{"/bin/sh", "-c", "env >" + dir + "/stop"})); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"undo", "stop"} {
		env, err := os.ReadFile(dir + "/" + name)
		if err != nil || strings.Contains(string(env), "top-secret") || strings.Contains(string(env), "GOMEMLIMIT") ||
			!strings.Contains(string(env), "PATH=") {
			t.Errorf("variables of the command %s: got %s, error %v, want PATH, and none of the agent's", name, env, err)
		}
	}
}

func TestIsolateHealsAlsoWhenItFails(t *testing.T) {
	mark := t.TempDir() + "/mark"
	target := plan.Target{Name: "x", Isolate: []string{"touch", mark}, Heal: []string{"rm", mark}}
	_, undo, err := isolate(slog.New(slog.DiscardHandler), target)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Error("the isolate command was not executed")
	}
	if err := undo(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the heal command was not executed")
	}
	target.Isolate, target.Heal = []string{"false"}, []string{"touch", mark}
	if _, _, err := isolate(slog.New(slog.DiscardHandler), target); err == nil {
		t.Error("isolate with a failing command: got no error")
	}
	if _, err := os.Stat(mark); err != nil {
		t.Error("the heal command was not executed after a failed isolate command")
	}
}

// The arguments and the output of commands may contain secrets, so they are only in the agent's own log.
func TestCommandsOfATargetStayInTheLog(t *testing.T) {
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	failing := []string{"sh", "-c", "echo also-secret; exit 3", "hunter2"}
	what, undo, err := isolate(log, plan.Target{Name: "x", Isolate: []string{"true", "hunter2"}, Heal: failing})
	if err != nil {
		t.Fatal(err)
	}
	failed := undo()
	_, _, err = isolate(log, plan.Target{Name: "x", Isolate: failing, Heal: []string{"true"}})
	if failed == nil || err == nil {
		t.Fatalf("failing commands: got errors %v, %v, want two errors", failed, err)
	}
	for _, text := range []string{what, failed.Error(), err.Error()} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "secret") {
			t.Errorf("got %q, want no arguments and no output: the text is stored in the record", text)
		}
	}
	if !strings.Contains(logged.String(), "also-secret") {
		t.Errorf("log: got %q, want the output of the command", logged.String())
	}
}

// A text that matches the command lines of several processes selects none of them, so that no wrong process is killed.
func TestSeveralProcessesAreNoTarget(t *testing.T) {
	word := strconv.FormatInt(time.Now().UnixNano(), 10)
	for range 2 {
		c := exec.Command("sleep", word)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = c.Process.Kill(), c.Wait() }()
		awaitProcessState(t, c.Process.Pid, "S", true)
	}
	target := plan.Target{Name: "x", Process: plan.Process{Command: "sleep " + word}}
	_, err := findTarget(target, "/proc", 0, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "2 processes") || !strings.Contains(err.Error(), "(sleep)") {
		t.Errorf("got error %v, want one that lists both processes", err)
	}
}

// The command that starts the target also contains the text, but is not the target.
func TestRestartIsDetectedByTheProgram(t *testing.T) {
	word := strconv.FormatInt(time.Now().UnixNano(), 10) // differs from that of earlier runs
	c := exec.Command("sleep", word)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	go func() { _ = c.Wait() }()
	awaitProcessState(t, c.Process.Pid, "S", true)
	target := plan.Target{Name: "x", Process: plan.Process{Command: word},
		Start: []string{"/bin/sh", "-c", "sleep 0.5; exec sleep " + word}}
	x := mustFindTarget(t, target)
	undo, err := x.end(true)
	if err != nil {
		t.Fatal(err)
	}
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	pid, _ := x.find()
	if p, err := os.FindProcess(pid); err == nil && pid > 1 {
		t.Cleanup(func() { _ = p.Kill() })
	}
	if x.proc.program(pid) != x.exe || pid == x.pid {
		t.Errorf("restarted process: got %d with program %q, want a new process with program %q", pid,
			x.proc.program(pid), x.exe)
	}
}

func TestFailedStartIsReported(t *testing.T) {
	c := exec.Command("sleep", "1000.03125")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = c.Wait() }()
	awaitProcessState(t, c.Process.Pid, "S", true)
	undo, err := mustFindTarget(t, plan.Target{Name: "x", Process: plan.Process{Command: "1000.03125"},
		Start: []string{"/nowhere/server", "1000.03125"}}).end(true)
	if err != nil {
		t.Fatal(err)
	}
	if err := undo(); err == nil || !strings.Contains(err.Error(), "127") {
		t.Errorf("missing start command: got error %v, want exit status 127", err)
	}
}

// After a stop command that ends the process and then fails, the broker is started again.
func TestStopThatFailsStartsAgain(t *testing.T) {
	const word = "1000.015625"
	c := exec.Command("sleep", word)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = c.Wait() }()
	awaitProcessState(t, c.Process.Pid, "S", true)
	x := mustFindTarget(t, plan.Target{Name: "x", Process: plan.Process{Command: word},
		Start: []string{"sleep", word}, Stop: []string{"/bin/sh", "-c", "kill " + strconv.Itoa(c.Process.Pid) + "; exit 3"}})
	undo, err := x.end(false)
	if err == nil || undo != nil || !strings.Contains(err.Error(), `target "x": its stop command failed: exit status 3`) {
		t.Errorf("failing stop command: got error %v, want exit status 3 and no undo", err)
	}
	pid, _ := x.find()
	if pid == 0 || pid == x.pid {
		t.Fatalf("process after a failed stop command: got %d, want a new one", pid)
	}
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}
