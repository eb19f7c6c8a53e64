// Package sampling decides how often cells are repeated (plan.Run.Until): as often as it takes until a value is known well enough. It decides by what the
// repetitions so far have measured and by nothing else, so that whoever reads the same outcomes decides the same: the controller that leads,
// one that takes the run over, and everything that is made of its record. Of a run without Until it says what every run says: all repetitions.
package sampling

import (
	"fmt"
	"math"
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/stats"
)

// Bounds of plan.Run.Repeat with Until: fewer rounds than the interval takes could never end one early.
const (
	leastRounds = 3
	Most        = 200
)

// Least is how many rounds there are before the first decision: as many as the interval takes, at least three.
func Least(u plan.Until) int { return max(leastRounds, stats.LeastForMedian(u.Confidence)) }

// Rounds is how far the cells of a run are. It belongs to one goroutine.
type Rounds struct {
	run   plan.Run
	cells map[string]*series
}

// series is the repetitions of one cell.
type series struct {
	value  string
	until  plan.Until
	most   int
	got    map[int]*float64 // of repetitions that have an outcome; nil: without a number
	last   int              // the highest of them
	looked int              // so many rounds did not end it
	state  Cell
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
	r := &Rounds{run: run, cells: make(map[string]*series, len(run.Cells))}
	if run.Until == nil {
		return r
	}
	for _, c := range run.Cells {
		s := &series{value: run.Until.Of(c.Workload), until: *run.Until, most: run.Repeat, got: map[int]*float64{}}
		s.decide()
		r.cells[c.ID] = s
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

// Add takes an outcome. The order does not matter; of one repetition the last counts.
func (r *Rounds) Add(o plan.Outcome) {
	if s := r.cells[o.Cell]; s != nil {
		s.add(o.Repetition, number(o, s.value))
	}
}

// number is what an outcome tells of a value; nil: nothing that counts.
func number(o plan.Outcome, value string) *float64 {
	v, has := o.Value(value)
	if !has || v.NA != "" || v.Over > 0 || o.Verdict != plan.Valid || math.IsNaN(v.Number) || math.IsInf(v.Number, 0) {
		return nil
	}
	return &v.Number
}

// Number is what Had has to be told of an outcome elsewhere; false: it has no number.
func (r *Rounds) Number(o plan.Outcome) (float64, bool) {
	s := r.cells[o.Cell]
	if s == nil {
		return 0, false
	}
	if n := number(o, s.value); n != nil {
		return *n, true
	}
	return 0, false
}

// Had takes a task that has an outcome of which only the number is known; nil: it has none.
func (r *Rounds) Had(t plan.Task, number *float64) {
	if s := r.cells[t.Cell.ID]; s != nil {
		s.add(t.Repetition, number)
	}
}

// Needed tells whether a task is one of the run: not, where its cell was known well enough before.
func (r *Rounds) Needed(t plan.Task) bool {
	s := r.cells[t.Cell.ID]
	if s == nil {
		return true
	}
	_, has := s.got[t.Repetition]
	return has || !s.state.Over || t.Repetition <= s.looked
}

// Open tells whether there may be fewer tasks than Tasks says.
func (r *Rounds) Open() bool {
	for id := range r.cells {
		if r.Undecided(id) {
			return true
		}
	}
	return false
}

// Undecided tells whether a cell may be measured fewer times than Cell says.
func (r *Rounds) Undecided(id string) bool {
	s := r.cells[id]
	return s != nil && !s.state.Over && s.state.Repeat > s.least()
}

// Tasks is how many tasks the run has: at most, while it is Open.
func (r *Rounds) Tasks() (n int) {
	if r.run.Until == nil {
		return len(r.run.Cells) * r.run.Repeat
	}
	for _, c := range r.run.Cells {
		n += r.cells[c.ID].state.Repeat
	}
	return n
}

// Cell is how far a cell is, by its id.
func (r *Rounds) Cell(id string) Cell {
	if s := r.cells[id]; s != nil {
		return s.state
	}
	return Cell{Repeat: r.run.Repeat}
}

// Missed says of a cell that has had all its repetitions that it is not known well enough, in words; empty: it is, or it has not.
func (r *Rounds) Missed(id string) string {
	s := r.cells[id]
	if s == nil || !s.state.Over || s.state.Reached {
		return ""
	}
	c := s.state
	text := fmt.Sprintf("the interval of %s cannot be told", s.value)
	switch {
	case c.Known:
		text = fmt.Sprintf("ci of %s is ±%s after %d repetitions", s.value, percent(c.Part), c.Done)
	case c.Numbers < s.least():
		text += fmt.Sprintf(": %d of %d repetitions are valid and have a number, and it takes %d", c.Numbers, c.Done, s.least())
	default:
		text += fmt.Sprintf(" as a part of its median, which is zero, after %d repetitions", c.Done)
	}
	return text + ", wanted: " + s.until.Rule
}

func percent(part float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", 100*part), ".0") + " %"
}

func (s *series) least() int { return min(s.most, Least(s.until)) }

func (s *series) add(repetition int, number *float64) {
	if repetition < 1 || repetition > s.most {
		return // of no task of the plan
	}
	s.got[repetition] = number
	s.last = max(s.last, repetition)
	if repetition <= s.looked { // what was decided was decided without it
		s.looked, s.state = 0, Cell{}
	}
	s.decide()
}

// decide goes through the rounds that are complete, up to the one that is enough.
func (s *series) decide() {
	for n := max(s.looked, s.least()-1) + 1; n <= s.most && s.complete(n) && !s.state.Over; n++ {
		s.looked = n
		numbers := s.numbers(n)
		summary := stats.Summary{N: len(numbers), Median: stats.Median(numbers), Interval: stats.MedianInterval(numbers, s.until.Confidence)}
		s.state.Numbers = summary.N
		s.state.Part, s.state.Known = summary.Relative(s.until.Confidence)
		s.state.Reached = s.state.Known && s.state.Part < s.until.Within
		s.state.Over = s.state.Reached || n == s.most
	}
	s.state.Done, s.state.Repeat = len(s.got), s.most
	if s.state.Over {
		s.state.Repeat = s.looked
		for n := s.looked + 1; n <= s.last; n++ { // made before an earlier one was made again
			if _, has := s.got[n]; has {
				s.state.Repeat++
			}
		}
	}
}

// complete tells whether the first n repetitions have outcomes; those up to looked have.
func (s *series) complete(n int) bool {
	for i := s.looked + 1; i <= n; i++ {
		if _, has := s.got[i]; !has {
			return false
		}
	}
	return true
}

// numbers are those of the first n repetitions.
func (s *series) numbers(n int) (all []float64) {
	for i := 1; i <= n; i++ {
		if x := s.got[i]; x != nil {
			all = append(all, *x)
		}
	}
	return all
}
