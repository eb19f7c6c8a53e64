package runview

import (
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/sampling"
)

// Pace estimates the remaining time of a run.
type Pace struct {
	settle  time.Duration
	rest    map[string]time.Duration // planned time of tasks without an outcome, by id
	over    int                      // number of tasks with an outcome
	rounds  *sampling.Rounds
	cells   map[string][]plan.Task // by id, for a run that repeats cells until a value is known well enough
	planned time.Duration          // the sum of rest
	took    time.Duration          // total time of the tasks that have ended since
	meant   time.Duration          // planned time of these tasks
}

func newPace(run plan.Run, rounds *sampling.Rounds, tasks []plan.Task) *Pace {
	p := &Pace{settle: run.Settle.D(), rest: make(map[string]time.Duration, len(tasks)), rounds: rounds,
		cells: map[string][]plan.Task{}}
	for _, t := range tasks {
		p.rest[t.ID] = plan.Estimate(t.Cell.Workload) + p.settle
		p.planned += p.rest[t.ID]
		if run.Until != nil {
			p.cells[t.Cell.ID] = append(p.cells[t.Cell.ID], t)
		}
	}
	return p
}

// done removes a task that has an outcome. It reports whether the task was in rest.
func (p *Pace) done(task string) (planned time.Duration, was bool) {
	if planned, was = p.drop(task); was {
		p.over++
	}
	return planned, was
}

func (p *Pace) drop(task string) (planned time.Duration, was bool) {
	planned, was = p.rest[task]
	delete(p.rest, task)
	p.planned -= planned
	return planned, was
}

// spare removes the tasks of a cell that are not needed.
func (p *Pace) spare(cell string) {
	for _, t := range p.cells[cell] {
		if !p.rounds.Needed(t) {
			p.drop(t.ID)
		}
	}
}

// ended adds an outcome, which must have been added to the rounds before.
func (p *Pace) ended(o plan.Outcome) {
	if planned, was := p.done(o.Task); was {
		p.meant += planned
		p.took += o.Ended.Sub(o.Started) + p.settle
	}
	p.spare(o.Cell)
}

// All returns the number of tasks with an outcome, and the number of all tasks, a maximum while State.Rounds is open.
func (p *Pace) All() (done, of int) { return p.over, p.over + len(p.rest) }

// Tasks returns the number of tasks without an outcome.
func (p *Pace) Tasks() int { return len(p.rest) }

// Planned returns the planned time of the tasks without an outcome.
func (p *Pace) Planned() time.Duration { return p.planned }

// left returns the remaining time. It assumes that the remaining tasks exceed their planned time by the same factor as
// those that have ended. task has run for since; "": none runs.
func (p *Pace) left(task string, since time.Duration) time.Duration {
	pace := 1.0
	if p.meant > 0 && p.took > 0 {
		pace = float64(p.took) / float64(p.meant)
	}
	left := float64(p.planned) * pace
	if task != "" {
		left -= min(float64(since), float64(p.rest[task])*pace)
	}
	return time.Duration(max(0, left))
}

// part returns the completed share of the time, 0 to 1.
func (p *Pace) part(task string, since time.Duration) float64 {
	spent := p.took
	if task != "" {
		spent += since
	}
	if spent <= 0 {
		return 0
	}
	return float64(spent) / float64(spent+p.left(task, since))
}
