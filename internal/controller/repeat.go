package controller

import (
	"context"
	"fmt"
	"time"

	"lockstep/internal/runview"
	"lockstep/internal/wire"
)

// takeOver continues a run that a former leader executed. The task in flight has no outcome and is repeated: this
// leader does not have the agents' reports to the former one.
func (x *execution) takeOver(ctx context.Context, h *runview.State) error {
	x.journal.end.Ran, x.journal.end.Failed = h.Ran, h.Failed
	what := fmt.Sprintf("controller %s has taken over", x.leader.lease.Name())
	if x.journal.record.PreviousEpoch() == x.leader.lease.Epoch() {
		what = fmt.Sprintf("controller %s continues the run after an error of the control plane", x.leader.lease.Name())
	}
	e := wire.RunEvent{At: time.Now(), Kind: wire.TakenOver, Of: x.journal.of}
	if h.Attempt != nil {
		f := h.Attempt.Started
		e.Task, e.Attempt, e.N = f.Task, f.Attempt, f.N
		what += ": the task in flight is repeated"
	} else {
		what += ": no task was in flight"
	}
	e.Detail = what
	if err := x.journal.record.Event(ctx, e); err != nil || h.Attempt == nil {
		return err
	}
	x.log.Warn("run taken over", "task", e.Task, "attempt", e.Attempt, "what", what, "epoch", x.leader.lease.Epoch(),
		"former", x.journal.record.PreviousEpoch())
	x.leader.ownership.awaitStaleAttempt(ctx, h.Attempt.Ref)
	return x.journal.record.Event(ctx, wire.RunEvent{At: time.Now(), Kind: wire.TaskInterrupted, Task: e.Task,
		Attempt: e.Attempt, N: e.N, Of: x.journal.of, Detail: what})
}
