package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/test/process"
)

func start(t *testing.T, dir, program string, args ...string) *process.Process {
	t.Helper()
	return startWith(t, nil, dir, program, args...)
}

// startWith starts a program with additional environment variables (NAME=value).
func startWith(t *testing.T, variables []string, dir, program string, args ...string) *process.Process {
	t.Helper()
	return process.Start(t, process.Command{Dir: dir, Env: variables,
		Argv: append([]string{filepath.Join(programs, program)}, args...)})
}

// fleet is a controller with agents, each a separate process.
type fleet struct {
	t      *testing.T
	dir    string
	url    string
	agents map[string]*process.Process
}

func newFleet(t *testing.T, agents ...string) *fleet {
	t.Helper()
	return newFleetOf(t, nil, agents...)
}

// newFleetOf starts a fleet. variables are additional environment variables (NAME=value) of some agents.
func newFleetOf(t *testing.T, variables map[string][]string, agents ...string) *fleet {
	t.Helper()
	port := freePort(t)
	f := &fleet{t: t, dir: t.TempDir(), url: "nats://127.0.0.1:" + port, agents: map[string]*process.Process{}}
	start(t, f.dir, "controller", "--open", "--listen", "127.0.0.1:"+port)
	for _, name := range agents {
		process.Eventually(t, "a response of the controller", func() bool {
			_, err := exec.Command(filepath.Join(programs, "ctl"), "fleet", "agents", "--server", f.url).Output()
			return err == nil
		})
		f.agents[name] = startWith(t, variables[name], f.dir, "agent", "--server", f.url, "--name", name)
	}
	process.Eventually(t, "all agents listed", func() bool {
		out, _ := exec.Command(filepath.Join(programs, "ctl"), "fleet", "agents", "--server", f.url).Output()
		return !slices.ContainsFunc(agents, func(name string) bool {
			return !strings.Contains(string(out),
				"\n"+name+" ")
		})
	})
	return f
}

// run starts ctl run with a matrix of the given cell and axes.
func (f *fleet) run(rest string) *process.Process {
	f.t.Helper()
	rest = strings.Replace(rest, "cell: {", `cell: {connect: "2m", `, 1)
	text := fmt.Sprintf("package matrix\nname: \"fault\"\ngrace: \"10s\"\nbrokers: nats: {driver: \"nats\", options: {urls: [%q], storage: \"memory\"}}\n%s\n"+
		"tables: [{rows: [\"mode\"], values: [\"publish.rate\", \"lost\", \"unknown\"]}]\n", broker, rest)
	return start(f.t, f.dir, "ctl", "run", "--server", f.url, writeMatrix(f.t, f.dir, text))
}

func (f *fleet) outcomes() []plan.Outcome {
	f.t.Helper()
	files, err := filepath.Glob(filepath.Join(f.dir, "runs", "latest", "tasks", "*", "outcome.json"))
	if err != nil {
		f.t.Fatal(err)
	}
	var all []plan.Outcome
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.t.Fatal(err)
		}
		var o plan.Outcome
		if err := json.Unmarshal(data, &o); err != nil {
			f.t.Fatalf("%s: %v", file, err)
		}
		all = append(all, o)
	}
	return all
}

// isMeasuring reports whether a task is measuring: its record on disk has more than a few lines.
func (f *fleet) isMeasuring() bool {
	files, _ := filepath.Glob(filepath.Join(f.dir, "runs", "latest", "tasks", "*", "snapshots.jsonl"))
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && bytes.Count(data, []byte("\n")) >= 4 {
			return true
		}
	}
	return false
}

const twoCells = `
axes: mode: ["confirm-window", "confirm-each"]
cell: {axis: _, publishers: {mode: axis.mode, rate: 500, persistent: false}, warmup: "200ms", measure: "10s"}
`

// An agent is killed during the measurement while another one is free. The loss is detected within 5 s. The record
// names the agent, the phase and the unknown messages. The attempt is stored but does not count, and both cells run on
// the other agents.
func TestAgentKilledInMidCell(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "a1", "a2", "a3")
	ctl := f.run(twoCells)
	process.Eventually(t, "the start of the measurement", f.isMeasuring)
	f.agents["a1"].Kill()
	killed := time.Now()
	process.Eventually(t, "agent-lost in the output of ctl", func() bool {
		return strings.Contains(ctl.Output(),
			"agent-lost")
	})
	t.Logf("time from the kill to the detection of the lost agent: %v", time.Since(killed).Round(10*time.Millisecond))
	ctl.Exits(0)
	verdicts := map[plan.Verdict]int{}
	for _, o := range f.outcomes() {
		verdicts[o.Verdict]++
		if o.Verdict == plan.Valid {
			continue
		}
		if !strings.Contains(strings.Join(o.Reasons, " "), "a1") {
			t.Errorf("reasons: got %q, want the name of the killed agent, a1", o.Reasons)
		}
		lost := 0
		for _, a := range o.Agents {
			if a.Lost && a.Agent == "a1" && a.Phase == plan.PhaseMeasure {
				lost++
			}
		}
		if lost != 1 {
			t.Errorf("agents: got %+v, want a1 lost in phase measure", o.Agents)
		}
		if o.Ledger.Sent == 0 {
			t.Error("sent messages of the failed attempt: got 0, want those from before the kill")
		}
	}
	if verdicts[plan.Unknown] != 1 || verdicts[plan.Valid] != 2 {
		t.Errorf("verdicts: got %v, want 1 unknown (the failed attempt) and 2 valid", verdicts)
	}
}

// If too few agents are left, the repeated cell and the remaining ones wait for the grace period, and then fail with
// that reason.
func TestTooFewAgentsRemain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "a1", "a2")
	ctl := f.run(twoCells)
	process.Eventually(t, "the start of the measurement", f.isMeasuring)
	f.agents["a2"].Kill()
	ctl.Exits(3)
	few := 0
	for _, o := range f.outcomes() {
		if strings.Contains(strings.Join(o.Reasons, " "), "agents") && o.Ledger.Sent == 0 {
			few++
		}
	}
	if few != 2 {
		t.Errorf("outcomes that failed because of too few agents: got %d, want 2; output of ctl:\n%s", few,
			ctl.Output())
	}
}

// One Ctrl-C ends the run cleanly, and its outcomes remain stored. The run can be resumed.
func TestInterruptAndResume(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "a1", "a2")
	ctl := f.run(strings.Replace(twoCells, `"10s"`, `"5s"`, 1))
	process.Eventually(t, "the outcome of the first cell", func() bool { return len(f.outcomes()) == 1 })
	process.Eventually(t, "the first cell in the output of ctl", func() bool {
		return strings.Count(ctl.Output(),
			"[") >= 1
	})
	time.Sleep(500 * time.Millisecond) // an arbitrary time in the second cell
	ctl.Signal(os.Interrupt)
	ctl.Exits(130)
	if n := len(f.outcomes()); n != 1 {
		t.Fatalf("outcomes after the interrupt: got %d, want 1", n)
	}
	first := f.outcomes()[0].Ended
	again := start(t, f.dir, "ctl", "run", "--server", f.url, "--resume", "latest")
	again.Exits(0)
	all := f.outcomes()
	if len(all) != 2 {
		t.Fatalf("outcomes after the resumed run: got %d, want 2", len(all))
	}
	if !all[0].Ended.Equal(first) && !all[1].Ended.Equal(first) {
		t.Errorf("end times of the outcomes after the resumed run: got %v and %v, want %v among them", all[0].Ended,
			all[1].Ended, first)
	}
}

// After one signal, ctl waits until a hanging agent is lost. A second signal ends it at once.
func TestSecondInterruptLeavesAtOnce(t *testing.T) {
	t.Parallel()
	stop := func(signals int) time.Duration {
		f := newFleet(t, "a1", "a2")
		ctl := f.run(twoCells)
		process.Eventually(t, "the start of the measurement", f.isMeasuring)
		f.agents["a1"].Signal(syscall.SIGSTOP)
		defer f.agents["a1"].Signal(syscall.SIGCONT)
		begin := time.Now()
		for range signals {
			ctl.Signal(os.Interrupt)
			process.Eventually(t, "stopping in the output of ctl", func() bool {
				return strings.Contains(ctl.Output(),
					"stopping")
			})
		}
		ctl.Exits(130)
		return time.Since(begin)
	}
	one, two := stop(1), stop(2)
	t.Logf("time until ctl exits: %v after one signal, %v after two", one, two)
	if two >= one {
		t.Errorf("time until ctl exits after two signals: got %v, want less than after one, %v", two, one)
	}
}
