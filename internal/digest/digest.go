// Package digest says in a page what the last run of a matrix tells against those before it: what changed its level, since when and how sure,
// what became different meanwhile, what is new, what failed, and how it compares with a baseline. It reads a history, and decides nothing else.
package digest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"lockstep/internal/compare"
	"lockstep/internal/history"
	"lockstep/internal/history/change"
	"lockstep/internal/plan"
	"lockstep/internal/report"
)

// Digest is what is to be known of a run.
type Digest struct {
	Run      string              `json:"run"`
	Matrix   string              `json:"matrix"`
	Started  time.Time           `json:"started"`
	Summary  string              `json:"summary"`            // of its verdicts
	Problems []string            `json:"problems,omitempty"` // what failed
	Rules    []report.Ruling     `json:"rules,omitempty"`    // that are not met
	Shifts   []Shift             `json:"shifts,omitempty"`   // the worse before the better, the surest first
	Told     int                 `json:"told"`               // series, of a cell and value each, that an alarm could be raised for
	Untold   int                 `json:"untold"`             // that have too few runs yet
	New      []string            `json:"new,omitempty"`      // cells that no run before had
	Subject  []string            `json:"subject,omitempty"`  // what became different since the run before: versions, settings
	Baseline string              `json:"baseline,omitempty"` // the run that it was compared with
	Against  *compare.Comparison `json:"against,omitempty"`
}

// Shift is a value of a cell that changed its level in the last runs.
type Shift struct {
	Cell    string          `json:"cell"`
	ID      string          `json:"id"`
	Value   string          `json:"value"`
	Title   string          `json:"title"`
	Unit    plan.Unit       `json:"unit"`
	Finding compare.Finding `json:"finding"`
	Before  float64         `json:"before"`
	After   float64         `json:"after"`
	Change  float64         `json:"-"`     // in parts of the level before; infinite from zero
	P       float64         `json:"p"`     // how often any value of any cell would show as much by chance
	Runs    int             `json:"runs"`  // of the new level
	Since   string          `json:"since"` // the first of them
	At      time.Time       `json:"at"`
	Causes  []string        `json:"causes,omitempty"` // what became different around then
}

// Made is a run whose record was read, and what is known of earlier ones.
type Made struct {
	compare.Recorded
	History  *history.Store
	Baseline *compare.Recorded // nil: there is none
}

// depth is how many runs an alarm looks back at: docs/history.md was measured with so many.
const depth = 90

// Of makes the digest of a run, which the history has to have.
func Of(m Made) (Digest, error) {
	d := Digest{Run: m.Run.ID, Matrix: m.Run.Name, Started: m.Run.Started, Summary: report.Summary(m.Run, m.Outcomes), Problems: report.Problems(m.Run, m.Outcomes)}
	for _, r := range report.Rulings(m.Run, m.Outcomes) {
		if r.Why != "" {
			d.Rules = append(d.Rules, r)
		}
	}
	if err := d.look(m); err != nil {
		return Digest{}, fmt.Errorf("look back from run %s: %w", m.Run.ID, err)
	}
	if m.Baseline == nil || m.Baseline.Run.ID == m.Run.ID {
		return d, nil
	}
	against, err := compare.Compare([]compare.Recorded{*m.Baseline, m.Recorded}, compare.Options{})
	if err != nil {
		return Digest{}, fmt.Errorf("compare with the baseline %s: %w", m.Baseline.Run.ID, err)
	}
	d.Baseline, d.Against = m.Baseline.Run.ID, &against
	return d, nil
}

// looked is a series with where it is from.
type looked struct {
	course history.Course
	value  plan.ValueInfo
}

// look finds what changed. All values of all cells are one family: an alarm in any of them is an alarm of this night.
func (d *Digest) look(m Made) error {
	var all []looked
	var series [][]float64
	for _, cell := range m.Run.Cells {
		known := false // from a run before
		for _, name := range compare.Usual() {
			value, is := plan.ValueNamed(name)
			if !is || value.Better() == plan.NeitherBetter {
				continue
			}
			answer, err := m.History.Answer(plan.HistoryQuery{Cells: []string{cell.ID}, Value: name, Most: depth * max(1, m.Run.Repeat)})
			if err != nil {
				return err
			}
			for _, c := range history.Courses(answer) {
				d.surroundings(c)
				known = known || len(c.Nights) > 0 && c.Nights[0].Run != d.Run
				if n := len(c.Nights); n > 0 && c.Nights[n-1].Run == d.Run && c.Nights[n-1].Usable > 0 {
					all, series = append(all, looked{c, value}), append(series, c.Series())
				}
			}
		}
		if !known {
			d.New = append(d.New, nameOf(cell))
		}
	}
	alarms, untold := change.Alarms(series)
	d.Told, d.Untold = len(series)-untold, untold
	for _, a := range alarms {
		d.Shifts = append(d.Shifts, shiftOf(all[a.Series], a))
	}
	slices.SortStableFunc(d.Shifts, func(a, b Shift) int {
		if a.Finding != b.Finding {
			return strings.Compare(string(b.Finding), string(a.Finding)) // worse, better
		}
		switch {
		case a.P < b.P:
			return -1
		case a.P > b.P:
			return 1
		}
		return 0
	})
	return nil
}

// surroundings takes what became different with this run, each once.
func (d *Digest) surroundings(c history.Course) {
	n := len(c.Nights)
	if n == 0 || c.Nights[n-1].Run != d.Run {
		return
	}
	for _, text := range c.Nights[n-1].New {
		if !slices.Contains(d.Subject, text) {
			d.Subject = append(d.Subject, text)
		}
	}
}

func nameOf(c plan.Cell) string {
	if name := c.Name(); name != "" {
		return name
	}
	return "cell " + c.ID
}

func shiftOf(l looked, a change.Alarm) Shift {
	s := Shift{Cell: l.course.Cell.Name(), ID: l.course.Cell.ID, Value: l.value.Name, Title: l.value.Title, Unit: l.value.Unit,
		Before: a.Before, P: a.P, Finding: compare.Worse}
	s.Runs, s.After = newLevel(l.course.Series(), a.Runs)
	s.Change = s.After/s.Before - 1
	if (s.After > s.Before) == (l.value.Better() == plan.HigherIsBetter) {
		s.Finding = compare.Better
	}
	var with []int // nights that have a number
	for i, n := range l.course.Nights {
		if n.Usable > 0 {
			with = append(with, i)
		}
	}
	at := with[len(with)-s.Runs]
	s.Since, s.At = l.course.Nights[at].Run, l.course.Nights[at].Started
	for i := max(1, at-1); i <= min(at+1, len(l.course.Nights)-1); i++ { // a place is known to a night or two
		for _, text := range l.course.Nights[i].New {
			s.Causes = append(s.Causes, text+" with "+l.course.Nights[i].Run)
		}
	}
	return s
}

// newLevel is how many of the last runs have the new level, two to most, and their mean: an alarm is raised for two or three, whichever is clearer,
// and the place is where both sides are furthest apart, by the squares between them.
func newLevel(series []float64, most int) (runs int, level float64) {
	best := -1.0
	n := len(series)
	for k := 2; k <= min(most, n-1); k++ {
		before, after := mean(series[:n-k]), mean(series[n-k:])
		if between := (after - before) * (after - before) * float64(k) * float64(n-k); between > best {
			best, runs, level = between, k, after
		}
	}
	return runs, level
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// Worse counts what got worse: levels, and cells against the baseline.
func (d Digest) Worse() int {
	n := 0
	for _, s := range d.Shifts {
		if s.Finding == compare.Worse {
			n++
		}
	}
	if d.Against != nil {
		n += d.Against.Found()[compare.Worse]
	}
	return n
}

// percent is a change for people: "+12 %".
func percent(x float64) string {
	switch {
	case math.IsInf(x, 0) || math.IsNaN(x):
		return "from zero"
	case math.Abs(x) < 0.1:
		return fmt.Sprintf("%+.1f %%", 100*x)
	}
	return fmt.Sprintf("%+.0f %%", 100*x)
}
