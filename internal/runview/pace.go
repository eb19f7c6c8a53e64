package runview

import (
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/sampling"
)

// Pace estimates how long the rest of a run takes.
type Pace struct {
	settle  time.Duration
	rest    map[string]time.Duration // the planned time of tasks without an outcome, by id
	over    int                      // tasks with an outcome
	rounds  *sampling.Rounds
	cells   map[string][]plan.Task // by id, of a run that repeats until a value is known well enough
	planned time.Duration          // the sum of rest
	took    time.Duration          // by the tasks that ended since,
	meant   time.Duration          // and their planned time
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

// done takes out a task that has an outcome. It reports whether it was in.
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

// dropNotNeeded takes out the tasks that are not needed, of all cells.
func (p *Pace) dropNotNeeded() {
	for id := range p.cells {
		p.spare(id)
	}
}

// spare takes out the tasks of a cell that are not needed.
func (p *Pace) spare(cell string) {
	for _, t := range p.cells[cell] {
		if !p.rounds.Needed(t) {
			p.drop(t.ID)
		}
	}
}

// ended takes an outcome that the rounds have already.
func (p *Pace) ended(o plan.Outcome) {
	if planned, was := p.done(o.Task); was {
		p.meant += planned
		p.took += o.Ended.Sub(o.Started) + p.settle
	}
	p.spare(o.Cell)
}

// AtMost reports whether there may be fewer tasks: cells are repeated until they are known well enough.
func (p *Pace) AtMost() bool { return p.rounds.Open() }

// All returns how many tasks have an outcome, and how many the run has: the maximum, while AtMost.
func (p *Pace) All() (done, of int) { return p.over, p.over + len(p.rest) }

// Tasks is the number of tasks without an outcome.
func (p *Pace) Tasks() int { return len(p.rest) }

// Planned is their planned time.
func (p *Pace) Planned() time.Duration { return p.planned }

// left is the time that the rest takes if the remaining tasks exceed their planned time as those that have ended. A
// task that has been under way since is a part of the rest; "": none is.
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

// part is the part of the time since the first outcome that is over, 0 to 1.
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
