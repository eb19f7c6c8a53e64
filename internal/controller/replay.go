package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/sink"
)

// Replay writes all points of a run again, from its directory alone, to the InfluxDB of to. The caller keeps the
// ownership of to. The points have the same tags, times and fields as during the run, so each is stored once.
//
// Replay waits until all points are written. It gives up when InfluxDB accepts no point for the duration of patience.
// It stores the counts in the directory and returns them. Points that InfluxDB does not accept are no error.
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
	// all points are written, or Left and LastError describe the rest
	if !incomplete && d.Left == 0 || errors.Is(failed, sink.ErrAway) {
		failed = nil
	}
	if failed != nil {
		d.Cause = cmp.Or(context.Cause(ctx), failed).Error()
		if errors.Is(context.Cause(ctx), context.Canceled) {
			d.Cause = "interrupted"
		}
	}
	return d, errors.Join(failed, dir.AddDelivery(d))
}

// replayAll passes all points of a run to a sink. It does not wait until they are written.
func replayAll(ctx context.Context, dir *runs.Run, points *sink.Sink) error {
	marks, err := dir.Marks()
	if err != nil {
		return err
	}
	byTask := map[string][]runs.Mark{} // "": of the run itself
	for _, m := range marks {
		byTask[m.Task] = append(byTask[m.Task], m)
	}
	points.Begin(dir.Plan())
	for _, t := range dir.Plan().Tasks() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := replayTask(ctx, dir, t, byTask[t.ID], points); err != nil {
			return fmt.Errorf("write points of task %s again: %w", t.ID, err)
		}
	}
	for _, m := range byTask[""] {
		if m.Kind == runs.MarkEnd {
			points.End(m.At, m.Text)
		}
	}
	return nil
}

// replayTask passes the points of all attempts and of the outcome of a task to a sink.
func replayTask(ctx context.Context, dir *runs.Run, t plan.Task, marks []runs.Mark, points *sink.Sink) error {
	for _, m := range marks {
		switch m.Kind {
		case runs.MarkStart:
			points.Start(startOf(t, m))
			err := dir.Snapshots(t.ID, m.Name, func(s record.Snapshot) error {
				err := points.AwaitSpace(ctx)
				if err == nil {
					points.Snapshot(s)
				}
				return err
			})
			if err != nil {
				return err
			}
		case runs.MarkGiveUp:
			points.GiveUp(t.ID, m.At, m.Text)
		}
	}
	if o, err := dir.Outcome(t.ID); err == nil {
		points.Outcome(o, sink.Start{Task: t, Attempt: dir.Attempt(t.ID)})
	}
	return points.AwaitSpace(ctx)
}
