package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	past "lockstep/internal/history"
	"lockstep/internal/matrix"
	"lockstep/internal/plan"
	"lockstep/internal/report"
	"lockstep/internal/runview"
	"lockstep/internal/schedule"
	"lockstep/internal/wire"
)

// longestExpand exceeds the duration of Config.Expand, including the calls of other schedules that it may wait for.
const longestExpand = time.Hour

// fire expands and submits the run of a slot whose entry is stored as the current one.
func (k *keeper) fire(ctx context.Context, e schedule.Entry) {
	k.change(ctx, func(s *schedule.Schedule) bool { return s.Begin(e.Run, k.epoch, k.clock.Now()) })
	s := k.kept.Schedule
	if c := s.Current; ctx.Err() != nil || c == nil || c.Run != e.Run || c.State != schedule.Starting ||
		c.Epoch != k.epoch {
		return
	}
	var run plan.Run
	wire.Progress(ctx, longestExpand)
	err := wire.Guard(k.log, "the matrix of schedule "+s.Name,
		func() (err error) { run, err = k.expand(ctx, s.Matrix); return err })
	run.ID, run.Started = e.Run, k.clock.Now().UTC()
	submission := wire.Submission{Run: run, By: s.By, Schedule: s.Name}
	if err == nil {
		err = check(&submission)
	}
	again := false // the control plane may accept it later
	if err == nil {
		err = k.lease.SubmitOnce(ctx, submission)
		again = err != nil && !errors.Is(err, wire.ErrTooLarge)
	}
	switch {
	case err == nil:
		k.log.Info("run submitted for slot", "slot", e.At, "run", e.Run)
		k.change(ctx, func(s *schedule.Schedule) bool { return s.Submit(e.Run) })
	case ctx.Err() != nil:
	case again:
		k.log.Error("cannot submit the run of a slot; retrying", "run", e.Run, "err", err)
		_ = pause(ctx, time.Second) // the loop checks ctx
	default:
		k.log.Error("slot without a run", "slot", e.At, "err", err)
		k.change(ctx, func(s *schedule.Schedule) bool { return s.Fail(e.Run, plan.Redact(err.Error()), k.clock.Now()) })
	}
}

// Expand expands the matrix of a schedule to a run, in this process. It ignores ctx while CUE evaluates the matrix,
// which may take any time and memory: see Config.Expand.
func Expand(ctx context.Context, from schedule.Matrix) (run plan.Run, err error) {
	m, err := matrix.Load(from.File, []byte(from.Text),
		matrix.Narrow{Quick: from.Quick, Set: from.Set, Filter: from.Filter})
	if err != nil {
		return run, err
	}
	if run, err = m.Run(ctx); err != nil {
		return run, err
	}
	if literals := m.Literals(); len(literals) > 0 {
		return run,
			fmt.Errorf("the matrix of a schedule must not contain secrets, because the control plane stores it; use references such as ${env:NAME}:\n%s", strings.Join(literals, "\n"))
	}
	run.Version, run.Source.Path, run.Source.Server = plan.RecordFormat, from.Path, from.Server
	return run, nil
}

// over is the result of a run that has ended.
type over struct {
	run string
	how schedule.Result
}

// await follows a run to its end, and reports the result to the keeper.
func (k *keeper) await(ctx context.Context, run string) {
	for {
		how, err := k.follow(ctx, run)
		if err == nil {
			select {
			case k.over <- over{run, how}:
			case <-ctx.Done():
			}
			return
		}
		if pause(ctx, time.Second) != nil {
			return
		}
		k.log.Warn("cannot follow the run of a slot; retrying", "run", run, "err", err)
	}
}

// follow waits until a run has ended, and returns its result.
func (k *keeper) follow(ctx context.Context, run string) (schedule.Result, error) {
	state := runview.New(plan.Run{})
	var e schedule.Entry // collects the first problems
	ruled := false
	var outcomes []plan.Outcome // only for plans with rules
	end, err := k.store.Await(ctx, run, func(entry wire.Entry) error {
		state.Apply(entry, k.clock.Now())
		if entry.Plan != nil {
			ruled = slices.ContainsFunc(entry.Plan.Cells, func(c plan.Cell) bool { return len(c.Require) > 0 })
		}
		if entry.Outcome == nil {
			return nil
		}
		o := *entry.Outcome
		if ruled {
			outcomes = append(outcomes, o)
		}
		if o.Failed() {
			t, _ := state.TaskOf(o.Task)
			e.Problem(fmt.Sprintf("%s: %s: %s", cmp.Or(t.Cell.Name(), o.Cell), o.Verdict,
				plan.Redact(strings.Join(o.Reasons, "; "))))
		}
		return nil
	})
	if errors.Is(err, wire.ErrNoRun) || errors.Is(err, wire.ErrNoRecord) {
		return k.copied(run), nil
	}
	if err != nil {
		return schedule.Result{}, err
	}
	for _, rule := range report.Rulings(state.Run, outcomes) {
		if rule.Failed() {
			e.Problem(plan.Redact(rule.String()))
		}
	}
	return schedule.Result{State: schedule.State(end.Reason), Why: plan.Redact(end.Detail), Ended: state.Ended,
		Problems: e.Problems,
		Tasks: schedule.Tasks{Valid: state.Count(plan.Valid), Invalid: state.Count(plan.Invalid),
			Unknown: state.Count(plan.Unknown)}}, nil
}

func accounting(t schedule.Tasks, o plan.Outcome) schedule.Tasks {
	switch o.Verdict {
	case plan.Valid:
		t.Valid++
	case plan.Invalid:
		t.Invalid++
	default:
		t.Unknown++
	}
	return t
}

// copied returns the result of a run that is no longer on the control plane, from the controller's copy.
func (k *keeper) copied(run string) schedule.Result {
	r := schedule.Result{State: schedule.Gone, Why: "the run is no longer on the control plane", Ended: k.clock.Now()}
	if k.runs == "" {
		return r
	}
	record, outcomes, err := past.Of(k.runs).Record(run)
	if err != nil {
		return r
	}
	for _, o := range outcomes {
		r.Tasks = accounting(r.Tasks, o)
		r.Ended = o.Ended
	}
	r.Why += "; the outcomes are from the copy of the controller"
	if len(outcomes) == record.Rounds().Tasks() {
		r.State, r.Why = schedule.Done, ""
	}
	return r
}

func (k *keeper) ended(ctx context.Context, o over) {
	k.log.Info("scheduled run ended", "run", o.run, "state", o.how.State, "valid", o.how.Tasks.Valid, "invalid",
		o.how.Tasks.Invalid, "unknown", o.how.Tasks.Unknown)
	k.change(ctx, func(s *schedule.Schedule) bool { return s.End(o.run, o.how) })
}

// hookResult is the result of a hook call.
type hookResult struct {
	run     string
	call    schedule.Call
	printed []byte
}

// tell calls the next hook of an entry. Hooks that compare come first.
func (k *keeper) tell(ctx context.Context, e schedule.Entry) {
	name, hook, err := k.nextHook(e)
	k.calling = e.Run
	n := k.kept.Schedule.Notice(e, name)
	ctx = wire.WithProgress(ctx, nil) // this goroutine's progress is not watched
	k.wg.Go(func() {
		t := hookResult{run: e.Run, call: schedule.Call{Hook: name, State: schedule.CallDone}}
		n.Directory, n.PreviousDirectory = k.awaitCopy(ctx, e), k.directory(e.Previous)
		if err == nil && hook.Compare && e.Tasks.Total() == 0 {
			t.call.State, t.call.Why = schedule.CallNone, "nothing to compare: no task has an outcome"
		} else if err == nil {
			t.printed, t.call.Attempts, err = k.hooks.call(ctx, hook, n)
		}
		if ctx.Err() != nil {
			return // the next leader calls it
		}
		if !hook.Compare {
			t.printed = nil
		}
		if err != nil {
			t.call.State, t.call.Why, t.printed = schedule.CallFailed, err.Error(), nil
			k.log.Error("hook failed", "hook", name, "run", e.Run, "attempts", t.call.Attempts, "err", err)
		}
		t.call.At = k.clock.Now()
		select {
		case k.hookResults <- t:
		case <-ctx.Done():
		}
	})
}

// nextHook returns the next pending hook of an entry. The error means that this controller has no such hook.
func (k *keeper) nextHook(e schedule.Entry) (name string, hook plan.Hook, err error) {
	for _, c := range e.Hooks {
		if c.State != schedule.CallPending {
			continue
		}
		h, missing := k.hooks.find(c.Hook)
		if name == "" || h.Compare && !hook.Compare {
			name, hook, err = c.Hook, h, missing
		}
	}
	return name, hook, err
}

func (k *keeper) called(ctx context.Context, t hookResult) {
	k.change(ctx, func(s *schedule.Schedule) bool { return s.Called(t.run, t.call, t.printed) })
}
