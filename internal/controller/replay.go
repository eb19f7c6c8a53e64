package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/runs"
	"lockstep/internal/sink"
)

// Replay writes all points of a run again, made of its directory alone, to the InfluxDB of to, which stays the caller's.
// The points have the same tags, times and fields as during the run, so that InfluxDB has each once. Replay waits until
// all are written; it gives up when InfluxDB accepts none for patience. It stores the counts in the directory and
// returns them. Points that InfluxDB does not accept are no error.
func Replay(ctx context.Context, dir *runs.Run, to *sink.Sink, patience time.Duration) (plan.Delivery, error) {
	points := to.ForReplay(patience)
	failed := replayAll(ctx, dir, points)
	incomplete := failed != nil
	if failed == nil {
		failed = points.Drain(ctx)
	}
	closing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if failed != nil {
		cancel(failed) // Close does not wait again
	}
	d := points.Close(closing)
	d.Incomplete = incomplete
	switch {
	case !incomplete && d.Left == 0, errors.Is(failed, sink.ErrAway): // all are written, or Left and LastError say why not
		failed = nil
	case failed != nil:
		d.Cause = causeOf(ctx, failed)
	}
	return d, errors.Join(failed, dir.AddDelivery(d))
}

// causeOf is the text of the cause for which a replay ended early.
func causeOf(ctx context.Context, failed error) string {
	switch ended := context.Cause(ctx); {
	case ended == nil:
		return failed.Error()
	case errors.Is(ended, context.Canceled):
		return "interrupted"
	default:
		return ended.Error()
	}
}

// replayAll passes all points of a run to a sink. It does not wait until they are written.
func replayAll(ctx context.Context, dir *runs.Run, points *sink.Sink) error {
	marks, err := dir.Marks()
	if err != nil {
		return err
	}
	r := replay{ctx: ctx, dir: dir, points: points, marked: len(marks) > 0, of: map[string][]runs.Mark{}}
	for _, m := range marks {
		r.of[m.Task] = append(r.of[m.Task], m)
	}
	points.Begin(dir.Plan())
	for _, t := range dir.Plan().Tasks() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := r.task(t); err != nil {
			return fmt.Errorf("write points of task %s again: %w", t.ID, err)
		}
	}
	for _, m := range r.of[""] {
		if m.Kind == runs.MarkEnd {
			points.End(m.At, m.Text)
		}
	}
	return nil
}

type replay struct {
	ctx    context.Context
	dir    *runs.Run
	points *sink.Sink
	marked bool                   // the record has marks
	of     map[string][]runs.Mark // by task; "": the run's own
}

// task writes the points of all attempts of a task, and of its outcome.
func (r *replay) task(t plan.Task) error {
	o, err := r.dir.Outcome(t.ID)
	done := err == nil
	marks := r.of[t.ID]
	if !r.marked && done { // of an earlier release: only the try that counts is known
		marks = []runs.Mark{startOfOutcome(o, r.dir.Try(t.ID))}
	}
	for _, m := range marks {
		switch m.Kind {
		case runs.MarkStart:
			r.points.Start(startOf(t, m))
			if err := r.dir.Snapshots(t.ID, m.Name, r.snapshot); err != nil {
				return err
			}
		case runs.MarkGiveUp:
			r.points.GiveUp(t.ID, m.At, m.Text)
		}
	}
	if done {
		r.points.Outcome(o, sink.Start{Task: t, Try: r.dir.Try(t.ID)})
	}
	return r.points.AwaitSpace(r.ctx)
}

func (r *replay) snapshot(s record.Snapshot) error {
	if err := r.points.AwaitSpace(r.ctx); err != nil {
		return err
	}
	r.points.Snapshot(s)
	return nil
}

// startOfOutcome is the beginning of a try as far as its outcome tells.
func startOfOutcome(o plan.Outcome, try int) runs.Mark {
	m := runs.Mark{At: o.Started, Kind: runs.MarkStart, Try: try}
	for _, a := range o.Agents {
		m.Agents = append(m.Agents, a.Agent)
	}
	return m
}
