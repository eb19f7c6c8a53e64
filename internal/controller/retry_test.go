package controller_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/internal/controller"
	"lockstep/internal/plan"
	"lockstep/internal/runs"
	"lockstep/internal/wire"
	"lockstep/test/wiretest"
)

// retrying adds a policy to a cell.
func retrying(most int, on ...plan.FailureKind) func(*plan.Cell) {
	return func(c *plan.Cell) { c.Retry = &plan.Retry{On: on, Most: most} }
}

// triesOf are the outcomes of the tries of a task that do not count, as they are kept.
func triesOf(dir *runs.Run, task string) (all []plan.Outcome, err error) {
	kept, err := filepath.Glob(filepath.Join(dir.Dir(), "tasks", task+".try*", "outcome.json"))
	for _, path := range kept {
		var o plan.Outcome
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &o)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, err
}

// refused makes a cell whose broker is never there.
func refused(c *plan.Cell) {
	c.Broker.Driver = "faulty"
	c.Broker.Options, _ = json.Marshal(map[string]string{"fail": "open", "url": "amqp://me:hunter2@127.0.0.1:1"})
}

func both(changes ...func(*plan.Cell)) func(*plan.Cell) {
	return func(c *plan.Cell) {
		for _, change := range changes {
			change(c)
		}
	}
}

func kindsOf(tries []plan.Tried) string {
	var words []string
	for _, t := range tries {
		words = append(words, string(t.Kind))
	}
	return strings.Join(words, " ")
}

// A hostile submission names no kind of failure: a task that did not fail is not repeated.
func TestATaskThatDidNotFailIsNotRepeated(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		w := l.run(aRun(retrying(3, "")), nil, nil)
		if got, want := w.kinds(), "accepted started outcome end"; got != want {
			t.Errorf("the follower saw %q, want %q", got, want)
		}
	})
}

// An agent is killed in the first try: the second one counts, alone, and the first one is kept with what came of it.
func TestATaskThatLostAnAgentIsTriedAgain(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4", "a5")
		l.await(5)
		killed := false
		paced := func(c *plan.Cell) {
			c.Workload.Publishers.Rate, c.Workload.Measure = 1000, plan.Duration(20*time.Second)
		}
		w := l.run(aRun(both(paced, retrying(1, plan.FailedAgentLost))), nil, func(p controller.Progress) {
			if p.Kind == controller.LiveFigures && !killed {
				killed = true
				l.kill("a2")
			}
		})
		if got, want := w.kinds(), "accepted started agent-lost try started outcome end"; got != want {
			t.Errorf("the follower saw %q, want %q", got, want)
		}
		o := w.outcomes()[0]
		if o.Verdict != plan.Valid || o.Try != 2 || kindsOf(o.Tries) != "agent-lost" || !strings.Contains(o.Tries[0].Reason, "a2") || w.end.Failed != 0 {
			t.Fatalf("%s %v, try %d after %+v, end %+v", o.Verdict, o.Reasons, o.Try, o.Tries, w.end)
		}
		if o.Ledger.Sent != 4000 || o.Ledger.Received != 4000 || o.Agents[1].Agent != "a3" {
			t.Errorf("%+v with %+v: want the account of the second try alone", o.Ledger, o.Agents)
		}
		dir, err := runs.Open(w.root, w.id)
		if err != nil {
			t.Fatal(err)
		}
		first, err := triesOf(dir, o.Task)
		if err != nil || len(first) != 1 || first[0].Verdict != plan.Unknown || !first[0].Agents[1].Lost || first[0].Try != 1 || first[0].Ledger.Sent == 0 {
			t.Errorf("of the first try is kept %+v, %v", first, err)
		}
		stored, err := dir.Outcomes()
		if err != nil || len(stored) != 1 || !strings.Contains(strings.Join(stored[0].Warnings, "\n"), "try 1 of this task is not counted: agent-lost: agent a2 was lost") {
			t.Errorf("the outcome on disk is %+v, %v", stored, err)
		}
		again, err := dir.Rejudge(o.Task)
		if err != nil || again.Try != 2 || kindsOf(again.Tries) != "agent-lost" || again.Ledger != o.Ledger {
			t.Errorf("judged again it is %+v, %v", again, err)
		}
	})
}

// Each repetition has tries of its own, right one after the other; what the policy does not name is not tried again.
func TestTriesAreUsedUp(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		run := aRun(both(refused, retrying(2, plan.FailedConnect)), both(refused, retrying(2, plan.FailedRun, plan.FailedAgentLost, plan.FailedTimeout)))
		run.Repeat, run.Settle = 2, plan.Duration(50*time.Millisecond)
		w := l.run(run, nil, nil)
		tried := "started try started try started outcome "
		if got, want := w.kinds(), "accepted "+tried+"started outcome "+tried+"started outcome end"; got != want {
			t.Errorf("the follower saw %q, want %q", got, want)
		}
		for i, o := range w.outcomes() {
			kinds, try := "connect connect", 3
			if i%2 == 1 {
				kinds, try = "", 1
			}
			if o.Verdict != plan.Unknown || o.Failure != plan.FailedConnect || o.Try != try || kindsOf(o.Tries) != kinds {
				t.Errorf("%s: %s (%s), try %d after %q; want try %d after %q", o.Task, o.Verdict, o.Failure, o.Try, kindsOf(o.Tries), try, kinds)
			}
		}
		if text := everything(t, w.root); strings.Contains(text, "hunter2") {
			t.Error("the broker's password is in the record of a try")
		}
	})
}

// A step of a search that fails is tried again as a step; the tries that failed are no answers.
func TestStepsOfASearchAreTriedAgain(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		search := func(c *plan.Cell) {
			c.Workload.Publishers.Count = 0
			c.Workload.Search = &plan.Search{For: plan.SearchRate, While: "lost == 0", From: 1000, Most: 2000, Within: 0.5, Step: plan.Duration(time.Second), Repeats: 1, Steps: 5}
		}
		w := l.run(aRun(both(refused, search, retrying(1, plan.FailedConnect))), nil, nil)
		o := w.outcomes()[0]
		if o.Search == nil || len(o.Search.Steps) != 2 || kindsOf(o.Tries) != "connect connect" || o.Try != 1 || o.Verdict != plan.Unknown {
			t.Fatalf("%+v after %+v", o.Search, o.Tries)
		}
		for _, s := range o.Search.Steps {
			for _, failed := range o.Tries {
				if s.Try == failed.Name {
					t.Errorf("step at %v is of try %s, which does not count", s.Rate, s.Try)
				}
			}
		}
		dir, err := runs.Open(w.root, w.id)
		if err != nil {
			t.Fatal(err)
		}
		if kept, err := triesOf(dir, o.Task); err != nil || len(kept) != 2 {
			t.Errorf("%d tries that do not count are kept with an outcome, %v; want 2", len(kept), err)
		}
	})
}

// A trial whose load the broker cannot take ends soon after its measurement, although messages that were due are
// unsent. They are a backlog.
func TestTrialEndsSoonAfterItHasFailed(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		w := l.run(aRun(func(c *plan.Cell) {
			loopbackOptions(c, map[string]any{"rate": 100})
			c.Workload.Publishers.Count, c.Workload.Drain.Most = 0, plan.Duration(time.Minute)
			c.Workload.Search = &plan.Search{For: plan.SearchRate, While: "lost == 0", From: 1000, Most: 1000, Within: 0.5, Step: plan.Duration(time.Second), Repeats: 1, Steps: 1}
		}), nil, nil)
		o := w.outcomes()[0]
		if o.Search == nil || len(o.Search.Steps) != 1 {
			t.Fatalf("%+v, want one trial", o.Search)
		}
		if s := o.Search.Steps[0]; s.Answer != plan.AnswerFailed || !strings.Contains(s.Why, "backlog: ") || !strings.Contains(s.Why, "due and not sent") {
			t.Errorf("the trial %s: %s", s.Answer, s.Why)
		}
		if took, most := o.Ended.Sub(o.Started), 6*time.Second; took > most {
			t.Errorf("the trial took %v, want at most %v", took, most)
		}
	})
}

// A controller that stops between two tries: the next one continues counting. A run that was cancelled and is resumed has tries anew.
func TestTriesOutliveAControllerButNotARun(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		run := aRun(both(refused, retrying(2, plan.FailedConnect)))
		run.Settle = plan.Duration(4 * time.Second) // time to stop the controller in it
		restarted := false
		w := l.run(run, nil, func(p controller.Progress) {
			if p.Kind == controller.TaskRetried && !restarted {
				restarted = true
				l.stop()
				l.wg.Wait()
				l.control()
			}
		})
		if got := w.kinds(); got != "accepted started try taken-over started try started outcome end" {
			t.Errorf("the follower saw %q", got)
		}
		if o := w.outcomes()[0]; o.Try != 3 || kindsOf(o.Tries) != "connect connect" {
			t.Errorf("try %d after %+v", o.Try, o.Tries)
		}

		second := aRun(both(refused, retrying(2, plan.FailedConnect)))
		second.Settle = plan.Duration(20 * time.Second) // time to cancel in it
		cancelled := false
		w = l.run(second, nil, func(p controller.Progress) {
			if p.Kind == controller.TaskRetried && !cancelled {
				cancelled = true
				if err := l.client.Cancel(t.Context(), second.ID, ""); err != nil {
					t.Error(err)
				}
			}
		})
		if w.end.Reason != wire.EndInterrupted || len(w.outcomes()) != 0 {
			t.Fatalf("ended with %+v", w.end)
		}
		second.Settle = 0
		w = l.runInto(w.root, second, nil, nil)
		if all := w.outcomes(); len(all) != 1 || all[0].Try != 3 || kindsOf(all[0].Tries) != "connect connect" {
			t.Errorf("resumed: %+v", all)
		}
	})
}
