package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A signal ends a lab whose brokers are still starting, and all its processes.
func TestSignalWhileStarting(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	pid := filepath.Join(t.TempDir(), "pid")
	o := order{parts: []Part{shells("slow", "echo $$ > "+pid+"; rm -f $FILE; sleep 600", 1)}, command: []string{"true"}}
	o.parts[0].Plan = neverReady(o.parts[0].Plan)
	interrupts := make(chan os.Signal, 1)
	go func() {
		waitForNumber(t, pid)
		interrupts <- syscall.SIGTERM
	}()
	code, err := o.execute(interrupts, io.Discard, io.Discard)
	if code != 130 || err == nil {
		t.Errorf("code %d, error %v", code, err)
	}
	if number := waitForNumber(t, pid); running(number) {
		t.Errorf("process %d is left", number)
	}
	left, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "lockstep-lab", "labs", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("folders %v are left, %v", left, err)
	}
}

func neverReady(plan planFunc) planFunc {
	return func(s *site, dir string, ports []int) (*Plan, error) {
		p, err := plan(s, dir, ports)
		if err == nil {
			p.Processes[0].Ready = func(context.Context) error { return context.DeadlineExceeded }
		}
		return p, err
	}
}

// A killed lab leaves no broker behind, and the next lab removes its files.
func TestKilledLab(t *testing.T) {
	if dir := os.Getenv("LOCKSTEP_TEST_KILLED_LAB"); dir != "" {
		beKilled(t, dir)
		return
	}
	dir := t.TempDir()
	lab := exec.Command(os.Args[0], "-test.run", "^TestKilledLab$")
	lab.Env = append(os.Environ(), "LOCKSTEP_TEST_KILLED_LAB="+dir, "XDG_CACHE_HOME="+dir)
	var out bytes.Buffer
	lab.Stdout, lab.Stderr = &out, &out
	if err := lab.Start(); err != nil {
		t.Fatal(err)
	}
	broker := waitForNumber(t, filepath.Join(dir, "pid"))
	if !running(broker) {
		t.Error("the broker does not run")
	}
	_ = lab.Process.Kill()
	_ = lab.Wait()
	for deadline := time.Now().Add(time.Minute); running(broker); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(broker, syscall.SIGKILL)
			t.Fatalf("process %d is left; the lab said: %s", broker, out.String())
		}
	}

	t.Setenv("XDG_CACHE_HOME", dir)
	pattern := filepath.Join(dir, "lockstep-lab", "labs", "*")
	left, _ := filepath.Glob(pattern)
	if len(left) != 1 {
		t.Fatalf("the killed lab's folders: %v", left)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(left[0], owner), old, old); err != nil {
		t.Fatal(err)
	}
	s, err := newSite(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(s.dir, owner), old, old); err != nil {
		t.Fatal(err)
	}
	another, err := newSite(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if now, _ := filepath.Glob(pattern); len(now) != 2 {
		t.Errorf("beside two labs that live there are %v", now)
	}
	for _, s := range []*site{s, another} {
		if err := s.close(false); err != nil {
			t.Error(err)
		}
	}
}

// beKilled runs the lab that the test kills.
func beKilled(t *testing.T, dir string) {
	s, err := newSite(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{
		Name: "broker", Dir: s.dir, Log: filepath.Join(s.dir, "log"),
		Command: []string{"/bin/sh", "-c", "echo $$ > " + filepath.Join(dir, "pid") + "; exec sleep 600"},
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Minute)
}

// waitForNumber waits until a file has a process number.
func waitForNumber(t *testing.T, file string) int {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(file)
		if number, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return number
		}
		if time.Now().After(deadline) {
			t.Errorf("no number in %s", file)
			return 0
		}
	}
}
