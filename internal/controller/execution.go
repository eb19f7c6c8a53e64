package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/runview"
	"lockstep/internal/sampling"
	"lockstep/internal/wire"
	"lockstep/internal/wire/lease"
)

// execution is one executed run. One goroutine uses it.
type execution struct {
	leader  *leader
	queued  *queuedRun
	journal *journal
	log     *slog.Logger
	// between ends with the run's context, or when the controller hands over: no further attempt may begin.
	between     context.Context
	run         plan.Run
	short       time.Time                       // since when there are too few agents; zero: enough
	rounds      *sampling.Rounds                // the number of repetitions of each cell
	retries     map[string][]plan.FailedAttempt // failed attempts of tasks before this leadership, by task
	searches    map[string]runview.Search       // steps of searches before this leadership, by task
	unreachable map[string]string               // why a broker could not be reached before the first task, by plan.Broker.ID
}

// errEnded means that a former leader has recorded the end of the run.
var errEnded = errors.New("the run has ended")

// execute runs all tasks, stores the end of the run in its record and deletes its submission. When the controller stops
// or the lease is lost, the run stays in the queue. An error is not the run's own: another attempt may succeed.
func (x *execution) execute(ctx context.Context) error {
	var cancel context.CancelFunc
	x.between, cancel = x.leader.untilStop(ctx)
	defer cancel()
	x.journal.end.Reason = wire.EndDone
	err := wire.Guard(x.log, "run "+x.run.ID, func() error { return x.tasks(ctx) })
	end := &x.journal.end
	if errors.Is(err, errEnded) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return x.journal.close(ctx)
	}
	fenced := errors.Is(err, lease.ErrFenced)
	if err != nil && !fenced && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	switch {
	case err == nil:
	case fenced, x.leader.lease.Context().Err() != nil:
		return err
	case errors.Is(err, errCancelled): // the task in flight has no outcome
		end.Reason, end.Detail = wire.EndInterrupted, err.Error()
	case x.between.Err() != nil: // the controller stops or hands over
		x.journal.inFlight(context.WithoutCancel(ctx), "")
		return nil
	case end.Reason != wire.EndDone: // the reason was set where the error occurred
	case !wire.Hopeless(err) && !errors.Is(err, wire.ErrPanic):
		x.journal.inFlight(context.WithoutCancel(ctx), "")
		return err
	default:
		end.Reason, end.Detail = wire.EndFailed, err.Error()
	}
	return x.journal.finish(ctx)
}

// reject ends a submission that cannot be executed.
func (x *execution) reject(ctx context.Context, reason wire.EndReason, why error) error {
	x.log.Error("run rejected", "reason", reason, "err", why)
	x.journal.end.Reason, x.journal.end.Detail = reason, why.Error()
	return x.journal.finish(ctx)
}

// tasks runs all tasks without an outcome.
func (x *execution) tasks(ctx context.Context) error {
	todo, done, err := x.begin(ctx)
	if err != nil {
		return err
	}
	if r := x.queued.refusal; r != nil {
		x.journal.end.Reason, x.journal.end.Detail, x.journal.end.Have, x.journal.end.Need = r.Reason, r.Detail, r.Have,
			r.Need
		return errors.New(r.Detail)
	}
	first := true
	for n, t := range todo {
		if done[t.ID] || !x.rounds.Needed(t) {
			continue
		}
		if why := x.unreachableBroker(t.Cell); why != "" {
			if err := x.journal.outcome(ctx, outcomeWithout(t, plan.FailedUnreachable, why), x.rounds); err != nil {
				return err
			}
			continue
		}
		if x.run.Until != nil { // the place of a task depends on the tasks before it
			n = x.journal.state.Done
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

// begin creates the run's record, or continues the record of a former leader, and determines the remaining tasks. It
// also does so for a cancelled run, whose end must be recorded.
func (x *execution) begin(ctx context.Context) (todo []plan.Task, done map[string]bool, err error) {
	ctx, cancel := wire.WithGracePeriod(ctx, stopTimeout)
	defer cancel()
	h := runview.New(x.run)
	same := true
	err = x.journal.record.Review(ctx, func(e wire.Entry) {
		h.Apply(e, time.Now())
		same = same && (e.Plan == nil || e.Plan.Same(x.run))
	})
	if err != nil {
		return nil, nil, err
	}
	if !same { // a record of two plans cannot be copied
		err := fmt.Errorf("run %s is already recorded with another plan; submit it with another id", x.run.ID)
		x.journal.end.Reason, x.journal.end.Detail = wire.EndRefused, err.Error()
		return nil, nil, err
	}
	if setTimes(&x.journal.state, h, x.journal.end.Submission) {
		x.journal.end = *h.End
		return nil, nil, errEnded
	}
	h.AddDone(x.queued.Submission.Done, x.queued.Submission.Numbers)
	x.searches, x.retries, x.rounds, x.unreachable = h.Searches, h.Retries, h.Rounds, h.Unreachable
	x.journal.count(x.rounds)
	done = h.AllDone()
	x.leader.queue.require(x.queued, done)
	todo = x.run.Tasks()
	if x.run.Until != nil {
		todo = slices.DeleteFunc(todo, func(t plan.Task) bool { return !x.rounds.Needed(t) })
	}
	x.log.Info("run started", "tasks", x.journal.of, "done", len(done), "taken over", h.Accepted)
	x.journal.state.Done = len(done)
	if x.journal.state.Started.IsZero() {
		x.journal.state.Started = time.Now()
	}
	x.journal.note(ctx)
	had := slices.Clone(x.journal.state.Agents)
	if h.Attempt != nil {
		had = append(had, h.Attempt.Started.Agents...)
	}
	x.leader.agents.awaitThat(ctx, wire.LostAfter, func() bool { // a new leader has received no heartbeats yet
		return !slices.ContainsFunc(had, func(name string) bool { return !x.leader.agents.there(name) })
	})
	x.leader.queue.met(x.queued)
	if h.Accepted {
		return todo, done, x.takeOver(ctx, h) // the contacts of the former leader count
	}
	x.unreachable = map[string]string{} // of a former contact that was not completed
	unreachable := x.contact(todo, done)
	if !h.Planned {
		x.run.Ceilings = nil // a run that is repeated from a record may have those of other hosts
		if slices.ContainsFunc(todo, func(t plan.Task) bool { return !done[t.ID] && x.unreachableBroker(t.Cell) == "" }) {
			x.run.Ceilings = x.ceilings(todo)
		}
		if errors.Is(context.Cause(x.between), errStopping) { // the next leader measures them
			return nil, nil, errStopping
		}
		if err := x.leader.history.addBases(ctx, &x.run); err != nil {
			return nil, nil, err
		}
		if err := x.journal.record.Plan(ctx, x.run); err != nil {
			return nil, nil, err
		}
	}
	if err := x.journal.event(ctx, wire.RunEvent{Kind: wire.RunAccepted}); err != nil {
		return nil, nil, err
	}
	for _, e := range unreachable {
		if err := x.journal.event(ctx, e); err != nil {
			return nil, nil, err
		}
	}
	return todo, done, nil
}

// fit returns the agents that this run may use, sorted by name, and stores their names in the run's state.
func (x *execution) fit(ctx context.Context) []wire.AgentInfo {
	fit := x.leader.queue.fit(x.queued)
	if now := x.leader.queue.names(x.queued); !slices.Equal(now, x.journal.state.Agents) {
		x.journal.state.Agents = now
		x.journal.note(ctx)
	}
	return fit
}

// awaitAgents chooses the agents of a task. It waits for missing agents until grace has passed since the shortage
// began. Then short describes the shortage.
func (x *execution) awaitAgents(ctx context.Context, t plan.Task, n int) (all []wire.AgentInfo, short string,
	err error) {
	recorded := false
	err = x.leader.agents.await(ctx, nil, nil, func() (time.Duration, error) {
		var missing *wire.End
		if all, missing = assignAgents(t.Cell, x.fit(ctx)); missing == nil {
			x.short = time.Time{}
			return 0, nil
		}
		if x.short.IsZero() {
			x.short = time.Now()
		}
		left := x.run.Grace.D() - time.Since(x.short)
		if left <= 0 {
			short = fmt.Sprintf("%s, after a grace of %v", missing.Detail, x.run.Grace)
			return 0, nil
		}
		if recorded {
			return left, nil
		}
		recorded, x.journal.state.Waiting = true, missing.Detail
		x.journal.inFlight(ctx, "")
		return left, x.journal.record.Event(ctx, wire.RunEvent{At: time.Now(), Kind: wire.WaitingAgents, Task: t.ID,
			N: n, Of: x.journal.of, Detail: missing.Detail})
	})
	x.journal.state.Waiting = "" // stored with the next state
	return all, short, err
}
