package controller_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

func TestRunFromSubmissionToDirectory(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		run := aRun(nil, func(c *plan.Cell) { c.Workload.Message.Size = 300 })
		w := l.run(run, nil, nil)
		if w.end.Reason != wire.EndDone || w.end.Ran != 2 || w.end.Failed != 0 {
			t.Errorf("the run ended with %+v", w.end)
		}
		if got, want := w.kinds(), "accepted task outcome task outcome end"; got != want {
			t.Errorf("the follower saw %q, want %q", got, want)
		}
		for _, o := range w.outcomes() {
			if o.Verdict != plan.Valid {
				t.Errorf("task %s is %s: %v", o.Task, o.Verdict, o.Reasons)
			}
			if o.Ledger.Sent != 4000 || o.Ledger.Confirmed != 4000 || o.Ledger.Received != 4000 ||
				o.Ledger.Lost+o.Ledger.Duplicated+o.Ledger.Unknown != 0 {
				t.Errorf("the delivery accounting of %s is %+v, want 4000 sent, confirmed and received", o.Task, o.Ledger)
			}
			if len(o.Agents) != 4 || o.Agents[0].Agent != "a1" || o.Agents[3].Phase != plan.PhaseTeardown {
				t.Errorf("the agents of %s are %+v", o.Task, o.Agents)
			}
		}
		dir, err := runs.Open(w.root, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := dir.Outcomes()
		if err != nil || len(stored) != 2 {
			t.Errorf("%d outcomes on disk, %v", len(stored), err)
		}
	})
}

func TestTooFewAgentsIsSaidBeforeAnythingRuns(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2")
		w := l.run(aRun(nil, nil), nil, nil)
		if w.end.Reason != wire.EndNoAgents ||
			!strings.Contains(w.end.Detail, "2 available (a1, a2), 4 required") {
			t.Errorf("the run ended with %+v, want that 2 agents are there and 4 needed", w.end)
		}
		if got := w.kinds(); got != "accepted end" {
			t.Errorf("the follower saw %q: something ran", got)
		}
	})
}

func TestLostAgentIsNoticedAndTheRunGoesOn(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4", "a5")
		l.await(5)
		small := func(c *plan.Cell) { c.Workload.Message.Size = 200 }
		var killed, noticed time.Time
		w := l.run(aRun(long, small), nil, func(p controller.Progress) {
			switch {
			case p.Kind == liveMetrics && killed.IsZero():
				killed = time.Now()
				l.kill("a2")
			case p.Kind == wire.AgentLost:
				noticed = p.At
			}
		})
		// The time until the controller noticed, not until the follower did. The last heartbeat was at most one
		// interval before the kill. The controller checks for silent agents at its own times.
		const looks = wire.HeartbeatEvery / 2 // see silenceEvery
		if took := noticed.Sub(killed); took > wire.LostAfter+looks || took < wire.LostAfter-wire.HeartbeatEvery {
			t.Errorf("the loss was noticed after %v, want %v after the last heartbeat, and at most %v later", took,
				wire.LostAfter, looks)
		}
		all := w.outcomes()
		if len(all) != 2 || w.end.Reason != wire.EndDone || w.end.Failed != 0 {
			t.Fatalf("%d outcomes, end %+v: the run did not go on", len(all), w.end)
		}
		if kindsOf(all[0].FailedAttempts) != "agent-lost" || all[0].Verdict != plan.Valid ||
			all[0].Agents[1].Agent != "a3" {
			t.Errorf("the first task is %s %v after %+v, with %+v: want it repeated once, without a2", all[0].Verdict,
				all[0].Reasons, all[0].FailedAttempts, all[0].Agents)
		}
		o := firstAttempt(t, w, all[0].Task)
		if o.Verdict != plan.Unknown || !strings.Contains(strings.Join(o.Reasons, "; "), "a2") {
			t.Errorf("the task is %s because of %q: want unknown, naming the agent", o.Verdict, o.Reasons)
		}
		if a := o.Agents[1]; !a.Lost || a.Agent != "a2" || a.Phase != plan.PhaseMeasure {
			t.Errorf("the lost agent is recorded as %+v, want lost in measure", a)
		}
		if o.Ledger.Sent == 0 || o.Ledger.Received == 0 {
			t.Errorf("what the others had measured is gone: %+v", o.Ledger)
		}
		if all[1].Verdict != plan.Valid || all[1].Agents[1].Agent != "a3" {
			t.Errorf("the next task is %s %v with %+v", all[1].Verdict, all[1].Reasons, all[1].Agents)
		}
	})
}

// firstAttempt returns the outcome of a task's only failed attempt.
func firstAttempt(t *testing.T, w watched, task string) plan.Outcome {
	t.Helper()
	dir, err := runs.Open(w.root, w.id)
	if err != nil {
		t.Fatal(err)
	}
	all, err := attemptsOf(dir, task)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d attempts of task %s are kept besides the one that counts, %v: want one", len(all), task, err)
	}
	return all[0]
}

func TestWhenTooFewRemainCellsFailAfterGrace(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		w := l.run(aRun(long, nil, nil), nil, func(p controller.Progress) {
			if p.Kind == wire.TaskStarted && p.N == 1 {
				l.agents["a1"].stop() // an orderly leave during the cell
			}
		})
		all := w.outcomes()
		if len(all) != 3 || w.end.Reason != wire.EndDone || w.end.Failed != 3 {
			t.Fatalf("%d outcomes and %+v: a cell without agents must fail, not hang", len(all), w.end)
		}
		for _, o := range all[1:] {
			if text := strings.Join(o.Reasons, "; "); o.Verdict != plan.Unknown || !strings.Contains(text, "3 available") ||
				!strings.Contains(text, "4 required") {
				t.Errorf("the outcome is %s because of %q", o.Verdict, text)
			}
		}
		if !strings.Contains(w.kinds(), "waiting") {
			t.Errorf("no event that the run waits: %s", w.kinds())
		}
	})
}

func TestBrokerThatIsNotThere(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		const address = "amqp://me:hunter2@127.0.0.1:1"
		broken := func(where string) func(*plan.Cell) {
			return func(c *plan.Cell) {
				c.Broker.Driver = "faulty"
				c.Broker.Options, _ = json.Marshal(map[string]string{"fail": where, "url": address})
			}
		}
		w := l.run(aRun(broken("open"), broken("setup"), broken("consumer"), broken("publisher"), nil), nil, nil)
		all := w.outcomes()
		if len(all) != 5 || w.end.Failed != 4 {
			t.Fatalf("%d outcomes, end %+v", len(all), w.end)
		}
		for i, words := range []string{"open session on agent", "declare topology", "connect consumers on agent",
			"connect publishers on agent"} {
			text := strings.Join(all[i].Reasons, "; ")
			if all[i].Verdict != plan.Unknown || !strings.Contains(text, words) ||
				!strings.Contains(text, "127.0.0.1:1: connection refused") {
				t.Errorf("task %d is %s because of %q, want %q, the address and the cause", i, all[i].Verdict, text,
					words)
			}
		}
		if all[4].Verdict != plan.Valid {
			t.Errorf("the run did not go on after failures: %v", all[4].Reasons)
		}
		if strings.Contains(everything(t, w.root), "hunter2") {
			t.Error("the broker's password is in the run directory")
		}
		if open := faultyAt(address).open.Load(); open != 0 {
			t.Errorf("%d sessions were left open", open)
		}
		if n := faultyAt(address).teardowns.Load(); n != 3 {
			t.Errorf("%d teardowns for the 3 tasks whose session could be opened", n)
		}
	})
}
