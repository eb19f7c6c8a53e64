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
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		run := newRun(nil, func(c *plan.Cell) { c.Workload.Message.Size = 300 })
		w := l.run(run, nil, nil)
		if w.end.Reason != wire.EndDone || w.end.Ran != 2 || w.end.Failed != 0 {
			t.Errorf("end of the run: got %+v, want reason %s, 2 tasks, 0 failed", w.end, wire.EndDone)
		}
		if got, want := w.kinds(), "accepted task outcome task outcome end"; got != want {
			t.Errorf("events: got %q, want %q", got, want)
		}
		for _, o := range w.outcomes() {
			if o.Verdict != plan.Valid {
				t.Errorf("task %s: got verdict %s, want valid: %v", o.Task, o.Verdict, o.Reasons)
			}
			if o.Ledger.Sent != 4000 || o.Ledger.Confirmed != 4000 || o.Ledger.Received != 4000 ||
				o.Ledger.Lost+o.Ledger.Duplicated+o.Ledger.Unknown != 0 {
				t.Errorf("delivery accounting of %s: got %+v, want 4000 sent, confirmed and received", o.Task, o.Ledger)
			}
			if len(o.Agents) != 4 || o.Agents[0].Agent != "a1" || o.Agents[3].Phase != plan.PhaseTeardown {
				t.Errorf("agents of %s: got %+v, want a1 to a4 in phase %s", o.Task, o.Agents, plan.PhaseTeardown)
			}
		}
		dir, err := runs.Open(w.root, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := dir.Outcomes()
		if err != nil || len(stored) != 2 {
			t.Errorf("outcomes in the run directory: got %d, error %v, want 2", len(stored), err)
		}
	})
}

func TestTooFewAgentsAreReportedBeforeTheFirstTask(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2")
		w := l.run(newRun(nil, nil), nil, nil)
		if w.end.Reason != wire.EndNoAgents ||
			!strings.Contains(w.end.Detail, "2 available (a1, a2), 4 required") {
			t.Errorf("end of the run: got %+v, want 2 agents available, 4 required", w.end)
		}
		if got := w.kinds(); got != "accepted end" {
			t.Errorf("events: got %q, want \"accepted end\"", got)
		}
	})
}

func TestRunContinuesAfterALostAgent(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4", "a5")
		l.awaitAgents(5)
		small := func(c *plan.Cell) { c.Workload.Message.Size = 200 }
		var killed, reported time.Time
		w := l.run(newRun(longCell, small), nil, func(p controller.Progress) {
			switch {
			case p.Kind == liveMetrics && killed.IsZero():
				killed = time.Now()
				l.killAgent("a2")
			case p.Kind == wire.AgentLost:
				reported = p.At
			}
		})
		// The time of the event is that at which the controller detected the loss. The last heartbeat was at most one
		// interval before the kill. The controller checks for silent agents in its own interval.
		const interval = wire.HeartbeatEvery / 2 // see silenceEvery
		if elapsed := reported.Sub(killed); elapsed > wire.LostAfter+interval ||
			elapsed < wire.LostAfter-wire.HeartbeatEvery {
			t.Errorf("time from the kill to the event: got %v, want %v after the last heartbeat, at most %v later",
				elapsed, wire.LostAfter, interval)
		}
		all := w.outcomes()
		if len(all) != 2 || w.end.Reason != wire.EndDone || w.end.Failed != 0 {
			t.Fatalf("got %d outcomes, end %+v, want 2, no failed task", len(all), w.end)
		}
		if failureKinds(all[0].FailedAttempts) != "agent-lost" || all[0].Verdict != plan.Valid ||
			all[0].Agents[1].Agent != "a3" {
			t.Errorf("first task: got %s %v, failed attempts %+v, agents %+v, want it repeated once, without a2",
				all[0].Verdict, all[0].Reasons, all[0].FailedAttempts, all[0].Agents)
		}
		o := firstAttempt(t, w, all[0].Task)
		if o.Verdict != plan.Unknown || !strings.Contains(strings.Join(o.Reasons, "; "), "a2") {
			t.Errorf("first attempt: got verdict %s, reasons %q, want unknown with the agent's name", o.Verdict,
				o.Reasons)
		}
		if a := o.Agents[1]; !a.Lost || a.Agent != "a2" || a.Phase != plan.PhaseMeasure {
			t.Errorf("lost agent: got %+v, want a2 lost in measure", a)
		}
		if o.Ledger.Sent == 0 || o.Ledger.Received == 0 {
			t.Errorf("delivery accounting of the first attempt: got %+v, want the messages of the other agents",
				o.Ledger)
		}
		if all[1].Verdict != plan.Valid || all[1].Agents[1].Agent != "a3" {
			t.Errorf("next task: got %s %v, agents %+v, want valid with a3", all[1].Verdict, all[1].Reasons,
				all[1].Agents)
		}
	})
}

// firstAttempt returns the outcome of a task's only failed attempt.
func firstAttempt(t *testing.T, w followedRun, task string) plan.Outcome {
	t.Helper()
	dir, err := runs.Open(w.root, w.id)
	if err != nil {
		t.Fatal(err)
	}
	all, err := attemptsOf(dir, task)
	if err != nil || len(all) != 1 {
		t.Fatalf("stored failed attempts of task %s: got %d, error %v, want 1", task, len(all), err)
	}
	return all[0]
}

func TestCellsWithoutAgentsFailAfterGrace(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		w := l.run(newRun(longCell, nil, nil), nil, func(p controller.Progress) {
			if p.Kind == wire.TaskStarted && p.N == 1 {
				l.agents["a1"].stop() // an orderly stop during the cell
			}
		})
		all := w.outcomes()
		if len(all) != 3 || w.end.Reason != wire.EndDone || w.end.Failed != 3 {
			t.Fatalf("got %d outcomes, end %+v, want 3 outcomes, 3 failed", len(all), w.end)
		}
		for _, o := range all[1:] {
			if text := strings.Join(o.Reasons, "; "); o.Verdict != plan.Unknown || !strings.Contains(text, "3 available") ||
				!strings.Contains(text, "4 required") {
				t.Errorf("outcome: got verdict %s, reasons %q, want unknown with 3 available, 4 required", o.Verdict,
					text)
			}
		}
		if !strings.Contains(w.kinds(), "waiting") {
			t.Errorf("events: got %s, want waiting among them", w.kinds())
		}
	})
}

func TestUnreachableBrokerAtEachStep(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		const address = "amqp://me:hunter2@127.0.0.1:1"
		broken := func(where string) func(*plan.Cell) {
			return func(c *plan.Cell) {
				c.Broker.Driver = "unreachable"
				c.Broker.Options, _ = json.Marshal(map[string]string{"fail": where, "url": address})
			}
		}
		w := l.run(newRun(broken("open"), broken("setup"), broken("consumer"), broken("publisher"), nil), nil, nil)
		all := w.outcomes()
		if len(all) != 5 || w.end.Failed != 4 {
			t.Fatalf("got %d outcomes, end %+v, want 5, 4 failed", len(all), w.end)
		}
		for i, words := range []string{"open session on agent", "declare topology", "connect consumers on agent",
			"connect publishers on agent"} {
			text := strings.Join(all[i].Reasons, "; ")
			if all[i].Verdict != plan.Unknown || !strings.Contains(text, words) ||
				!strings.Contains(text, "127.0.0.1:1: connection refused") {
				t.Errorf("task %d: got verdict %s, reasons %q, want unknown with %q, the address and the cause", i,
					all[i].Verdict, text, words)
			}
		}
		if all[4].Verdict != plan.Valid {
			t.Errorf("task after failed ones: got verdict %s, want valid: %v", all[4].Verdict, all[4].Reasons)
		}
		if strings.Contains(allText(t, w.root), "hunter2") {
			t.Error("the run directory contains the broker's password")
		}
		if open := unreachableAt(address).open.Load(); open != 0 {
			t.Errorf("open sessions: got %d, want 0", open)
		}
		if n := unreachableAt(address).teardowns.Load(); n != 3 {
			t.Errorf("teardowns: got %d, want 3: tasks whose session could be opened", n)
		}
	})
}
