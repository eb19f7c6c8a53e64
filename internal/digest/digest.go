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
	Run        string              `json:"run"`
	Matrix     string              `json:"matrix"`
	Started    time.Time           `json:"started"`
	Summary    string              `json:"summary"`              // of its verdicts
	Problems   []string            `json:"problems,omitempty"`   // what failed
	Unfinished string              `json:"unfinished,omitempty"` // that tasks have no outcome
	Rules      []report.Ruling     `json:"rules,omitempty"`      // that are not met
	Shifts     []Shift             `json:"shifts,omitempty"`     // the worse before the better, the surest first
	Told       int                 `json:"told"`                 // series, of a cell and value each, that an alarm could be raised for
	Untold     int                 `json:"untold"`               // that have too few runs yet
	New        []string            `json:"new,omitempty"`        // cells that no run before had
	Subject    []string            `json:"subject,omitempty"`    // what became different since the run before: versions, settings
	Baseline   string              `json:"baseline,omitempty"`   // the run that it was compared with
	Against    *compare.Comparison `json:"-"`                    // JSON has it without its repetitions
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
	Flags   []plan.Flag     `json:"flags,omitempty"`  // of the new level's numbers: what is doubtful about them
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
	d := Digest{Run: m.Run.ID, Matrix: m.Run.Name, Started: m.Run.Started, Summary: report.Summary(m.Run, m.Outcomes), Problems: report.Failures(m.Run, m.Outcomes), Unfinished: report.NotRun(m.Run, m.Outcomes)}
	for _, r := range report.Rulings(m.Run, m.Outcomes) {
		if r.Failed() {
			d.Rules = append(d.Rules, r)
		}
	}
	if err := d.look(m); err != nil {
		return Digest{}, fmt.Errorf("look back from run %s: %w", m.Run.ID, err)
	}
	if m.Baseline == nil || m.Baseline.Run.ID == m.Run.ID {
		return d, nil
	}
	both := []compare.Recorded{*m.Baseline, m.Recorded}
	spread, err := m.History.SpreadsOf(both, nil)
	if err != nil {
		return Digest{}, err
	}
	against, err := compare.Compare(both, compare.Options{Spread: spread})
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
	var values []plan.ValueInfo
	var names []string
	for _, name := range compare.Usual() {
		if value, is := plan.ValueNamed(name); is && value.Better() != plan.NeitherBetter {
			values, names = append(values, value), append(names, name)
		}
	}
	var all []looked
	var series [][]float64
	for _, cell := range m.Run.Cells {
		answers, err := m.History.Look(cell.ID, names, m.Run.Started, depth*max(1, m.Run.Repeat))
		if err != nil {
			return err
		}
		known := false // from a run before
		for i, answer := range answers {
			d.moved(answer)
			for _, c := range history.Courses(answer) {
				d.surroundings(c)
				known = known || len(c.Nights) > 0 && c.Nights[0].Run != d.Run
				if n := len(c.Nights); n > 0 && c.Nights[n-1].Run == d.Run && c.Nights[n-1].Usable > 0 {
					all, series = append(all, looked{c, values[i]}), append(series, c.Series())
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

// moved says that this run was measured from other hosts than the run before: what was measured from elsewhere is a series of its own.
func (d *Digest) moved(a plan.HistoryAnswer) {
	for _, c := range a.Cells {
		if i := slices.IndexFunc(c.Points, func(p plan.HistoryPoint) bool { return p.Run == d.Run }); i > 0 && c.Points[i].Environment != c.Points[i-1].Environment {
			hosts := func(p plan.HistoryPoint) string { return strings.Join(a.Environments[p.Environment].Hosts, ", ") }
			d.differs(fmt.Sprintf("hosts: %s → %s, and what was measured from others is not compared", hosts(c.Points[i-1]), hosts(c.Points[i])))
		}
	}
}

// surroundings takes what became different with this run.
func (d *Digest) surroundings(c history.Course) {
	if n := len(c.Nights); n > 0 && c.Nights[n-1].Run == d.Run {
		for _, text := range c.Nights[n-1].New {
			d.differs(text)
		}
	}
}

// differs keeps what became different, each once.
func (d *Digest) differs(text string) {
	if !slices.Contains(d.Subject, text) {
		d.Subject = append(d.Subject, text)
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
	s.Runs, s.After = newLevel(l.course.Series(), a)
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
	for _, n := range l.course.Nights[at:] {
		for _, p := range n.Repetitions {
			s.doubt(p)
		}
	}
	s.Since, s.At = l.course.Nights[at].Run, l.course.Nights[at].Started
	for i := max(1, at-1); i <= min(at+1, len(l.course.Nights)-1); i++ { // a place is known to a night or two
		for _, text := range l.course.Nights[i].New {
			s.Causes = append(s.Causes, text+" with "+l.course.Nights[i].Run)
		}
	}
	return s
}

// doubt takes the flags of a number of the new level, each once.
func (s *Shift) doubt(p plan.HistoryPoint) {
	for _, f := range p.Value.Flags {
		if p.Usable() && !slices.Contains(s.Flags, f) {
			s.Flags = append(s.Flags, f)
		}
	}
}

// newLevel is since how many runs there is the new level, and its mean: an alarm is raised for two or three, whichever is clearer, and the place
// is where both sides are furthest apart, by the squares between them. Two that are not the last two have an outlier beside them, which is none of the level.
func newLevel(series []float64, a change.Alarm) (runs int, level float64) {
	n := len(series)
	if a.Runs == 2 && math.Abs(mean(series[n-2:])-a.After) > 1e-9*math.Abs(a.After) {
		return 3, a.After
	}
	best := -1.0
	for k := 2; k <= min(a.Runs, n-1); k++ {
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
