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

// withRetry adds a retry policy to a cell.
func withRetry(maxRetries int, on ...plan.FailureKind) func(*plan.Cell) {
	return func(c *plan.Cell) { c.Retry = &plan.Retry{On: on, Max: maxRetries} }
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

// failingSetup changes a cell so that its topology cannot be declared.
func failingSetup(c *plan.Cell) {
	c.Broker.Driver = "unreachable"
	c.Broker.Options, _ = json.Marshal(map[string]string{"fail": "setup", "url": "amqp://me:hunter2@127.0.0.1:2"})
}

func allOf(changes ...func(*plan.Cell)) func(*plan.Cell) {
	return func(c *plan.Cell) {
		for _, change := range changes {
			change(c)
		}
	}
}

func failureKinds(attempts []plan.FailedAttempt) string {
	var words []string
	for _, t := range attempts {
		words = append(words, string(t.Kind))
	}
	return strings.Join(words, " ")
}

// A forged policy names an unknown kind of failure: a task that did not fail is not repeated.
func TestATaskThatDidNotFailIsNotRepeated(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		w := l.run(newRun(withRetry(3, "")), nil, nil)
		if got, want := w.kinds(), "accepted task outcome end"; got != want {
			t.Errorf("events: got %q, want %q", got, want)
		}
	})
}

// An agent is killed in the first attempt. Only the second attempt counts, and the first one is stored with its result.
func TestATaskThatLostAnAgentIsRetried(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4", "a5")
		l.awaitAgents(5)
		killed := false
		paced := func(c *plan.Cell) {
			c.Workload.Publishers.Rate, c.Workload.Measure = 1000, plan.Duration(20*time.Second)
		}
		w := l.run(newRun(allOf(paced, withRetry(1, plan.FailedAgentLost))), nil, func(p controller.Progress) {
			if p.Kind == liveMetrics && !killed {
				killed = true
				l.killAgent("a2")
			}
		})
		if got, want := w.kinds(), "accepted task agent-lost attempt task outcome end"; got != want {
			t.Errorf("events: got %q, want %q", got, want)
		}
		o := w.outcomes()[0]
		if o.Verdict != plan.Valid || o.Attempt != 2 || failureKinds(o.FailedAttempts) != "agent-lost" ||
			!strings.Contains(o.FailedAttempts[0].Reason, "a2") || w.end.Failed != 0 {
			t.Fatalf("got %s %v, attempt %d, failed attempts %+v, end %+v, want valid, 2, one that lost a2, 0 failed",
				o.Verdict, o.Reasons, o.Attempt, o.FailedAttempts, w.end)
		}
		if o.Ledger.Sent != 4000 || o.Ledger.Received != 4000 || o.Agents[1].Agent != "a3" {
			t.Errorf("got %+v, agents %+v, want only the accounting of the second attempt", o.Ledger, o.Agents)
		}
		dir, err := runs.Open(w.root, w.id)
		if err != nil {
			t.Fatal(err)
		}
		first, err := attemptsOf(dir, o.Task)
		if err != nil || len(first) != 1 || first[0].Verdict != plan.Unknown || !first[0].Agents[1].Lost ||
			first[0].Attempt != 1 || first[0].Ledger.Sent == 0 {
			t.Errorf("stored first attempt: got %+v, error %v, want unknown, a2 lost, some messages", first, err)
		}
		stored, err := dir.Outcomes()
		if err != nil || len(stored) != 1 || !strings.Contains(strings.Join(stored[0].Warnings, "\n"),
			"attempt 1 of this task is not counted: agent-lost: agent a2 was lost") {
			t.Errorf("stored outcomes: got %+v, error %v, want one with a warning about attempt 1", stored, err)
		}
		again, err := dir.Rejudge(o.Task)
		if err != nil || again.Attempt != 2 || failureKinds(again.FailedAttempts) != "agent-lost" ||
			again.Ledger != o.Ledger {
			t.Errorf("new judgement: got %+v, error %v, want attempt 2 with the same accounting", again, err)
		}
	})
}

// Each repetition has its own attempts, directly one after the other. Failures that the policy does not name are not
// retried.
func TestAttemptsAreLimited(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		run := newRun(allOf(failingSetup, withRetry(2, plan.FailedConnect)),
			allOf(failingSetup, withRetry(2, plan.FailedRun, plan.FailedAgentLost, plan.FailedTimeout)))
		run.Repeat, run.Settle = 2, plan.Duration(50*time.Millisecond)
		w := l.run(run, nil, nil)
		failedAttempt := "task attempt task attempt task outcome "
		if got, want := w.kinds(), "accepted "+failedAttempt+"task outcome "+failedAttempt+
			"task outcome end"; got != want {
			t.Errorf("events: got %q, want %q", got, want)
		}
		for i, o := range w.outcomes() {
			kinds, attempt := "connect connect", 3
			if i%2 == 1 {
				kinds, attempt = "", 1
			}
			if o.Verdict != plan.Unknown || o.Failure != plan.FailedConnect || o.Attempt != attempt ||
				failureKinds(o.FailedAttempts) != kinds {
				t.Errorf("task %s: got %s (%s), attempt %d, failed attempts %q, want attempt %d, %q", o.Task, o.Verdict,
					o.Failure, o.Attempt, failureKinds(o.FailedAttempts), attempt, kinds)
			}
		}
		if text := allText(t, w.root); strings.Contains(text, "hunter2") {
			t.Error("the run directory contains the broker's password")
		}
	})
}

// A failed step of a search is retried as a step. Failed attempts are not answers.
func TestStepsOfASearchAreRetried(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		search := func(c *plan.Cell) {
			c.Workload.Publishers.Count = 0
			c.Workload.Search = &plan.Search{For: plan.SearchRate, While: "lost == 0", From: 1000, Max: 2000,
				Within: 0.5, Step: plan.Duration(time.Second), Repeats: 1, Steps: 5}
		}
		w := l.run(newRun(allOf(failingSetup, search, withRetry(1, plan.FailedConnect))), nil, nil)
		o := w.outcomes()[0]
		if o.Search == nil || len(o.Search.Steps) != 2 || failureKinds(o.FailedAttempts) != "connect connect" ||
			o.Attempt != 1 || o.Verdict != plan.Unknown {
			t.Fatalf("got search %+v, failed attempts %+v, want 2 steps, each with one failed attempt", o.Search,
				o.FailedAttempts)
		}
		for _, s := range o.Search.Steps {
			for _, failed := range o.FailedAttempts {
				if s.Attempt == failed.Name {
					t.Errorf("step at rate %v: got the failed attempt %s", s.Rate, s.Attempt)
				}
			}
		}
		dir, err := runs.Open(w.root, w.id)
		if err != nil {
			t.Fatal(err)
		}
		if kept, err := attemptsOf(dir, o.Task); err != nil || len(kept) != 2 {
			t.Errorf("stored failed attempts: got %d, error %v, want 2", len(kept), err)
		}
	})
}

// A trial beyond the broker's capacity ends soon after its measurement, although due messages are unsent. They are a
// backlog.
func TestTrialEndsSoonAfterItHasFailed(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		w := l.run(newRun(func(c *plan.Cell) {
			loopbackOptions(c, map[string]any{"rate": 100})
			c.Workload.Publishers.Count, c.Workload.Drain.Timeout = 0, plan.Duration(time.Minute)
			c.Workload.Search = &plan.Search{For: plan.SearchRate, While: "lost == 0", From: 1000, Max: 1000,
				Within: 0.5, Step: plan.Duration(time.Second), Repeats: 1, Steps: 1}
		}), nil, nil)
		o := w.outcomes()[0]
		if o.Search == nil || len(o.Search.Steps) != 1 {
			t.Fatalf("search: got %+v, want one trial", o.Search)
		}
		if s := o.Search.Steps[0]; s.Answer != plan.AnswerFailed || !strings.Contains(s.Why, "backlog: ") ||
			!strings.Contains(s.Why, "due and not sent") {
			t.Errorf("trial: got answer %s: %s, want failed because of the backlog", s.Answer, s.Why)
		}
		if elapsed, limit := o.Ended.Sub(o.Started), 6*time.Second; elapsed > limit {
			t.Errorf("duration of the trial: got %v, want at most %v", elapsed, limit)
		}
	})
}

// A controller stops between two attempts, and the next one continues to count. A cancelled run that is resumed counts
// its attempts from 1.
func TestAttemptCountsAfterTakeoverAndResume(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		run := newRun(allOf(failingSetup, withRetry(2, plan.FailedConnect)))
		run.Settle = plan.Duration(4 * time.Second) // time to stop the controller
		restarted := false
		w := l.run(run, nil, func(p controller.Progress) {
			if p.Kind == wire.AttemptEnded && !restarted {
				restarted = true
				l.cancelController()
				l.controllers.Wait()
				l.startController()
			}
		})
		if got := w.kinds(); got != "accepted task attempt taken-over task attempt task outcome end" {
			t.Errorf("events: got %q", got)
		}
		if o := w.outcomes()[0]; o.Attempt != 3 || failureKinds(o.FailedAttempts) != "connect connect" {
			t.Errorf("got attempt %d, failed attempts %+v, want 3, two", o.Attempt, o.FailedAttempts)
		}

		second := newRun(allOf(failingSetup, withRetry(2, plan.FailedConnect)))
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
			t.Fatalf("end of the cancelled run: got %+v, want interrupted without outcomes", w.end)
		}
		second.Settle = 0
		w = l.runInto(w.root, second, nil, nil)
		if all := w.outcomes(); len(all) != 1 || all[0].Attempt != 3 ||
			failureKinds(all[0].FailedAttempts) != "connect connect" {
			t.Errorf("outcomes of the resumed run: got %+v, want one with attempt 3", all)
		}
	})
}
