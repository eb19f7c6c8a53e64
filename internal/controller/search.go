package controller

import (
	"context"
	"fmt"

	"lockstep/internal/judge"
	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// search runs a task that searches for its capacity. Each step is an attempt of the task that is judged separately, and
// all steps lead to one outcome. Failed attempts of a step are repeated by the cell's policy, and only the attempt that
// counts is the answer. Each step is stored when it has ended, so that the next leader continues after it.
func (x *execution) search(ctx context.Context, t plan.Task, n int) error {
	s := *t.Cell.Workload.Search
	found, again := x.searches[t.ID], x.retries[t.ID]
	few := "" // in words: too few agents for a step
	for {
		m, more := newCapacitySearch(s, found.Steps).next()
		if !more {
			break
		}
		if len(found.Steps) > 0 {
			if err := pause(x.between, x.run.Settle.D()); err != nil {
				return err
			}
		}
		measure := s.Step
		if m.full {
			measure = t.Cell.Workload.Measure
		}
		number := len(found.Steps) + 1
		r, retries, err := x.measure(ctx, t.Step(m.rate, measure), n,
			fmt.Sprintf("step %d: %s (%s)", number, perSecond(m.rate), m.kind), nil)
		again = append(again, retries...)
		if err != nil {
			return err
		}
		if r.attempt == "" {
			if len(found.Steps) == 0 {
				return x.journal.outcome(ctx, withRetries(outcomeWithout(t, "", r.failure), again), x.rounds)
			}
			few = r.failure
			break
		}
		step := answer(s, r, m)
		e := wire.RunEvent{Kind: wire.StepEnded, Task: t.ID, Attempt: r.attempt, N: n, Step: &step, Outcome: &r.outcome}
		if err := x.journal.event(ctx, e); err != nil {
			return err
		}
		x.journal.state.Blamed, x.journal.state.Crashes = "", nil // a later crash belongs to another step
		x.journal.inFlight(ctx, "")
		found = found.With(step, r.outcome)
	}
	result := newCapacitySearch(s, found.Steps).result()
	result.Steps = found.Steps
	if few != "" {
		result.Sure, result.Why = false, few
	}
	found.Last.Started = found.Started
	return x.journal.outcome(ctx, withRetries(judge.Searched(t, found.Last, result), again), x.rounds)
}

// answer returns the step that an attempt was.
func answer(s plan.Search, r result, m trial) plan.Step {
	step := plan.Step{Rate: m.rate, Attempt: r.attempt, Kind: m.kind, Measure: r.task.Cell.Workload.Measure,
		Values: judge.StepValues(s, r.task, r.outcome)}
	if r.outcome.Verdict == plan.Invalid {
		step.Broken = r.outcome.Reasons
	}
	step.Answer, step.Why = judge.Answer(s, r.task, r.outcome)
	return step
}
