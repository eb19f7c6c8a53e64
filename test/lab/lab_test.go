package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	faulty := [][]string{
		nil, {"walk"}, {"run", "rabbitmq"}, {"run", "--"}, {"up", "--", "true"}, {"up", "kafkaesque"},
		{"up", "rabbitmq", "--", "true"},
		{"up", "--kep", "rabbitmq"}, {"up", "all", "kafkaesque"}, {"list", "rabbitmq"}, {"up"}, {"install"},
		{"install", "nats", "--", "true"},
	}
	for _, args := range faulty {
		if _, err := parse(args); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
	if _, err := parse([]string{"run", "--", "true"}); err != nil {
		t.Errorf("a lab whose command starts its own brokers: %v", err)
	}
	o, err := parse([]string{"run", "--keep", "rabbitmq3", "rabbitmq", "--", "go", "test", "--", "x"})
	if err != nil {
		t.Fatal(err)
	}
	if len(o.parts) != 2 || o.parts[0].Name != "rabbitmq3" || !o.keep ||
		strings.Join(o.command, " ") != "go test -- x" {
		t.Errorf("the command line is read as %+v", o)
	}
}

func TestEveryPartOnce(t *testing.T) {
	seen := map[string]int{}
	for _, names := range [][]string{{"kafka", "all", "kafka"}, {"tools"}} {
		chosen, err := choose(names)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range chosen {
			seen[p.Name]++
			if p.Tool != (names[0] == "tools") {
				t.Errorf("%s is among %v", p.Name, names)
			}
		}
	}
	for _, p := range parts {
		if seen[p.Name] != 1 {
			t.Errorf("%s is chosen %d times", p.Name, seen[p.Name])
		}
	}
}

// Child processes that a broker's start script leaves running would hold ports and memory.
func TestStopEndsChildrenToo(t *testing.T) {
	dir := t.TempDir()
	p := &Process{
		Name: "shell", Dir: dir, Log: filepath.Join(dir, "log"),
		Command: []string{"/bin/sh", "-c", "trap '' TERM; sleep 600 & echo $! > child; wait; wait"},
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var child int
	for deadline := time.Now().Add(time.Minute); child == 0; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(dir, "child"))
		child, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		if time.Now().After(deadline) {
			p.Kill()
			t.Fatal("the shell did not start its child")
		}
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
	p.Kill()
	if err := p.Check(); err == nil {
		t.Error("a killed process is taken for a running one")
	}
	for deadline := time.Now().Add(time.Minute); running(child); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d, a child, is left", child)
		}
	}
}

// running reports whether a process exists and is not a zombie.
func running(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func TestCommandsExitCode(t *testing.T) {
	interrupts := make(chan os.Signal, 1)
	var out bytes.Buffer
	code, err := runCommand([]string{"/bin/sh", "-c", "echo $GREETING; exit 7"}, []string{"GREETING=hello"}, interrupts,
		&out, &out)
	if code != 7 || err != nil || out.String() != "hello\n" {
		t.Errorf("code %d, error %v, output %q", code, err, out.String())
	}
	interrupts <- syscall.SIGINT
	code, _ = runCommand([]string{"/bin/sh", "-c", "trap 'kill $!; exit 9' INT; sleep 60 & wait"}, nil, interrupts,
		&out, &out)
	if code == 0 {
		t.Error("an interrupted command's code is 0")
	}
}
