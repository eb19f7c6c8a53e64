package agent

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// sleeper starts a process as the target of faults.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c
}

// until waits until a process is in a state of proc(5), or is not any more.
func until(t *testing.T, pid int, state string, is bool) {
	t.Helper()
	for end := time.Now().Add(hang); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if _, self := os.Stat("/proc/self/stat"); self != nil {
			t.Skipf("no /proc here: %v", self)
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(stat), ") "+state+" ") == is {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("process %d is %s, want state %s: %t", pid, stat, state, is)
		}
	}
}

func found(t *testing.T, target plan.Target) *targetProcess {
	t.Helper()
	p, err := findTarget(target, "/proc", 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPauseIsUndone(t *testing.T) {
	c := sleeper(t)
	undo, err := found(t, plan.Target{Process: plan.Process{PID: c.Process.Pid}}).pause()
	if err != nil {
		t.Fatal(err)
	}
	until(t, c.Process.Pid, "T", true)
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	until(t, c.Process.Pid, "T", false)
}

// A guard detects the end of a killed agent only by the end of its pipe.
func TestGuardUndoesWhatADeadAgentDid(t *testing.T) {
	c := sleeper(t)
	g, err := newGuard(0, []string{"/bin/sh", "-c", "kill -CONT " + strconv.Itoa(c.Process.Pid)})
	if err != nil {
		t.Fatal(err)
	}
	_ = exec.Command("kill", "-STOP", strconv.Itoa(c.Process.Pid)).Run()
	until(t, c.Process.Pid, "T", true)
	g.pipe.Close()
	until(t, c.Process.Pid, "T", false)

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
		t.Error("a guard that was dismissed undid something")
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
		t.Error("not isolated")
	}
	if err := undo(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("not healed")
	}
	target.Isolate, target.Heal = []string{"false"}, []string{"touch", mark}
	if _, _, err := isolate(slog.New(slog.DiscardHandler), target); err == nil {
		t.Error("a command that fails isolated")
	}
	if _, err := os.Stat(mark); err != nil {
		t.Error("not healed after a failure")
	}
}

// The arguments and the output of commands may contain secrets, so they are only in the agent's own log.
func TestCommandsOfATargetStayInTheLog(t *testing.T) {
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	secretive := []string{"sh", "-c", "echo also-secret; exit 3", "hunter2"}
	what, undo, err := isolate(log, plan.Target{Name: "x", Isolate: []string{"true", "hunter2"}, Heal: secretive})
	if err != nil {
		t.Fatal(err)
	}
	failed := undo()
	_, _, err = isolate(log, plan.Target{Name: "x", Isolate: secretive, Heal: []string{"true"}})
	if failed == nil || err == nil {
		t.Fatalf("commands that fail: %v, %v", failed, err)
	}
	for _, text := range []string{what, failed.Error(), err.Error()} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "secret") {
			t.Errorf("%q would go into the record", text)
		}
	}
	if !strings.Contains(said.String(), "also-secret") {
		t.Errorf("the log says only %q", said.String())
	}
}

// A text that is in the command lines of several processes selects none of them, so that no wrong process is killed.
func TestSeveralProcessesAreNoTarget(t *testing.T) {
	word := strconv.FormatInt(time.Now().UnixNano(), 10)
	for range 2 {
		c := exec.Command("sleep", word)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = c.Process.Kill(), c.Wait() }()
		until(t, c.Process.Pid, "S", true)
	}
	target := plan.Target{Name: "x", Process: plan.Process{Command: "sleep " + word}}
	_, err := findTarget(target, "/proc", 0, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "2 processes") || !strings.Contains(err.Error(), "(sleep)") {
		t.Errorf("error %v, want one that lists both", err)
	}
}

// The command that starts the target also contains the text, but is not the target.
func TestKilledByCommandIsBackWhenItsProgramIs(t *testing.T) {
	word := strconv.FormatInt(time.Now().UnixNano(), 10) // differs from that of earlier runs
	c := exec.Command("sleep", word)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	go func() { _ = c.Wait() }()
	until(t, c.Process.Pid, "S", true)
	target := plan.Target{Name: "x", Process: plan.Process{Command: word},
		Start: []string{"/bin/sh", "-c", "sleep 0.5; exec sleep " + word}}
	x := found(t, target)
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
		t.Errorf("process %d counts as started again: it runs %q", pid, x.proc.program(pid))
	}
}

func TestFailedStartIsTold(t *testing.T) {
	c := exec.Command("sleep", "1000.03125")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = c.Wait() }()
	until(t, c.Process.Pid, "S", true)
	undo, err := found(t, plan.Target{Name: "x", Process: plan.Process{Command: "1000.03125"},
		Start: []string{"/nowhere/server", "1000.03125"}}).end(true)
	if err != nil {
		t.Fatal(err)
	}
	if err := undo(); err == nil || !strings.Contains(err.Error(), "127") {
		t.Errorf("a start command that does not exist: %v", err)
	}
}

// A stop command that ends the process and then fails must not leave the broker stopped: nothing else starts it again.
func TestStopThatFailsStartsAgain(t *testing.T) {
	const word = "1000.015625"
	c := exec.Command("sleep", word)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = c.Wait() }()
	until(t, c.Process.Pid, "S", true)
	x := found(t, plan.Target{Name: "x", Process: plan.Process{Command: word},
		Start: []string{"sleep", word}, Stop: []string{"/bin/sh", "-c", "kill " + strconv.Itoa(c.Process.Pid) + "; exit 3"}})
	undo, err := x.end(false)
	if err == nil || undo != nil || !strings.Contains(err.Error(), `target "x": its stop command failed: exit status 3`) {
		t.Errorf("a stop command that fails: %v", err)
	}
	pid, _ := x.find()
	if pid == 0 || pid == x.pid {
		t.Fatalf("process %d runs, want a new one", pid)
	}
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}
