// Package sampling decides how often cells are repeated (plan.Run.Until): as often as it takes until a value is known
// well enough. It decides by what the repetitions so far have measured and by nothing else, so that whoever reads the
// same outcomes decides the same: the controller that leads, one that takes the run over, and everything that is made
// of its record. Of a run without Until it says what every run says: all repetitions.
package sampling

import (
	"fmt"
	"math"

	"lockstep/internal/display"
	"lockstep/internal/plan"
	"lockstep/internal/stats"
)

// minRounds is the minimum of rounds. Fewer than the interval takes could never end a cell early.
const minRounds = 3

// Least is how many rounds there are before the first decision: as many as the interval takes, at least three.
func Least(u plan.StopRule) int { return max(minRounds, stats.MinForMedian(u.Confidence)) }

// Rounds are the repetitions of the cells of a run. It belongs to one goroutine.
type Rounds struct {
	run   plan.Run
	cells map[string]*series // nil of a run without Until
}

// series is the repetitions of one cell.
type series struct {
	value   string
	numbers map[int]*float64 // of repetitions that have an outcome; nil: without a number
	state   *Cell            // decided by them; nil: not yet
}

// Cell is how far one cell is.
type Cell struct {
	Repeat  int  // how often it is measured: at most, until it is Over
	Over    bool // no further repetition is needed
	Reached bool // as it is known well enough
	Done    int  // repetitions that have an outcome
	Numbers int  // of these: valid, with a number
	// Part is half the width of the interval of the median of these, as a part of it, if it is Known.
	Part  float64
	Known bool
}

// New is the rounds of a run of which nothing has an outcome yet.
func New(run plan.Run) *Rounds {
	r := &Rounds{run: run}
	if run.Until != nil {
		r.cells = make(map[string]*series, len(run.Cells))
		for _, c := range run.Cells {
			r.cells[c.ID] = &series{value: run.Until.Of(c.Workload), numbers: map[int]*float64{}}
		}
	}
	return r
}

// Of is the rounds of a run after these outcomes.
func Of(run plan.Run, outcomes []plan.Outcome) *Rounds {
	r := New(run)
	for _, o := range outcomes {
		r.Add(o)
	}
	return r
}

// Add adds an outcome. The order does not matter; of one repetition the last counts.
func (r *Rounds) Add(o plan.Outcome) {
	var number *float64
	if n, has := r.Number(o); has {
		number = &n
	}
	r.add(o.Cell, o.Repetition, number)
}

// Number returns the number of an outcome that counts, for Had elsewhere; false: it has none.
func (r *Rounds) Number(o plan.Outcome) (float64, bool) {
	s := r.cells[o.Cell]
	if s == nil || o.Verdict != plan.Valid {
		return 0, false
	}
	v, has := o.Value(s.value)
	return v.Number, has && v.NA == "" && v.Over == 0 && !math.IsNaN(v.Number) && !math.IsInf(v.Number, 0)
}

// Had adds a task that has an outcome of which only the number is known; nil: it has none.
func (r *Rounds) Had(t plan.Task, number *float64) { r.add(t.Cell.ID, t.Repetition, number) }

// add ignores repetitions of no task of the plan.
func (r *Rounds) add(cell string, repetition int, number *float64) {
	if s := r.cells[cell]; s != nil && repetition >= 1 && repetition <= r.run.Repeat {
		s.numbers[repetition], s.state = number, nil
	}
}

// Needed reports whether a task is one of the run: not if its cell was known well enough before.
func (r *Rounds) Needed(t plan.Task) bool {
	if r.cells[t.Cell.ID] == nil {
		return true
	}
	_, has := r.cells[t.Cell.ID].numbers[t.Repetition]
	return has || !r.Cell(t.Cell.ID).Over
}

// Open reports whether there may be fewer tasks than Tasks says.
func (r *Rounds) Open() bool {
	for id := range r.cells {
		if r.Undecided(id) {
			return true
		}
	}
	return false
}

// Undecided reports whether a cell may be measured fewer times than Cell says.
func (r *Rounds) Undecided(id string) bool {
	return r.cells[id] != nil && !r.Cell(id).Over && r.run.Repeat > r.least()
}

// Tasks is how many tasks the run has: at most, while it is Open.
func (r *Rounds) Tasks() (n int) {
	for _, c := range r.run.Cells {
		n += r.Cell(c.ID).Repeat
	}
	return n
}

// Cell is how far a cell is, by its id.
func (r *Rounds) Cell(id string) Cell {
	s := r.cells[id]
	if s == nil {
		return Cell{Repeat: r.run.Repeat}
	}
	if s.state == nil {
		c := r.decide(s.numbers)
		s.state = &c
	}
	return *s.state
}

func (r *Rounds) least() int { return min(r.run.Repeat, Least(*r.run.Until)) }

// decide goes through the rounds that are complete, up to the one that is enough. Repetitions after it were made before
// an earlier one was made again.
func (r *Rounds) decide(all map[int]*float64) Cell {
	c := Cell{Repeat: r.run.Repeat, Done: len(all)}
	var numbers []float64
	for n := 1; n <= r.run.Repeat && !c.Over; n++ {
		number, has := all[n]
		if !has {
			break
		}
		if number != nil {
			numbers = append(numbers, *number)
		}
		if n < r.least() {
			continue
		}
		confidence := r.run.Until.Confidence
		summary := stats.Summary{N: len(numbers), Median: stats.Median(numbers),
			Interval: stats.MedianInterval(numbers, confidence)}
		c.Numbers = summary.N
		c.Part, c.Known = summary.Relative(confidence)
		c.Reached = c.Known && c.Part < r.run.Until.Within
		c.Over = c.Reached || n == r.run.Repeat
	}
	if c.Over {
		c.Repeat = c.Done
	}
	return c
}

// Missed says of a cell that has had all its repetitions that it is not known well enough, in words; empty: it is, or
// it has not.
func (r *Rounds) Missed(id string) string {
	c := r.Cell(id)
	if !c.Over || c.Reached {
		return ""
	}
	value := r.cells[id].value
	text := fmt.Sprintf("the interval of %s cannot be told", value)
	switch {
	case c.Known:
		text = fmt.Sprintf("ci of %s is ±%s after %d repetitions", value, display.Percent(c.Part), c.Done)
	case c.Numbers < r.least():
		text += fmt.Sprintf(": %d of %d repetitions are valid and have a number, and it takes %d", c.Numbers, c.Done,
			r.least())
	default:
		text += fmt.Sprintf(" as a part of its median, which is zero, after %d repetitions", c.Done)
	}
	return text + ", wanted: " + r.run.Until.Rule
}

// Numbers returns what the repetitions measured of the value that decides how many there are (plan.Run.Until), by task.
func Numbers(run plan.Run, outcomes []plan.Outcome) map[string]float64 {
	if run.Until == nil {
		return nil
	}
	rounds, numbers := New(run), map[string]float64{}
	for _, o := range outcomes {
		if n, has := rounds.Number(o); has {
			numbers[o.Task] = n
		}
	}
	return numbers
}
