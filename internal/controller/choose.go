package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// unmet returns how a run ends that has these agents alone: a cell that is left lacks agents (the one that lacks the most
// is named), or no agent may disturb a target of its faults. nil: every cell can be executed.
func unmet(todo []plan.Task, done map[string]bool, fit []wire.AgentInfo) (end *wire.End) {
	most := 0
	looked := map[string]bool{}
	for _, t := range todo {
		if done[t.ID] || t.Repetition > 1 && !done[t.Cell.ID+"-r1"] { // looked at with its first repetition
			continue
		}
		w := t.Cell.Workload
		key := fmt.Sprint(w.Roles(), w.Targets())
		if looked[key] {
			continue
		}
		looked[key] = true
		chosen, lack := cast(w, fit)
		if lack > most {
			most = lack
			end = &wire.End{Reason: wire.EndNoAgents, Detail: shortage(t.Cell, fit), Have: len(fit), Need: t.Cell.Agents()}
		}
		if end != nil {
			continue
		}
		if _, _, missing := disturbers(w, chosen, fit); missing != "" {
			end = &wire.End{Reason: wire.EndNoTarget, Detail: missing}
		}
	}
	return end
}

// fit returns the agents that this run may use, sorted by name, and notes which are reserved for it.
func (x *execution) fit(ctx context.Context) []wire.AgentInfo {
	fit := x.queue.fit(x.claim)
	if now := x.queue.names(x.claim); !slices.Equal(now, x.state.Agents) {
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
		fit := x.fit(ctx)
		words := shortage(t.Cell, fit)
		if chosen, lack := cast(t.Cell.Workload, fit); lack == 0 {
			var missing string
			if all, _, missing = disturbers(t.Cell.Workload, chosen, fit); missing == "" {
				x.short = time.Time{}
				return 0, nil
			}
			words = missing
		}
		if x.short.IsZero() {
			x.short = time.Now()
		}
		left := x.run.Grace.D() - time.Since(x.short)
		if left <= 0 {
			short = fmt.Sprintf("%s, after a grace of %v", words, x.run.Grace)
			return 0, nil
		}
		if said {
			return left, nil
		}
		said = true
		return left, x.record.Event(ctx, wire.RunEvent{At: time.Now(), Kind: wire.WaitingAgents, Task: t.ID, N: n, Of: x.of, Detail: words})
	})
	return all, short, err
}
