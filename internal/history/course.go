package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"lockstep/internal/history/change"
	"lockstep/internal/plan"
	"lockstep/internal/stats"
)

// Least is the smallest shift of a level that is told, in parts.
const Least = 0.02

// Course is a cell over the runs that may be compared with each other: measured from one environment.
type Course struct {
	Cell        plan.HistoryCell // without points
	Environment plan.Environment
	Subject     *plan.Subject // where subjects take turns, and have courses of their own; nil: they follow each other in one
	Nights      []Night       // oldest first
	Changes     []change.Change
	At          []int // of Changes: the night, in Nights, that each begins with
}

// Night is a cell in one run.
type Night struct {
	Run         string
	Started     time.Time
	Number      float64 // median of the usable repetitions, as in tables
	Usable      int     // repetitions
	Repetitions []plan.HistoryPoint
	// New is what became different with this night, against the one before it: "version: 3.13.7 → 4.0.5".
	New []string
}

// Courses parts the points of an answer's cells into what may be compared, and looks for changes in each.
func Courses(a plan.HistoryAnswer) []Course {
	var all []Course
	for _, c := range a.Cells {
		points := c.Points
		c.Points = nil
		var order []string
		by := map[string][]plan.HistoryPoint{}
		for _, p := range points {
			key := p.Environment
			if by[key] == nil {
				order = append(order, key)
			}
			by[key] = append(by[key], p)
		}
		for _, key := range order {
			for _, part := range turns(by[key], a) {
				course := Course{Cell: c, Environment: a.Environments[key]}
				if part.alone {
					s := a.Subjects[part.points[0].Subject]
					course.Subject = &s
				}
				course.fill(part.points, a)
				all = append(all, course)
			}
		}
	}
	return all
}

// part is a course's points; alone: its subject takes turns with others.
type part struct {
	points []plan.HistoryPoint
	alone  bool
}

// turns leaves subjects together that follow each other, as after an upgrade; those that come back again and again are measured side by side.
// A repetition that never got to ask its broker is of the subject before it.
func turns(points []plan.HistoryPoint, a plan.HistoryAnswer) []part {
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

func (c *Course) fill(points []plan.HistoryPoint, a plan.HistoryAnswer) {
	for _, p := range points {
		if n := len(c.Nights); n == 0 || c.Nights[n-1].Run != p.Run {
			c.Nights = append(c.Nights, Night{Run: p.Run, Started: p.At})
		}
		n := &c.Nights[len(c.Nights)-1]
		n.Repetitions = append(n.Repetitions, p)
	}
	var series []float64
	var at []int
	for i := range c.Nights {
		n := &c.Nights[i]
		var numbers []float64
		for _, p := range n.Repetitions {
			if p.Usable() {
				numbers = append(numbers, p.Value.Number)
			}
		}
		if n.Usable = len(numbers); n.Usable > 0 {
			n.Number = stats.Median(numbers)
			series, at = append(series, n.Number), append(at, i)
		}
		if i > 0 {
			n.New = differ(c.Nights[:i], n.Repetitions, a)
		}
	}
	c.Changes = change.Points(series, Least)
	for _, x := range c.Changes {
		c.At = append(c.At, at[x.At])
	}
}

// Series are the numbers of the nights that have one.
func (c Course) Series() (series []float64) {
	for _, n := range c.Nights {
		if n.Usable > 0 {
			series = append(series, n.Number)
		}
	}
	return series
}

// Causes are what became different in the nights around a change: from the last of the level before to the second of the new one, for a place
// is known to a night or two.
func (c Course) Causes(change int) (causes []string) {
	at := c.At[change]
	for i := max(1, at-1); i <= min(at+1, len(c.Nights)-1); i++ {
		for _, text := range c.Nights[i].New {
			causes = append(causes, text+" with "+c.Nights[i].Run)
		}
	}
	return causes
}

// differ says what is different between a night and those before it: the subject's version and settings, against the last night that has them, and
// Lockstep's own version.
func differ(before []Night, after []plan.HistoryPoint, a plan.HistoryAnswer) (words []string) {
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

// firstSubject is what the broker said of itself in the first repetition of a night in which it was asked.
func firstSubject(night []plan.HistoryPoint, a plan.HistoryAnswer) (s plan.Subject, known bool) {
	for _, p := range night {
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
