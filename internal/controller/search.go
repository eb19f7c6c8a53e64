package controller

import (
	"context"
	"fmt"

	"lockstep/internal/judge"
	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// search runs a task that looks for its capacity: a try of the task for every step, each judged like a task of its own, and one outcome for
// all of them. A step that fails is tried again by the cell's policy, and its answer is that of the try that counts alone. Each step is
// stored when it has ended, so that the next leader continues behind it.
func (x *execution) search(ctx context.Context, t plan.Task, n int) error {
	s := *t.Cell.Workload.Search
	found, again := x.found[t.ID], x.tries[t.ID]
	few := "" // in words: there were too few agents for a step
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
		y, tries, err := x.counted(ctx, t.Step(m.rate, measure), n, fmt.Sprintf("step %d: %s (%s)", number, perSecond(m.rate), m.kind), nil)
		again = append(again, tries...)
		if err != nil {
			return err
		}
		if y.name == "" {
			if len(found.Steps) == 0 {
				return x.conclude(ctx, after(again, without(t, y.failure)))
			}
			few = y.failure
			break
		}
		step := answer(s, y, m)
		e := wire.RunEvent{Kind: wire.StepEnded, Task: t.ID, Try: y.name, N: n, Step: &step, Outcome: &y.outcome}
		if err := x.event(ctx, e); err != nil {
			return err
		}
		x.state.Blamed, x.state.Crashes = "", nil // what fails from now on is another step
		x.begins(ctx, "")
		found = found.With(step, y.outcome)
	}
	r := newCapacitySearch(s, found.Steps).result()
	r.Steps = found.Steps
	if few != "" {
		r.Sure, r.Why = false, few
	}
	found.Last.Started = found.Started
	return x.conclude(ctx, after(again, judge.Searched(t, found.Last, r)))
}

// answer is the step that a try was.
func answer(s plan.Search, y tried, m trial) plan.Step {
	step := plan.Step{Rate: m.rate, Try: y.name, Kind: m.kind, Measure: y.task.Cell.Workload.Measure, Values: judge.StepValues(s, y.task, y.outcome)}
	if y.outcome.Verdict == plan.Invalid {
		step.Broken = y.outcome.Reasons
	}
	step.Answer, step.Why = judge.Answer(s, y.task, y.outcome)
	return step
}
