package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// staff chooses the agents of a cell, those that do its faults included, or says why it cannot have them.
func staff(c plan.Cell, there []wire.AgentInfo) (all []wire.AgentInfo, missing *wire.End) {
	chosen, lack := cast(c.Workload, there)
	if len(lack) > 0 {
		return nil, shortage(c, there)
	}
	all, _, words := disturbers(c.Workload, chosen, there)
	if words != "" {
		return nil, &wire.End{Reason: wire.EndNoTarget, Detail: words}
	}
	return all, nil
}

// fit returns the agents that this run may use, sorted by name, and notes which are reserved for it.
func (x *execution) fit(ctx context.Context) []wire.AgentInfo {
	fit := x.queue.fit(x.queuedRun)
	if now := x.queue.names(x.queuedRun); !slices.Equal(now, x.state.Agents) {
		x.state.Agents = now
		x.note(ctx)
	}
	return fit
}

// choose picks the agents of a task, in the order of its roles. It waits for missing ones until grace has passed since the shortage began, and
// then returns it in words.
func (x *execution) choose(ctx context.Context, t plan.Task, n int) (all []wire.AgentInfo, short string, err error) {
	said := false
	err = x.agents.await(ctx, nil, nil, func() (time.Duration, error) {
		var missing *wire.End
		if all, missing = staff(t.Cell, x.fit(ctx)); missing == nil {
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
		if said {
			return left, nil
		}
		said, x.state.Waiting = true, missing.Detail
		x.begins(ctx, "")
		return left, x.record.Event(ctx, wire.RunEvent{At: time.Now(), Kind: wire.WaitingAgents, Task: t.ID, N: n, Of: x.of, Detail: missing.Detail})
	})
	x.state.Waiting = "" // noted with what follows
	return all, short, err
}
