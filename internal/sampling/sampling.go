// Package sampling decides how often cells are repeated (plan.Run.Until): until a value is known accurately enough. The
// decision depends only on the outcomes so far. Every reader of the same outcomes therefore decides the same: the
// leading controller, its successor, and all readers of the record. In a run without Until, all repetitions are needed.
package sampling

import (
	"fmt"
	"math"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/stats"
)

// minRounds is the minimum number of rounds before a decision.
const minRounds = 3

// MinRepetitions returns the number of rounds before the first decision: as many as the interval needs, at least
// minRounds.
func MinRepetitions(u plan.StopRule) int { return max(minRounds, stats.MinForMedian(u.Confidence)) }

// Rounds holds the repetitions of the cells of a run. It is not safe for concurrent use.
type Rounds struct {
	run   plan.Run
	cells map[string]*series // nil in a run without Until
}

// series holds the repetitions of one cell.
type series struct {
	value   string
	numbers map[int]*float64 // of repetitions with an outcome; nil: no usable number
	state   *Cell            // cached decision; nil: not computed
}

// Cell is the state of the repetitions of one cell.
type Cell struct {
	Repeat  int  // number of repetitions; a maximum until Over
	Over    bool // no further repetition is needed
	Reached bool // the value is known accurately enough
	Done    int  // repetitions with an outcome
	Numbers int  // of these: valid, with a number
	// Part is half the width of the median's confidence interval, as a fraction of the median. It is set if Known.
	Part  float64
	Known bool
}

// New returns the rounds of a run without outcomes.
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

// Of returns the rounds of a run after these outcomes.
func Of(run plan.Run, outcomes []plan.Outcome) *Rounds {
	r := New(run)
	for _, o := range outcomes {
		r.Add(o)
	}
	return r
}

// Add adds an outcome. The order is irrelevant; the last outcome of a repetition counts.
func (r *Rounds) Add(o plan.Outcome) { r.AddDone(o.Cell, o.Repetition, r.number(o)) }

// number returns the number of an outcome that counts; nil: it has none.
func (r *Rounds) number(o plan.Outcome) *float64 {
	s := r.cells[o.Cell]
	if s == nil || o.Verdict != plan.Valid {
		return nil
	}
	v, has := o.Value(s.value)
	if !has || v.NA != "" || v.Over > 0 || math.IsNaN(v.Number) || math.IsInf(v.Number, 0) {
		return nil
	}
	return &v.Number
}

// AddDone adds an outcome that is known only by its number; nil: no usable number. Repetitions that are not in the plan
// are ignored.
func (r *Rounds) AddDone(cell string, repetition int, number *float64) {
	if s := r.cells[cell]; s != nil && repetition >= 1 && repetition <= r.run.Repeat {
		s.numbers[repetition], s.state = number, nil
	}
}

// Needed reports whether a task belongs to the run. It does not if its cell was known accurately enough before.
func (r *Rounds) Needed(t plan.Task) bool {
	if r.cells[t.Cell.ID] == nil {
		return true
	}
	_, has := r.cells[t.Cell.ID].numbers[t.Repetition]
	return has || !r.Cell(t.Cell.ID).Over
}

// Open reports whether the number of tasks may still become smaller than Tasks returns.
func (r *Rounds) Open() bool {
	for id := range r.cells {
		if r.Undecided(id) {
			return true
		}
	}
	return false
}

// Undecided reports whether a cell may be repeated less often than Cell returns.
func (r *Rounds) Undecided(id string) bool {
	return r.cells[id] != nil && !r.Cell(id).Over && r.run.Repeat > r.minRepetitions()
}

// Tasks returns the number of tasks of the run; a maximum while it is Open.
func (r *Rounds) Tasks() (n int) {
	for _, c := range r.run.Cells {
		n += r.Cell(c.ID).Repeat
	}
	return n
}

// Cell returns the state of a cell, by its id.
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

func (r *Rounds) minRepetitions() int { return min(r.run.Repeat, MinRepetitions(*r.run.Until)) }

// decide evaluates the complete rounds in order, until one is sufficient. Later repetitions may exist if an earlier one
// was measured again. A repetition without a usable number could have had any number, for example a very high latency
// instead of a backlog. The interval is so wide that it includes all these cases.
func (r *Rounds) decide(all map[int]*float64) Cell {
	c := Cell{Repeat: r.run.Repeat, Done: len(all)}
	var numbers, lowest, highest []float64
	for n := 1; n <= r.run.Repeat && !c.Over; n++ {
		number, has := all[n]
		if !has {
			break
		}
		if number != nil {
			numbers = append(numbers, *number)
			lowest, highest = append(lowest, *number), append(highest, *number)
		} else {
			lowest, highest = append(lowest, math.Inf(-1)), append(highest, math.Inf(1))
		}
		if n < r.minRepetitions() {
			continue
		}
		c.Numbers = len(numbers)
		confidence := r.run.Until.Confidence
		s := stats.Summarize(numbers, confidence)
		s.Interval = stats.MedianInterval(lowest, confidence)
		s.Interval.High = stats.MedianInterval(highest, confidence).High
		if c.Part, c.Known = s.Relative(confidence); math.IsInf(c.Part, 0) {
			c.Part, c.Known = 0, false
		}
		c.Reached = c.Known && c.Part < r.run.Until.Within
		c.Over = c.Reached || n == r.run.Repeat
	}
	if c.Over {
		c.Repeat = c.Done
	}
	return c
}

// Missed returns the message for a cell that had all its repetitions and is not known accurately enough. It returns ""
// for other cells.
func (r *Rounds) Missed(id string) string {
	c := r.Cell(id)
	if !c.Over || c.Reached {
		return ""
	}
	value := r.cells[id].value
	text := fmt.Sprintf("the interval of %s cannot be computed", value)
	switch {
	case c.Known:
		text = fmt.Sprintf("ci of %s is ±%s after %d repetitions", value, display.Percent(c.Part), c.Done)
	case c.Numbers < c.Done:
		text += fmt.Sprintf(": %d of %d repetitions are valid and have a number", c.Numbers, c.Done)
		if c.Numbers < r.minRepetitions() {
			text += fmt.Sprintf(", and it takes %d", r.minRepetitions())
		}
	default:
		text += fmt.Sprintf(" as a part of its median, which is zero, after %d repetitions", c.Done)
	}
	return text + ", wanted: " + r.run.Until.Rule
}

// Numbers returns the numbers of the value that ends the repetitions (plan.Run.Until), by task. It returns nil in a run
// without Until.
func Numbers(run plan.Run, outcomes []plan.Outcome) map[string]float64 {
	if run.Until == nil {
		return nil
	}
	rounds, numbers := New(run), map[string]float64{}
	for _, o := range outcomes {
		if n := rounds.number(o); n != nil {
			numbers[o.Task] = *n
		}
	}
	return numbers
}
