package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"lockstep/internal/judge"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/runview"
	"lockstep/internal/sampling"
	"lockstep/internal/wire"
	"lockstep/internal/wire/lease"
)

// execution is one run being executed.
type execution struct {
	*leader
	// between ends with the run's context, or when the controller hands over: no attempt begins any more.
	between   context.Context
	queuedRun *queuedRun
	record    *wire.Recorder
	run       plan.Run
	seq       uint64 // of the submission
	given     []string
	numbers   map[string]float64 // of given
	log       *slog.Logger
	end       wire.End
	state     wire.RunState
	short     time.Time                 // since when there are too few agents; zero: there are enough
	rounds    *sampling.Rounds          // how often each cell is measured
	of        int                       // tasks: at most, while the rounds are open
	tries     map[string][]plan.Tried   // of tasks, before this controller took the run up; and
	found     map[string]runview.Search // what their searches had found
}

// errEnded is that a former leader had recorded the run's end.
var errEnded = errors.New("the run has ended")

// execute takes a run to its end, says so in its record and deletes its submission; when the controller stops or no longer leads, the
// run stays in the queue instead. An error is not the run's, and another try may succeed.
func (x *execution) execute(ctx context.Context) error {
	var cancel context.CancelFunc
	x.between, cancel = x.untilStop(ctx)
	defer cancel()
	x.end = wire.End{Reason: wire.EndDone, Submission: x.seq}
	err := wire.Guard(x.log, "run "+x.run.ID, func() error { return x.tasks(ctx) })
	if errors.Is(err, errEnded) {
		return x.unqueue(ctx)
	}
	fenced := errors.Is(err, lease.ErrFenced)
	if err != nil && !fenced && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	switch {
	case err == nil:
	case fenced, x.lease.Context().Err() != nil:
		return err
	case errors.Is(err, errCancelled): // the task in flight has no outcome
		x.end.Reason, x.end.Detail = wire.EndInterrupted, err.Error()
	case x.between.Err() != nil: // the controller stops, or hands over
		x.begins(context.WithoutCancel(ctx), "")
		return nil
	case x.end.Reason != wire.EndDone: // that was said where it was found
	case !wire.Hopeless(err) && !errors.Is(err, wire.ErrPanic):
		x.begins(context.WithoutCancel(ctx), "")
		return err
	default:
		x.end.Reason, x.end.Detail = wire.EndFailed, err.Error()
	}
	return x.finishRun(ctx)
}

// tasks runs all that has no outcome yet.
func (x *execution) tasks(ctx context.Context) error {
	todo, done, err := x.begin(ctx)
	if err != nil {
		return err
	}
	if r := x.queuedRun.refusal; r != nil {
		x.end.Reason, x.end.Detail, x.end.Have, x.end.Need = r.Reason, r.Detail, r.Have, r.Need
		return errors.New(r.Detail)
	}
	first := true
	for n, t := range todo {
		if done[t.ID] || !x.rounds.Needed(t) {
			continue
		}
		if x.run.Until != nil { // which place it has depends on those before it
			n = x.state.Done
		}
		if !first {
			if err := pause(x.between, x.run.Settle.D()); err != nil {
				return err
			}
		}
		first = false
		if err := x.task(ctx, t, n+1); err != nil {
			return err
		}
	}
	return nil
}

// begin opens the run's record, or takes it up where a former leader left it, and finds out what is left to do. That is done for a run that was
// cancelled meanwhile, too: its end is recorded.
func (x *execution) begin(ctx context.Context) (todo []plan.Task, done map[string]bool, err error) {
	ctx, cancel := wire.WithGracePeriod(ctx, stopTimeout)
	defer cancel()
	h := runview.New(x.run)
	if err := x.record.Review(ctx, func(e wire.Entry) { h.Apply(e, time.Now()) }); err != nil {
		return nil, nil, err
	}
	if setTimes(&x.state, h, x.seq) {
		x.end = *h.End
		return nil, nil, errEnded
	}
	h.Had(x.given, x.numbers)
	x.found, x.tries, x.rounds = h.Searches, h.Retries, h.Rounds
	x.count()
	done = h.AllDone()
	x.queue.require(x.queuedRun, done)
	todo = x.run.Tasks()
	if x.run.Until != nil {
		todo = slices.DeleteFunc(todo, func(t plan.Task) bool { return !x.rounds.Needed(t) })
	}
	x.log.Info("run begins", "tasks", x.of, "done", len(done), "taken over", h.Accepted)
	x.state.Done = len(done)
	if x.state.Started.IsZero() {
		x.state.Started = time.Now()
	}
	x.note(ctx)
	had := slices.Clone(x.state.Agents)
	if h.Attempt != nil {
		had = append(had, h.Attempt.Started.Agents...)
	}
	x.agents.awaitThat(ctx, wire.LostAfter, func() bool { // who has just begun to lead has heard nobody
		return !slices.ContainsFunc(had, func(name string) bool { return !x.agents.there(name) })
	})
	x.queue.met(x.queuedRun)
	if h.Accepted {
		return todo, done, x.takeOver(ctx, h)
	}
	if !h.Planned {
		if err := x.addBases(ctx, &x.run); err != nil {
			return nil, nil, err
		}
		if err := x.record.Plan(ctx, x.run); err != nil {
			return nil, nil, err
		}
	}
	return todo, done, x.record.Event(ctx, wire.RunEvent{At: time.Now(), Kind: wire.RunAccepted, Of: x.of})
}

// setTimes sets when a run began and ended, by its record: what was noted of it may be lost. It reports whether this
// submission of the run has ended.
func setTimes(s *wire.RunState, h *runview.State, submission uint64) (ended bool) {
	s.Ended = time.Time{}
	if ended = h.End != nil && h.End.Submission == submission; ended {
		s.Ended = h.Ended
	}
	if h.Accepted || ended {
		s.Started = h.Began
	}
	return ended
}

// count notes how many tasks the run has, by what is known now.
func (x *execution) count() {
	x.of = x.rounds.Tasks()
	x.state.Tasks, x.state.AtMost = x.of, x.rounds.Open()
}

// task runs one task; an error ends the run.
func (x *execution) task(ctx context.Context, t plan.Task, n int) error {
	if t.Cell.Workload.Search != nil {
		return x.search(ctx, t, n)
	}
	y, tries, err := x.counted(ctx, t, n, "", x.tries[t.ID])
	if err != nil {
		return err
	}
	return x.conclude(ctx, after(tries, y.outcome))
}

// tried is an attempt that has ended, or could not begin.
type tried struct {
	name    string // empty: there were too few agents, as failure says
	task    plan.Task
	failure string // empty: none
	outcome plan.Outcome
}

// without is the outcome of a task that never had its agents.
func without(t plan.Task, words string) plan.Outcome {
	now := time.Now()
	return judge.Judge(t, record.NewMerged(), judge.Facts{Failure: words, Started: now, Ended: now})
}

// outcome judges an attempt. A panic of the judge, for what agents reported, makes an outcome that is unknown and has its text.
func (x *execution) outcome(t plan.Task, m *record.Merged, f judge.Facts) (o plan.Outcome) {
	err := wire.Guard(x.log, "judge task "+t.ID, func() error { o = judge.Judge(t, m, f); return nil })
	if err != nil {
		o = judge.Judge(t, record.NewMerged(), judge.Facts{Failure: err.Error(), Started: f.Started, Ended: f.Ended})
	}
	return o
}

// try leads the agents through a task once; detail is which step of a search it is. An error ends the run.
func (x *execution) try(ctx context.Context, t plan.Task, n int, detail string) (tried, error) {
	agents, short, err := x.choose(x.between, t, n)
	if err != nil {
		return tried{}, err
	}
	if short != "" {
		return tried{task: t, failure: short, outcome: without(t, short)}, nil
	}
	c := newConduct(x, t, agents)
	event := wire.RunEvent{At: time.Now(), Kind: wire.TaskStarted, Task: t.ID, Try: c.ref.Try, N: n, Of: x.of, Agents: names(agents),
		Observers: c.watchers(), Detail: detail}
	if detail != "" {
		event.Load = &wire.Load{Rate: t.Cell.Workload.Publishers.Rate, Measure: t.Cell.Workload.Measure}
	}
	x.begins(ctx, t.ID)
	c.facts.Started = event.At // one time for both: what follows the run and what is made of its record later agree
	if err := x.record.Event(ctx, event); err != nil {
		return tried{}, err
	}
	closed := c.open()
	facts := c.conduct(ctx)
	closed()
	facts.SinceT0(judge.Cut(c.work, c.merge)) // no snapshot is stored any more
	if x.lease.Context().Err() != nil {
		return tried{}, context.Cause(x.lease.Context())
	}
	why := c.snapshots.Full()
	if facts.Cancelled {
		if why = context.Cause(ctx); errors.Is(why, context.Canceled) {
			why = errors.New("the controller was stopped")
		}
	}
	if why != nil {
		return tried{}, errors.Join(why, x.event(ctx, wire.RunEvent{Kind: wire.TaskInterrupted, Task: t.ID, Try: c.ref.Try, N: n, Detail: why.Error()}))
	}
	return tried{name: c.ref.Try, task: c.task, failure: facts.Failure, outcome: x.outcome(c.task, c.merge, facts)}, nil
}

func names(agents []wire.AgentInfo) []string {
	list := make([]string, len(agents))
	for i, a := range agents {
		list[i] = a.Agent
	}
	return list
}

// event stores an event of the run, also for a while after the end of ctx.
func (x *execution) event(ctx context.Context, e wire.RunEvent) error {
	ctx, cancel := wire.WithGracePeriod(ctx, stopTimeout)
	defer cancel()
	e.At, e.Of = time.Now(), x.of
	return x.record.Event(ctx, e)
}

// conclude stores an outcome.
func (x *execution) conclude(ctx context.Context, o plan.Outcome) error {
	x.end.Ran++
	if o.Failed() {
		x.end.Failed++
	}
	ctx, cancel := wire.WithGracePeriod(ctx, stopTimeout)
	defer cancel()
	if err := x.record.Outcome(ctx, o); err != nil {
		return err
	}
	x.cfg.Standing.count(o.Verdict)
	x.rounds.Add(o)
	x.count()
	x.state.InFlight, x.state.Blamed, x.state.Crashes = "", "", nil
	x.state.Done++
	if o.Failed() {
		x.state.Failed++
	}
	x.note(ctx)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	wire.Progress(ctx, d)
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
