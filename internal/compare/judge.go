package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/stats"
)

// blame says which cells have repetitions that are not valid, or were not run, and are in no number.
func (c *Comparison) blame(sides []*side, rows []group) {
	for _, g := range rows {
		for i, x := range g.cells {
			if x == nil {
				continue
			}
			if why := x.unusable(); why != "" {
				c.Left = append(c.Left, Left{Cell: g.name(), Sides: []string{sides[i].mark}, Whole: len(x.valid()) == 0, Reason: why})
			}
		}
	}
}

// unusable says of the repetitions that are not valid how many they are and why.
func (c *cell) unusable() string {
	var parts []string
	for _, v := range []plan.Verdict{plan.Invalid, plan.Unknown} {
		n := 0
		var reasons []string
		for _, o := range c.outcomes {
			if o.Verdict != v {
				continue
			}
			n++
			for _, r := range o.Reasons {
				if !slices.Contains(reasons, r) {
					reasons = append(reasons, r)
				}
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d repetitions %s: %s", n, c.repeat, v, cmp.Or(strings.Join(reasons, "; "), "no reason was given")))
		}
	}
	if missing := c.repeat - len(c.outcomes); missing > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d repetitions not run", missing, c.repeat))
	}
	return strings.Join(parts, "; ")
}

// value compares one value in all cells that have it on the base and another side.
func (c *Comparison) value(info plan.ValueInfo, sides []*side, rows []group) Value {
	v := Value{Name: info.Name, Title: info.Title, Unit: info.Unit, Better: info.Better()}
	for _, g := range rows {
		row := Row{At: g.at, Name: g.name()}
		if len(c.Match) == 0 && c.By == "" {
			row.Cell = g.key
		}
		var with, without, reasons []string
		for i, x := range g.cells {
			s, why := sample(x, info, 1-c.Alpha, c.Effect)
			row.Sides = append(row.Sides, s)
			switch {
			case s.N > 0:
				with = append(with, sides[i].mark)
			case x != nil && len(x.valid()) > 0:
				without = append(without, sides[i].mark)
				reasons = append(reasons, why)
			}
		}
		if len(with) > 0 && len(without) > 0 { // a value that no side has is no news
			c.Left = append(c.Left, Left{Cell: row.Name, Sides: without, Value: info.Name, Reason: "no number: " + strings.Join(slices.Compact(reasons), ", ")})
		}
		if len(with) < 2 || row.Sides[0].N == 0 {
			continue
		}
		for i := range row.Sides[1:] {
			row.Changes = append(row.Changes, change(row.Sides[0], row.Sides[i+1], 1-c.Alpha))
		}
		v.Rows = append(v.Rows, row)
	}
	for i := range sides[1:] {
		v.Means = append(v.Means, mean(v.Rows, i+1, 1-c.Alpha))
	}
	return v
}

// sample is a value's numbers on one side, of valid repetitions alone; why says what there is instead of a number. Two groups that are nearer to each
// other than the least effect are none that anybody has to know of: rates of few messages come in steps.
func sample(x *cell, info plan.ValueInfo, confidence, effect float64) (s Sample, why string) {
	if x == nil {
		return s, ""
	}
	for _, o := range x.valid() {
		got, has := o.Value(info.Name)
		switch {
		case !has:
			why = cmp.Or(why, "not in the record")
		case got.NA != "":
			why = cmp.Or(why, got.NA)
		default:
			s.Numbers = append(s.Numbers, got.Number)
			s.Bound = max(s.Bound, got.Bound)
		}
		for _, f := range got.Flags {
			if !slices.Contains(s.Flags, f) {
				s.Flags = append(s.Flags, f)
			}
		}
	}
	slices.Sort(s.Flags)
	s.Summary = stats.Summarize(s.Numbers, confidence)
	s.Bimodal = s.Bimodal && s.Most-s.Least >= effect*math.Abs(s.Median)
	for _, o := range x.valid() {
		if got, has := o.Value(info.Name); has && got.NA == "" && got.Number == s.Median {
			s.Over = max(s.Over, got.Over)
		}
	}
	return s, why
}

// change is what is to be said of two samples besides what the family decides.
func change(a, b Sample, confidence float64) Change {
	var c Change
	if b.N == 0 {
		return c
	}
	c.Shift, _ = stats.Difference(a.Numbers, b.Numbers, confidence)
	if r, ok := stats.Ratio(a.Numbers, b.Numbers, confidence); ok {
		c.Ratio = &r
	}
	c.P = stats.MannWhitney(a.Numbers, b.Numbers).P
	c.Delta = stats.CliffsDelta(a.Numbers, b.Numbers)
	c.Size = stats.Magnitude(c.Delta)
	return c
}

func mean(rows []Row, side int, confidence float64) Mean {
	var pairs []stats.Pair
	for _, r := range rows {
		if r.Sides[side].N > 0 {
			pairs = append(pairs, stats.Pair{A: r.Sides[0].Numbers, B: r.Sides[side].Numbers})
		}
	}
	c, used, _ := stats.GeometricRatio(pairs, confidence)
	return Mean{c, used}
}

// judge adjusts the p-values of all tests as one family and says what can be said of each change. Tests that could not find anything by themselves, for
// want of repetitions, are not in the family: they cannot be wrong.
func (c *Comparison) judge() {
	type test struct {
		change   *Change
		a, b     Sample
		better   plan.Direction
		smallest float64
	}
	var all []test
	var ps []float64
	for v := range c.Values {
		for r := range c.Values[v].Rows {
			row := &c.Values[v].Rows[r]
			for i := range row.Changes {
				a, b := row.Sides[0], row.Sides[i+1]
				if b.N > 0 {
					all = append(all, test{&row.Changes[i], a, b, c.Values[v].Better, stats.SmallestP(a.N, b.N)})
				}
			}
		}
	}
	for _, t := range all {
		if t.smallest <= c.Alpha {
			ps = append(ps, t.change.P)
		}
	}
	c.Tests = len(ps)
	adjusted := stats.Holm(ps)
	least := stats.LeastRepetitions(c.Alpha, max(1, len(ps)))
	if len(ps) == 0 {
		least = stats.LeastRepetitions(c.Alpha, len(all))
	}
	for _, t := range all {
		t.change.Adjusted, t.change.Least = 1, least
		if t.smallest <= c.Alpha {
			t.change.Adjusted, adjusted = adjusted[0], adjusted[1:]
		}
		t.change.Finding = t.change.find(c, t.a, t.b, t.better, t.smallest)
	}
}

// find decides what a change is called.
func (x *Change) find(c *Comparison, a, b Sample, better plan.Direction, smallest float64) Finding {
	unsafe := slices.Contains(a.Flags, plan.ClockUnsafe) || slices.Contains(b.Flags, plan.ClockUnsafe)
	significant := x.Adjusted <= c.Alpha
	switch {
	case !significant && smallest*float64(max(1, c.Tests)) > c.Alpha:
		return TooFew
	case !significant || !x.reaches(c.Effect, a):
		return Same
	case unsafe || math.Abs(x.Shift.Estimate) <= a.Bound+b.Bound:
		return Clocks
	}
	up := x.Shift.Estimate > 0
	switch {
	case better == plan.NeitherBetter && up:
		return Higher
	case better == plan.NeitherBetter:
		return Lower
	case up == (better == plan.HigherIsBetter):
		return Better
	}
	return Worse
}

// reaches tells whether a change is at least the least effect; from zero every change is.
func (x *Change) reaches(effect float64, base Sample) bool {
	if x.Ratio != nil {
		return math.Abs(x.Ratio.Estimate-1) >= effect
	}
	return x.Shift.Estimate != 0 && math.Abs(x.Shift.Estimate) >= effect*math.Abs(base.Median)
}

// Found counts what was found: of each finding, how often.
func (c Comparison) Found() map[Finding]int {
	n := map[Finding]int{}
	for _, v := range c.Values {
		for _, r := range v.Rows {
			for _, x := range r.Changes {
				if x.Finding != "" {
					n[x.Finding]++
				}
			}
		}
	}
	return n
}

// Told tells whether anything could be told, be it that nothing differs.
func (c Comparison) Told() bool {
	n := c.Found()
	return n[Better]+n[Worse]+n[Higher]+n[Lower]+n[Same] > 0
}
