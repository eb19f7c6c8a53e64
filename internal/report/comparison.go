package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"lockstep/internal/compare"
	"lockstep/internal/plan"
	"lockstep/internal/stats"
)

// Compared is a comparison as people read it: what differs besides the numbers first, then a table for each value, then what is in none of
// them, and at last what was found.
type Compared struct {
	Sides   []string // a line each
	Besides []Table  // none, or one
	Tables  []Table
	Left    []string
	Found   []string // a line for each change that is named
	Summary string
}

// mostLeft is how many cells that were left out are listed; more are counted.
const mostLeft = 40

// NewCompared makes tables and lines of a comparison.
func NewCompared(c compare.Comparison) Compared {
	out := Compared{Besides: besides(c), Left: left(c), Found: found(c), Summary: foundSummary(c)}
	for i, s := range c.Sides {
		line := fmt.Sprintf("%s: %s, %s, %s, %s × %d", s.Mark, s.Run, s.Name, s.Started.UTC().Format(time.DateTime+" UTC"), cellCount(s.Cells), s.Repetitions)
		if i == 0 {
			line += " (base)"
		}
		out.Sides = append(out.Sides, line)
	}
	for _, v := range c.Values {
		out.Tables = append(out.Tables, valueTable(c, v))
	}
	return out
}

func cellCount(n int) string {
	if n == 1 {
		return "1 cell"
	}
	return fmt.Sprintf("%d cells", n)
}

func marks(c compare.Comparison) []string {
	all := make([]string, len(c.Sides))
	for i, s := range c.Sides {
		all[i] = s.Mark
	}
	return all
}

// besides is the table of what differs besides the numbers.
func besides(c compare.Comparison) []Table {
	if len(c.Differences) == 0 {
		return nil
	}
	t := Table{Title: "What else differs", Axes: []string{"of", "what"}, Head: append([]string{"of", "what"}, marks(c)...)}
	for _, d := range c.Differences {
		row := []Field{{Text: d.Of}, {Text: d.What}}
		for _, v := range d.Values {
			row = append(row, Field{Text: v})
		}
		t.Rows = append(t.Rows, row)
	}
	return []Table{t}
}

var betterWords = map[plan.Direction]string{plan.HigherIsBetter: "higher is better", plan.LowerIsBetter: "lower is better", plan.NeitherBetter: "neither is better"}

// valueTable is the table of one value.
func valueTable(c compare.Comparison, v compare.Value) Table {
	t := Table{Title: fmt.Sprintf("%s (%s), %s", v.Title, v.Name, betterWords[v.Better])}
	for _, r := range v.Rows {
		for _, at := range r.At {
			if !slices.Contains(t.Axes, at.Axis) {
				t.Axes = append(t.Axes, at.Axis)
			}
		}
	}
	if len(t.Axes) == 0 {
		t.Axes = []string{"cell"}
	}
	t.Head = append(slices.Clone(t.Axes), marks(c)...)
	for _, s := range c.Sides[1:] {
		of := ""
		if len(c.Sides) > 2 {
			of = s.Mark + ": "
		}
		t.Head = append(t.Head, of+"change", of+sure(c)+" interval", of+"p", of+"effect", of+"finding")
	}
	n := &notes{}
	for _, r := range v.Rows {
		t.Rows = append(t.Rows, valueRow(c, v, r, t.Axes, n))
	}
	if len(v.Rows) > 1 {
		t.Rows = append(t.Rows, meanRow(c, v, t.Axes))
	}
	t.Notes = n.texts
	t.Remarks = append(legend(t.Rows), valueRemarks(c, v)...)
	return t
}

func sure(c compare.Comparison) string { return fmt.Sprintf("%.4g %%", 100*(1-c.Alpha)) }

// placeFields are the fields of a row's coordinates.
func placeFields(r compare.Row, axes []string) []Field {
	fields := make([]Field, len(axes))
	for i, axis := range axes {
		fields[i].Text = "–"
		for _, x := range r.At {
			if x.Axis == axis {
				fields[i].Text = compact(x)
			}
		}
	}
	if len(r.At) == 0 {
		fields[0].Text = r.Name
	}
	return fields
}

func valueRow(c compare.Comparison, v compare.Value, r compare.Row, axes []string, n *notes) []Field {
	row := placeFields(r, axes)
	for i, s := range r.Sides {
		row = append(row, sampleField(c, v, s, c.Sides[i].Mark, n))
	}
	for i, x := range r.Changes {
		if r.Sides[i+1].N == 0 {
			row = append(row, Field{Text: "–"}, Field{}, Field{}, Field{}, Field{})
			continue
		}
		interval := x.Shift.Interval
		text := ""
		if x.Ratio != nil {
			interval = x.Ratio.Interval
		}
		if interval.Holds(1 - c.Alpha) {
			text = span2(x, v.Unit)
		}
		row = append(row, Field{Text: changeText(x, v.Unit)}, Field{Text: text}, Field{Text: chance(x)},
			Field{Text: fmt.Sprintf("%+.2f", x.Delta)}, Field{Text: string(x.Finding)})
	}
	return row
}

// sampleField is a side's median, how well it is known, and what is doubtful about it.
func sampleField(c compare.Comparison, v compare.Value, s compare.Sample, mark string, n *notes) Field {
	f := Field{Value: v.Name, Unit: v.Unit, Flags: s.Flags, Bound: s.Bound}
	if s.N == 0 {
		f.Text = "–"
		return f
	}
	middle := s.Median
	f.Number = &middle
	info := valueInfo(v.Name)
	f.Text = show(info, plan.Value{Number: middle, Over: s.Over})
	if part, ok := s.Relative(1 - c.Alpha); ok && s.Over == 0 {
		f.Mark = fmt.Sprintf("±%s", percent(part))
	}
	if s.Bound > 0 {
		f.Mark += " clocks " + plusMinus(middle, s.Bound)
	}
	f.Mark = strings.TrimSpace(f.Mark + " " + words(s.Flags))
	if s.Bimodal {
		f.Notes = n.add(fmt.Sprintf("%s: the repetitions fall into two groups, of which a median says little: %s", mark, listed(info, s.Numbers)))
	}
	return f
}

func listed(info plan.ValueInfo, numbers []float64) string {
	var all []string
	for _, x := range stats.Sorted(numbers) {
		all = append(all, format(info.Unit, x))
	}
	return strings.Join(all, ", ")
}

func meanRow(c compare.Comparison, v compare.Value, axes []string) []Field {
	row := make([]Field, len(axes)+len(c.Sides))
	row[0].Text = "geometric mean"
	for _, m := range v.Means {
		text := ""
		if m.Interval.Holds(1 - c.Alpha) {
			text = signed(m.Interval.Low-1) + " … " + signed(m.Interval.High-1)
		}
		change := Field{Text: "–"}
		if m.Cells > 0 {
			change.Text = signed(m.Estimate - 1)
		}
		row = append(row, change, Field{Text: text}, Field{}, Field{}, Field{})
	}
	return row
}

// changeText is a change as a part or, from or to zero, in the value's unit.
func changeText(x compare.Change, unit plan.Unit) string {
	if x.Ratio != nil {
		return signed(x.Ratio.Estimate - 1)
	}
	return signedNumber(unit, x.Shift.Estimate)
}

func span2(x compare.Change, unit plan.Unit) string {
	if x.Ratio != nil {
		return signed(x.Ratio.Interval.Low-1) + " … " + signed(x.Ratio.Interval.High-1)
	}
	return signedNumber(unit, x.Shift.Interval.Low) + " … " + signedNumber(unit, x.Shift.Interval.High)
}

func signedNumber(unit plan.Unit, x float64) string {
	if unit == plan.Text {
		unit = plan.PerSecond
	}
	if text := format(unit, x); x < 0 || text == format(unit, 0) {
		return text
	} else {
		return "+" + text
	}
}

// signed writes a part with its sign: "+3.7 %"; from ten times on as a factor.
func signed(part float64) string {
	switch {
	case part >= 9:
		return "×" + significant(part+1)
	case math.Abs(part) < 0.0005:
		return "0 %"
	case part > 0:
		return "+" + percent(part)
	}
	return "-" + percent(-part)
}

// percent writes a part that is not negative, to a tenth below ten.
func percent(part float64) string {
	if x := 100 * part; x < 9.95 {
		return fmt.Sprintf("%.1f %%", x)
	}
	return decimals(100*part, 0) + " %"
}

// chance is p of a change; none where no p, however small, could have told anything.
func chance(x compare.Change) string {
	if x.Finding == compare.TooFew {
		return "–"
	}
	return probability(x.Adjusted)
}

func probability(p float64) string {
	switch {
	case p < 0.0001:
		return "< 0.0001"
	case p > 0.9995:
		return "1"
	}
	return fmt.Sprintf("%.2g", p)
}
