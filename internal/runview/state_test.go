package runview

import (
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
)

// aRun returns a run of one cell with two repetitions, and its tasks.
func aRun() (plan.Run, []plan.Task) {
	w := plan.Default()
	w.Consumers.Nodes, w.Warmup, w.Measure = 1, plan.Duration(5*time.Second), plan.Duration(10*time.Second)
	run := plan.Run{ID: "r", Repeat: 2, Cells: []plan.Cell{{ID: "c", Workload: w}}}
	return run, run.Tasks()
}

var epoch = time.Unix(1000, 0)

// replay is the state of a run after entries of its record.
type replay struct {
	*State
	now time.Time
}

func newReplay(run plan.Run) *replay {
	r := &replay{State: New(plan.Run{}), now: epoch}
	r.Apply(wire.Entry{Plan: &run}, r.now)
	r.event(wire.RunEvent{Kind: wire.RunAccepted, Of: 2})
	return r
}

func (r *replay) event(e wire.RunEvent) {
	e.At = r.now
	r.Apply(wire.Entry{Event: &e}, r.now)
}

// begin starts an attempt and measures for some seconds.
func (r *replay) begin(task, attempt string, seconds int64) {
	r.event(wire.RunEvent{Kind: wire.TaskStarted, Task: task, Attempt: attempt, N: 1, Agents: []string{"a"}})
	for second := int64(-5); second < seconds; second++ {
		r.now = r.now.Add(time.Second)
		s := snapshotOf("a", "", second, counts{100, 100, 100})
		r.Apply(wire.Entry{Ref: wire.Ref{Run: "r", Task: task, Attempt: attempt}, Snapshot: &s}, r.now)
	}
}

func (r *replay) phase() Phase {
	if r.Attempt == nil {
		return ""
	}
	p, _ := r.Attempt.Phase(r.now)
	return p
}

// An ended attempt has neither a phase nor metrics, also if its agents still report. The task is active until it has an
// outcome.
func TestAnAttemptThatHasEndedShowsNothing(t *testing.T) {
	step, outcome := plan.Step{}, plan.Outcome{}
	for name, end := range map[string]wire.RunEvent{
		"failed":             {Kind: wire.AttemptEnded, FailedAttempt: &plan.FailedAttempt{Name: "1"}},
		"a step of a search": {Kind: wire.StepEnded, Step: &step, Outcome: &outcome},
		"interrupted":        {Kind: wire.TaskInterrupted}, "the run ended": {Kind: wire.RunEnded, End: &wire.End{}},
		"taken over": {Kind: wire.TakenOver},
	} {
		run, tasks := aRun()
		r := newReplay(run)
		r.begin(tasks[0].ID, "1", 3)
		if r.phase() != Measuring || r.Attempt.Newest() == nil || r.Attempt.Newest().Flows[0].PublishRate != 100 {
			t.Fatalf("%s: phase %q before, %+v", name, r.phase(), r.Attempt.Series)
		}
		end.Task, end.Attempt = tasks[0].ID, "1"
		r.event(end)
		late := snapshotOf("a", "", 4, counts{100, 100, 100})
		r.now = r.now.Add(time.Second)
		if r.Apply(wire.Entry{Ref: wire.Ref{Run: "r", Task: tasks[0].ID, Attempt: "1"}, Snapshot: &late}, r.now) {
			t.Errorf("%s: there are metrics of an attempt that has ended", name)
		}
		if p := r.phase(); p != "" && p != Abandoned || r.Attempt != nil && r.Attempt.Newest() != nil {
			t.Errorf("%s: phase %q", name, p)
		}
		task, since := r.underWay(r.now)
		if between := end.Kind != wire.TaskInterrupted && end.Kind != wire.RunEnded; between != (task != "") ||
			between && since != 9*time.Second {
			t.Errorf("%s: task %q is under way for %v", name, task, since)
		}
	}
}

// Phases follow the reports of agents, and advance for at most two seconds without a report.
func TestPhases(t *testing.T) {
	run, tasks := aRun()
	r := newReplay(run)
	r.event(wire.RunEvent{Kind: wire.TaskStarted, Task: tasks[0].ID, Attempt: "1", N: 1, Agents: []string{"a"}})
	ref := wire.Ref{Run: "r", Task: tasks[0].ID, Attempt: "1"}
	for _, c := range []struct {
		at    time.Duration // of the snapshot
		later time.Duration
		want  Phase
		since time.Duration
	}{
		{0, 0, Connecting, 0}, {-4 * time.Second, 0, WarmUp, -4 * time.Second},
		{-4 * time.Second, time.Hour, WarmUp, -2 * time.Second},
		{2 * time.Second, time.Second, Measuring, 3 * time.Second}, {11 * time.Second, 0, Draining, 11 * time.Second},
	} {
		r.Apply(wire.Entry{Ref: ref, Snapshot: &record.Snapshot{Agent: "a", At: c.at.Nanoseconds()}}, r.now)
		r.now = r.now.Add(c.later)
		if p, since := r.Attempt.Phase(r.now); p != c.want || p != Connecting && since != c.since {
			t.Errorf("%v after %v: %s, %v: want %s, %v", c.later, c.at, p, since, c.want, c.since)
		}
	}
	r.Attempt.Task.Cell.Workload.Steady.Auto = true
	r.Apply(wire.Entry{Ref: ref, Snapshot: &record.Snapshot{Agent: "a", At: 3e9}}, r.now)
	if p := r.phase(); p != UntilSteady {
		t.Errorf("%s: the start of the measurement is unknown", p)
	}
}

// The state has everything that the next leader needs: completed tasks, the attempt in flight, and the failed attempts.
func TestStateForTheNextLeader(t *testing.T) {
	run, tasks := aRun()
	r := newReplay(run)
	first, second := tasks[0].ID, tasks[1].ID
	r.begin(first, "1", 1)
	r.event(wire.RunEvent{Kind: wire.AttemptEnded, Task: first, Attempt: "1",
		FailedAttempt: &plan.FailedAttempt{Name: "1", Kind: plan.FailedConnect}})
	r.begin(first, "2", 1)
	o := plan.Outcome{Task: first, Cell: "c", Repetition: 1, Verdict: plan.Valid}
	r.Apply(wire.Entry{Outcome: &o}, r.now)
	r.begin(second, "3", 1)
	r.event(wire.RunEvent{Kind: wire.StepEnded, Task: second, Attempt: "3", Step: &plan.Step{Rate: 5},
		Outcome: &plan.Outcome{Started: epoch}})
	r.begin(second, "4", 1)
	r.event(wire.RunEvent{Kind: wire.TakenOver, Task: second, Attempt: "4"})
	if !r.Planned || !r.Accepted || r.Ran != 1 || r.Failed != 0 || !r.AllDone()[first] || r.AllDone()[second] ||
		r.Count(plan.Valid) != 1 || r.TaskN != 1 || r.Of != 2 {
		t.Errorf("%+v", r.State)
	}
	if r.Attempt == nil || r.Attempt.Ref.Attempt != "4" || !r.Attempt.Abandoned {
		t.Errorf("in flight: %+v", r.Attempt)
	}
	if s := r.Searches[second]; len(s.Steps) != 1 || s.Steps[0].Rate != 5 || s.Started != epoch {
		t.Errorf("search: %+v", s)
	}
	if got := r.Retries[second]; len(got) != 1 || got[0].Name != "4" || got[0].Kind != plan.FailedInterrupted ||
		len(r.Retries[first]) != 0 {
		t.Errorf("retries: %+v", r.Retries)
	}
	r.event(wire.RunEvent{Kind: wire.RunEnded, End: &wire.End{Submission: 7}})
	if r.Accepted || r.Attempt != nil || r.End == nil || r.End.Submission != 7 || r.Ended.IsZero() ||
		len(r.Searches)+len(r.Retries) > 0 {
		t.Errorf("after the end: %+v", r.State)
	}
	r.event(wire.RunEvent{Kind: wire.RunAccepted})
	if !r.Accepted || r.End != nil || !r.Ended.IsZero() || r.Ran != 0 {
		t.Errorf("the run is resumed: %+v", r.State)
	}
}
