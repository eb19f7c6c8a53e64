package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"lockstep/internal/history/change"
	"lockstep/internal/plan"
	"lockstep/internal/stats"
)

// Series is a value of a cell in the runs that are comparable: those from one environment.
type Series struct {
	Cell        plan.HistoryCell // without points
	Value       string
	Environment plan.Environment
	Subject     *plan.Subject  // of brokers that are measured alternately, each of which has a series; nil: all subjects are in one
	Points      []Point        // oldest first
	Changes     []change.Point // At is an index of Points
}

// Point is a value of a cell in one run.
type Point struct {
	Run         string
	Started     time.Time
	Number      float64 // median of the usable repetitions, as in tables
	Usable      int     // repetitions
	Status      string  // of most repetitions; "" is a usable number
	Repetitions []plan.HistoryPoint
	// New lists the differences from the run before: "version: 3.13.7 → 4.0.5".
	New []string
}

// Common is a change of one value in more than a third of the cells in the same runs.
type Common struct {
	Value   string
	Since   Point     // the first run
	Runs    int       // with the change
	Cells   []string  // names
	Tested  int       // cells with this value
	Shifts  []float64 // of each of Cells, relative to the level before
	Ongoing bool      // also in the newest run
}

// Trends has series and their changes, which were found in all series together.
type Trends struct {
	Series          []Series
	Common          []Common
	Tested          int     // series with enough runs for an alarm
	Autocorrelation float64 // of consecutive runs
}

// Answer is a history's answer for one value.
type Answer struct {
	Value string
	plan.HistoryAnswer
}

// NewTrends divides the points of answers into series and finds their changes.
func NewTrends(answers ...Answer) (t Trends) {
	for _, a := range answers {
		for _, c := range a.Cells {
			points := c.Points
			c.Points = nil
			var order []string
			by := map[string][]plan.HistoryPoint{}
			for _, p := range points {
				if by[p.Environment] == nil {
					order = append(order, p.Environment)
				}
				by[p.Environment] = append(by[p.Environment], p)
			}
			for _, key := range order {
				for _, part := range splitBySubject(by[key], a.HistoryAnswer) {
					s := Series{Cell: c, Value: a.Value, Environment: a.Environments[key], Points: newPoints(part.points, a.HistoryAnswer)}
					if part.alone {
						subject := a.Subjects[part.points[0].Subject]
						s.Subject = &subject
					}
					t.Series = append(t.Series, s)
				}
			}
		}
	}
	t.find()
	return t
}

// find finds the changes in all series.
func (t *Trends) find() {
	starts := map[string]time.Time{}
	for _, s := range t.Series {
		for _, p := range s.Points {
			starts[p.Run] = p.Started
		}
	}
	runs := slices.SortedFunc(maps.Keys(starts), func(a, b string) int { return cmp.Or(starts[a].Compare(starts[b]), cmp.Compare(a, b)) })
	number := map[string]int{}
	for i, run := range runs {
		number[run] = i
	}
	all, cells := make([]change.Series, len(t.Series)), map[string]int{}
	at := make([][]int, len(t.Series)) // indexes of the points that have a number
	for i, s := range t.Series {
		all[i].Group = s.Value
		for j, p := range s.Points {
			if p.Usable > 0 {
				all[i].Runs, all[i].Values = append(all[i].Runs, number[p.Run]), append(all[i].Values, p.Number)
				at[i] = append(at[i], j)
			}
		}
		if len(at[i]) > 0 {
			cells[s.Value]++
		}
	}
	found := change.Find(all, len(runs)-1)
	t.Tested, t.Autocorrelation = found.Tested, found.Autocorrelation
	for i, points := range found.Points {
		for j := range points {
			points[j].At = at[i][points[j].At]
		}
		t.Series[i].Changes = points
	}
	for _, c := range found.Common {
		common := Common{Value: c.Group, Runs: c.To - c.From + 1, Shifts: c.Shifts, Tested: cells[c.Group], Ongoing: c.To == len(runs)-1}
		for _, i := range c.Series {
			s := t.Series[i]
			common.Cells = append(common.Cells, s.Cell.Name())
			common.Since = s.Points[slices.IndexFunc(s.Points, func(p Point) bool { return p.Run == runs[c.From] })]
		}
		t.Common = append(t.Common, common)
	}
}

// part is the points of a series; alone reports whether its subject is measured alternately with others.
type part struct {
	points []plan.HistoryPoint
	alone  bool
}

// splitBySubject divides points by subject if subjects alternate. Subjects that follow each other, as after an upgrade, stay together.
// A repetition without a description of its broker belongs to the subject before it.
func splitBySubject(points []plan.HistoryPoint, a plan.HistoryAnswer) []part {
	by := map[string][]plan.HistoryPoint{}
	var order []string
	switches, subject := 0, ""
	for i, p := range points {
		before := subject
		if i == 0 || isKnown(a.Subjects[p.Subject]) {
			subject = p.Subject
		}
		if i > 0 && subject != before {
			switches++
		}
		if by[subject] == nil {
			order = append(order, subject)
		}
		by[subject] = append(by[subject], p)
	}
	if switches < 2*len(order) {
		return []part{{points: points}}
	}
	var parts []part
	for _, s := range order {
		parts = append(parts, part{by[s], true})
	}
	return parts
}

// newPoints makes a point of each run, and compares consecutive ones.
func newPoints(repetitions []plan.HistoryPoint, a plan.HistoryAnswer) (all []Point) {
	for _, r := range repetitions {
		if n := len(all); n == 0 || all[n-1].Run != r.Run {
			all = append(all, Point{Run: r.Run, Started: r.At})
		}
		p := &all[len(all)-1]
		p.Repetitions = append(p.Repetitions, r)
	}
	for i := range all {
		p := &all[i]
		var numbers []float64
		count := map[string]int{}
		for _, r := range p.Repetitions {
			if r.Usable() {
				numbers = append(numbers, r.Value.Number)
			}
			status := statusOf(r)
			if count[status]++; count[status] > count[p.Status] || count[status] == count[p.Status] && status == "" {
				p.Status = status
			}
		}
		if p.Usable = len(numbers); p.Usable > 0 {
			p.Number = stats.Median(numbers)
		}
		if i > 0 {
			p.New = differ(all[:i], p.Repetitions, a)
		}
	}
	return all
}

// Numbers are the numbers of the points that have one.
func (s Series) Numbers() (numbers []float64) {
	for _, p := range s.Points {
		if p.Usable > 0 {
			numbers = append(numbers, p.Number)
		}
	}
	return numbers
}

// Distinction names the differences of a series from the others of its cell: hosts and subject.
func (t Trends) Distinction(s Series) string {
	var words []string
	hosts := strings.Join(s.Environment.Hosts, ", ")
	seen := map[string]bool{}
	for _, o := range t.Series {
		if o.Cell.ID != s.Cell.ID {
			continue
		}
		if other := strings.Join(o.Environment.Hosts, ", "); other != hosts && !seen["hosts"] {
			words, seen["hosts"] = append(words, "from "+hosts), true
		}
		if s.Subject == nil || o.Subject == nil {
			continue
		}
		for _, x := range Different(*o.Subject, *s.Subject) {
			name, values, _ := strings.Cut(x, ": ")
			if _, is, _ := strings.Cut(values, " → "); !seen[name] {
				words, seen[name] = append(words, name+" "+is), true
			}
		}
	}
	return strings.Join(words, ", ")
}

// Causes are the differences of the runs around a change: of the first run of the new level, of that before and of that after it, since the
// place of a change is known to a run.
func (s Series) Causes(at int) (causes []string) {
	for i := max(1, at-1); i <= min(at+1, len(s.Points)-1); i++ {
		for _, text := range s.Points[i].New {
			causes = append(causes, text+" with "+s.Points[i].Run)
		}
	}
	return causes
}

// differ returns the differences between a run and those before it: the subject's version and settings, against the last run that has them, and
// Lockstep's own version.
func differ(before []Point, after []plan.HistoryPoint, a plan.HistoryAnswer) (words []string) {
	if now, known := firstSubject(after, a); known {
		for _, n := range slices.Backward(before) {
			if then, known := firstSubject(n.Repetitions, a); known {
				words = Different(then, now)
				break
			}
		}
	}
	if old, new := before[len(before)-1].Repetitions[0].Version, after[0].Version; old != new {
		words = append(words, arrow("lockstep", old, new))
	}
	return words
}

// firstSubject is the subject of the first repetition of a run that has one.
func firstSubject(repetitions []plan.HistoryPoint, a plan.HistoryAnswer) (s plan.Subject, known bool) {
	for _, p := range repetitions {
		if s = a.Subjects[p.Subject]; isKnown(s) {
			return s, true
		}
	}
	return plan.Subject{}, false
}

func isKnown(s plan.Subject) bool { return len(flat(s)) > 0 }

// Different names what two subjects differ in, each as "setting: before → after".
func Different(before, after plan.Subject) (words []string) {
	x, y := flat(before), flat(after)
	both := maps.Clone(x)
	maps.Copy(both, y)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if x[name] != y[name] {
			words = append(words, arrow(name, x[name], y[name]))
		}
	}
	return words
}

func arrow(name, before, after string) string {
	said := func(text string) string {
		if text == "" {
			return "none"
		}
		return text
	}
	return fmt.Sprintf("%s: %s → %s", name, said(before), said(after))
}

// flat is a subject as settings, by name.
func flat(s plan.Subject) map[string]string {
	all := maps.Clone(s.Settings)
	if all == nil {
		all = map[string]string{}
	}
	for name, value := range map[string]string{"product": s.Product, "version": s.Version, "label": s.Label,
		"members": strings.Join(s.Members, ", "), "endpoints": strings.Join(s.Endpoints, ", ")} {
		if value != "" {
			all[name] = value
		}
	}
	return all
}
