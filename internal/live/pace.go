package live

import (
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/sampling"
)

// Pace is how far a run is, and how long the rest of it takes. It knows only what it is told. It belongs to one goroutine.
type Pace struct {
	settle  time.Duration
	rest    map[string]time.Duration // what tasks without an outcome were planned to take, by id
	ended   int                      // tasks that have one
	rounds  *sampling.Rounds
	cells   map[string][]plan.Task // by id, of a run that repeats until something is known
	planned time.Duration          // in rest
	took    time.Duration          // by the tasks that ended since,
	meant   time.Duration          // and what they were planned to take
}

// NewPace is that of a run of which nothing has an outcome yet.
func NewPace(run plan.Run) *Pace {
	p := &Pace{settle: run.Settle.D(), rest: map[string]time.Duration{}, rounds: sampling.New(run), cells: map[string][]plan.Task{}}
	for _, t := range run.Tasks() {
		p.rest[t.ID] = plan.Estimate(t.Cell.Workload) + p.settle
		p.planned += p.rest[t.ID]
		if run.Until != nil {
			p.cells[t.Cell.ID] = append(p.cells[t.Cell.ID], t)
		}
	}
	return p
}

// Done takes a task out that had an outcome before: of what it took nothing is learnt.
func (p *Pace) Done(task string) (planned time.Duration, had bool) {
	if planned, had = p.drop(task); had {
		p.ended++
	}
	return planned, had
}

func (p *Pace) drop(task string) (planned time.Duration, had bool) {
	planned, had = p.rest[task]
	delete(p.rest, task)
	p.planned -= planned
	return planned, had
}

// Known takes what tasks that had an outcome before measured of the value that decides how often cells are repeated.
func (p *Pace) Known(numbers map[string]float64) {
	for id, all := range p.cells {
		for _, t := range all {
			n, has := numbers[t.ID]
			if _, left := p.rest[t.ID]; has {
				p.rounds.Had(t, &n)
			} else if !left {
				p.rounds.Had(t, nil)
			}
		}
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

// Ended takes the outcome of a task that has just ended.
func (p *Pace) Ended(o plan.Outcome) {
	if planned, had := p.Done(o.Task); had {
		p.meant += planned
		p.took += o.Ended.Sub(o.Started) + p.settle
	}
	p.rounds.Add(o)
	p.spare(o.Cell)
}

// AtMost tells whether there may be fewer tasks: cells are repeated until they are known well enough.
func (p *Pace) AtMost() bool { return p.rounds.Open() }

// All is how many tasks the run has, at most, and how many of them have an outcome.
func (p *Pace) All() (done, of int) { return p.ended, p.ended + len(p.rest) }

// Tasks is how many have no outcome.
func (p *Pace) Tasks() int { return len(p.rest) }

// Planned is what they were planned to take.
func (p *Pace) Planned() time.Duration { return p.planned }

// Left is how long the rest takes if tasks go on to take as much more than planned as those that have ended; before one has, as planned. A task that has
// been under way for so long is a part of the rest; "": none is.
func (p *Pace) Left(task string, since time.Duration) time.Duration {
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

// Part is how much of the run's time since the first end that was told is over, 0 … 1.
func (p *Pace) Part(task string, since time.Duration) float64 {
	spent := p.took
	if task != "" {
		spent += since
	}
	if spent <= 0 {
		return 0
	}
	return float64(spent) / float64(spent+p.Left(task, since))
}
