package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockstep/internal/judge"
	"lockstep/internal/plan"
)

// search runs a task that looks for its capacity: a try of the task for every step, each judged like a task of its own, and one outcome for
// all of them. A step that fails is tried again by the cell's policy, and its answer is that of the try that counts alone. A search that is broken off has no outcome and is begun again.
func (x *execution) search(ctx context.Context, t plan.Task, n int) error {
	s := *t.Cell.Workload.Search
	var (
		steps   []plan.Step
		again   []plan.Tried
		last    tried
		few     *tooFew
		started time.Time
	)
	for {
		m, more := newCapacitySearch(s, steps).next()
		if !more {
			break
		}
		if len(steps) > 0 {
			if err := pause(ctx, x.run.Settle.D()); err != nil {
				return err
			}
		}
		measure := s.Step
		if m.full {
			measure = t.Cell.Workload.Measure
		}
		y, tries, err := x.counted(ctx, t.Step(m.rate, measure), n, fmt.Sprintf("step %d: %s (%s)", len(steps)+1, perSecond(m.rate), m.kind), nil)
		again = append(again, tries...)
		if errors.As(err, &few) {
			break
		}
		if err != nil {
			return err
		}
		if last = y; started.IsZero() {
			started = y.facts.Started
		}
		steps = append(steps, x.answer(s, y, m))
	}
	if few != nil && len(steps) == 0 {
		return x.conclude(ctx, after(again, without(t, few)))
	}
	r := newCapacitySearch(s, steps).result()
	r.Steps = steps
	if few != nil {
		last.facts.Failure, r.Sure, r.Why = few.Error(), false, few.Error()
	}
	last.facts.Started = started
	return x.conclude(ctx, after(again, judge.Searched(t, x.outcome(last), r)))
}

// answer is the step that a try was.
func (x *execution) answer(s plan.Search, y tried, m trial) plan.Step {
	o := x.outcome(y)
	step := plan.Step{Rate: m.rate, Try: y.name, Kind: m.kind, Measure: y.task.Cell.Workload.Measure, Values: judge.StepValues(s, y.task, o)}
	if o.Verdict == plan.Invalid {
		step.Broken = o.Reasons
	}
	step.Answer, step.Why = judge.Answer(s, y.task, o)
	return step
}
