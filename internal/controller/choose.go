package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// missing is the cell that lacks the most agents, and those it could have; nil if none lacks any.
func missing(todo []plan.Task, done map[string]bool, fit []wire.AgentInfo) (worst *plan.Cell, there []wire.AgentInfo) {
	most := 0
	looked := map[string]bool{}
	for i := range todo {
		c := &todo[i].Cell
		if done[todo[i].ID] || todo[i].Repetition > 1 && !done[c.ID+"-r1"] { // looked at with its first repetition
			continue
		}
		key := fmt.Sprint(c.Workload.Roles())
		if looked[key] {
			continue
		}
		looked[key] = true
		if _, lack := cast(c.Workload, fit); lack > most {
			most, worst, there = lack, c, fit
		}
	}
	return worst, there
}

// lacks says what no agent may disturb although a cell's faults are to, if anything.
func lacks(todo []plan.Task, done map[string]bool, fit []wire.AgentInfo) string {
	for i := range todo {
		w := todo[i].Cell.Workload
		if len(w.Faults) == 0 || done[todo[i].ID] {
			continue
		}
		chosen, _ := cast(w, fit)
		if _, _, missing := disturbers(w, chosen, fit); missing != "" {
			return missing
		}
	}
	return ""
}

// tooFew is a shortage of agents that lasted longer than the run's grace.
type tooFew struct{ words string }

func (e *tooFew) Error() string { return e.words }

// fit returns the agents that this run may use, sorted by name, and notes which are reserved for it.
func (x *execution) fit(ctx context.Context) []wire.AgentInfo {
	fit := x.queue.fit(x.claim)
	if now := x.queue.names(x.claim); !slices.Equal(now, x.state.Agents) {
		x.state.Agents = now
		x.note(ctx)
	}
	return fit
}

// choose picks the agents of a task, in the order of its roles. It waits for missing ones until grace has passed since the shortage began.
func (x *execution) choose(ctx context.Context, t plan.Task, n int) ([]wire.AgentInfo, error) {
	said := false
	for {
		changed := x.agents.watch(ctx)
		fit := x.fit(ctx)
		words := shortage(t.Cell, fit)
		if chosen, lack := cast(t.Cell.Workload, fit); lack == 0 {
			all, _, missing := disturbers(t.Cell.Workload, chosen, fit)
			if missing == "" {
				x.short = time.Time{}
				return all, nil
			}
			words = missing
		}
		if x.short.IsZero() {
			x.short = time.Now()
		}
		left := x.run.Grace.D() - time.Since(x.short)
		if left <= 0 {
			return nil, &tooFew{fmt.Sprintf("%s, after a grace of %v", words, x.run.Grace)}
		}
		if !said {
			said = true
			e := wire.RunEvent{At: time.Now(), Kind: wire.WaitingAgents, Task: t.ID, N: n, Of: x.of, Detail: words}
			if err := x.record.Event(ctx, e); err != nil {
				return nil, err
			}
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}
