package controller_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// retrying adds a retry policy to a cell.
func retrying(retries int, on ...plan.FailureKind) func(*plan.Cell) {
	return func(c *plan.Cell) { c.Retry = &plan.Retry{On: on, Max: retries} }
}

// attemptsOf returns the stored outcomes of a task's failed attempts.
func attemptsOf(dir *runs.Run, task string) (all []plan.Outcome, err error) {
	kept, err := filepath.Glob(filepath.Join(dir.Dir(), "tasks", task+".attempt*", "outcome.json"))
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

// refused makes a cell whose topology is never declared.
func refused(c *plan.Cell) {
	c.Broker.Driver = "faulty"
	c.Broker.Options, _ = json.Marshal(map[string]string{"fail": "setup", "url": "amqp://me:hunter2@127.0.0.1:2"})
}

func both(changes ...func(*plan.Cell)) func(*plan.Cell) {
	return func(c *plan.Cell) {
		for _, change := range changes {
			change(c)
		}
	}
}

func kindsOf(attempts []plan.FailedAttempt) string {
	var words []string
	for _, t := range attempts {
		words = append(words, string(t.Kind))
	}
	return strings.Join(words, " ")
}

// A forged policy names an unknown kind of failure: a task that did not fail is not repeated.
func TestATaskThatDidNotFailIsNotRepeated(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		w := l.run(aRun(retrying(3, "")), nil, nil)
		if got, want := w.kinds(), "accepted task outcome end"; got != want {
			t.Errorf("the follower saw %q, want %q", got, want)
		}
	})
}

// An agent is killed in the first attempt. Only the second attempt counts, and the first one is stored with its result.
func TestATaskThatLostAnAgentIsRetried(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4", "a5")
		l.await(5)
		killed := false
		paced := func(c *plan.Cell) {
			c.Workload.Publishers.Rate, c.Workload.Measure = 1000, plan.Duration(20*time.Second)
		}
		w := l.run(aRun(both(paced, retrying(1, plan.FailedAgentLost))), nil, func(p controller.Progress) {
			if p.Kind == liveMetrics && !killed {
				killed = true
				l.kill("a2")
			}
		})
		if got, want := w.kinds(), "accepted task agent-lost attempt task outcome end"; got != want {
			t.Errorf("the follower saw %q, want %q", got, want)
		}
		o := w.outcomes()[0]
		if o.Verdict != plan.Valid || o.Attempt != 2 || kindsOf(o.FailedAttempts) != "agent-lost" ||
			!strings.Contains(o.FailedAttempts[0].Reason, "a2") || w.end.Failed != 0 {
			t.Fatalf("%s %v, attempt %d after %+v, end %+v", o.Verdict, o.Reasons, o.Attempt, o.FailedAttempts, w.end)
		}
		if o.Ledger.Sent != 4000 || o.Ledger.Received != 4000 || o.Agents[1].Agent != "a3" {
			t.Errorf("%+v with %+v: want the accounting of the second attempt alone", o.Ledger, o.Agents)
		}
		dir, err := runs.Open(w.root, w.id)
		if err != nil {
			t.Fatal(err)
		}
		first, err := attemptsOf(dir, o.Task)
		if err != nil || len(first) != 1 || first[0].Verdict != plan.Unknown || !first[0].Agents[1].Lost ||
			first[0].Attempt != 1 || first[0].Ledger.Sent == 0 {
			t.Errorf("of the first attempt is kept %+v, %v", first, err)
		}
		stored, err := dir.Outcomes()
		if err != nil || len(stored) != 1 || !strings.Contains(strings.Join(stored[0].Warnings, "\n"),
			"attempt 1 of this task is not counted: agent-lost: agent a2 was lost") {
			t.Errorf("the outcome on disk is %+v, %v", stored, err)
		}
		again, err := dir.Rejudge(o.Task)
		if err != nil || again.Attempt != 2 || kindsOf(again.FailedAttempts) != "agent-lost" ||
			again.Ledger != o.Ledger {
			t.Errorf("judged again it is %+v, %v", again, err)
		}
	})
}

// Each repetition has its own attempts, directly one after the other. Failures that the policy does not name are not
// retried.
func TestAttemptsAreUsedUp(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		run := aRun(both(refused, retrying(2, plan.FailedConnect)),
			both(refused, retrying(2, plan.FailedRun, plan.FailedAgentLost, plan.FailedTimeout)))
		run.Repeat, run.Settle = 2, plan.Duration(50*time.Millisecond)
		w := l.run(run, nil, nil)
		failedAttempt := "task attempt task attempt task outcome "
		if got, want := w.kinds(), "accepted "+failedAttempt+"task outcome "+failedAttempt+
			"task outcome end"; got != want {
			t.Errorf("the follower saw %q, want %q", got, want)
		}
		for i, o := range w.outcomes() {
			kinds, attempt := "connect connect", 3
			if i%2 == 1 {
				kinds, attempt = "", 1
			}
			if o.Verdict != plan.Unknown || o.Failure != plan.FailedConnect || o.Attempt != attempt ||
				kindsOf(o.FailedAttempts) != kinds {
				t.Errorf("%s: %s (%s), attempt %d after %q; want attempt %d after %q", o.Task, o.Verdict, o.Failure,
					o.Attempt, kindsOf(o.FailedAttempts), attempt, kinds)
			}
		}
		if text := everything(t, w.root); strings.Contains(text, "hunter2") {
			t.Error("the broker's password is in the record of an attempt")
		}
	})
}

// A failed step of a search is retried as a step. Failed attempts are not answers.
func TestStepsOfASearchAreRetried(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		search := func(c *plan.Cell) {
			c.Workload.Publishers.Count = 0
			c.Workload.Search = &plan.Search{For: plan.SearchRate, While: "lost == 0", From: 1000, Max: 2000,
				Within: 0.5, Step: plan.Duration(time.Second), Repeats: 1, Steps: 5}
		}
		w := l.run(aRun(both(refused, search, retrying(1, plan.FailedConnect))), nil, nil)
		o := w.outcomes()[0]
		if o.Search == nil || len(o.Search.Steps) != 2 || kindsOf(o.FailedAttempts) != "connect connect" ||
			o.Attempt != 1 || o.Verdict != plan.Unknown {
			t.Fatalf("%+v after %+v", o.Search, o.FailedAttempts)
		}
		for _, s := range o.Search.Steps {
			for _, failed := range o.FailedAttempts {
				if s.Attempt == failed.Name {
					t.Errorf("step at %v is of attempt %s, which does not count", s.Rate, s.Attempt)
				}
			}
		}
		dir, err := runs.Open(w.root, w.id)
		if err != nil {
			t.Fatal(err)
		}
		if kept, err := attemptsOf(dir, o.Task); err != nil || len(kept) != 2 {
			t.Errorf("%d attempts that do not count are kept with an outcome, %v; want 2", len(kept), err)
		}
	})
}

// A trial beyond the broker's capacity ends soon after its measurement, although due messages are unsent. They are a
// backlog.
func TestTrialEndsSoonAfterItHasFailed(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		w := l.run(aRun(func(c *plan.Cell) {
			loopbackOptions(c, map[string]any{"rate": 100})
			c.Workload.Publishers.Count, c.Workload.Drain.Timeout = 0, plan.Duration(time.Minute)
			c.Workload.Search = &plan.Search{For: plan.SearchRate, While: "lost == 0", From: 1000, Max: 1000,
				Within: 0.5, Step: plan.Duration(time.Second), Repeats: 1, Steps: 1}
		}), nil, nil)
		o := w.outcomes()[0]
		if o.Search == nil || len(o.Search.Steps) != 1 {
			t.Fatalf("%+v, want one trial", o.Search)
		}
		if s := o.Search.Steps[0]; s.Answer != plan.AnswerFailed || !strings.Contains(s.Why, "backlog: ") ||
			!strings.Contains(s.Why, "due and not sent") {
			t.Errorf("the trial %s: %s", s.Answer, s.Why)
		}
		if took, limit := o.Ended.Sub(o.Started), 6*time.Second; took > limit {
			t.Errorf("the trial took %v, want at most %v", took, limit)
		}
	})
}

// A controller stops between two attempts, and the next one continues to count. A cancelled run that is resumed counts
// its attempts from 1.
func TestAttemptsOutliveAControllerButNotARun(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		run := aRun(both(refused, retrying(2, plan.FailedConnect)))
		run.Settle = plan.Duration(4 * time.Second) // time to stop the controller
		restarted := false
		w := l.run(run, nil, func(p controller.Progress) {
			if p.Kind == wire.AttemptEnded && !restarted {
				restarted = true
				l.stop()
				l.wg.Wait()
				l.control()
			}
		})
		if got := w.kinds(); got != "accepted task attempt taken-over task attempt task outcome end" {
			t.Errorf("the follower saw %q", got)
		}
		if o := w.outcomes()[0]; o.Attempt != 3 || kindsOf(o.FailedAttempts) != "connect connect" {
			t.Errorf("attempt %d after %+v", o.Attempt, o.FailedAttempts)
		}

		second := aRun(both(refused, retrying(2, plan.FailedConnect)))
		second.Settle = plan.Duration(20 * time.Second) // time to cancel the run
		cancelled := false
		w = l.run(second, nil, func(p controller.Progress) {
			if p.Kind == wire.AttemptEnded && !cancelled {
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
		if all := w.outcomes(); len(all) != 1 || all[0].Attempt != 3 ||
			kindsOf(all[0].FailedAttempts) != "connect connect" {
			t.Errorf("resumed: %+v", all)
		}
	})
}
