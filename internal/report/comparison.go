package report

import (
	"cmp"
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

// valueTable is the table of one value: a line for each cell, or, where there are more than two sides, one for each side of it, so that it does
// not grow wider with every side.
func valueTable(c compare.Comparison, v compare.Value) Table {
	t := Table{Title: fmt.Sprintf("%s (%s), %s", v.Title, v.Name, betterWords[v.Better]), Axes: axesOf(v)}
	n := &notes{}
	change := []string{"change", sure(c) + " interval", "p", "effect", "finding"}
	if len(c.Sides) > 2 {
		t.Rows = sideRows(c, v, t.Axes, n)
		t.Axes = append(t.Axes, cmp.Or(c.By, "side"))
		t.Head = slices.Concat(t.Axes, []string{"median"}, change)
	} else {
		t.Rows = cellRows(c, v, t.Axes, n)
		t.Head = slices.Concat(t.Axes, marks(c), change)
	}
	t.Notes = n.texts
	t.Remarks = append(legend(t.Rows), valueRemarks(c, v)...)
	return t
}

// axesOf are the axes on which a value's cells are, at least one.
func axesOf(v compare.Value) (axes []string) {
	for _, r := range v.Rows {
		for _, at := range r.At {
			if !slices.Contains(axes, at.Axis) {
				axes = append(axes, at.Axis)
			}
		}
	}
	if len(axes) == 0 {
		return []string{"cell"}
	}
	return axes
}

// cellRows are the rows of two sides.
func cellRows(c compare.Comparison, v compare.Value, axes []string, n *notes) (rows [][]Field) {
	for _, r := range v.Rows {
		row := placeFields(r, axes)
		for i, s := range r.Sides {
			row = append(row, sampleField(c, v, s, c.Sides[i].Mark, n))
		}
		rows = append(rows, append(row, changeFields(c, v, r, 1)...))
	}
	if len(v.Rows) > 1 {
		mean := make([]Field, len(axes)+len(c.Sides))
		mean[0].Text = "geometric mean"
		rows = append(rows, append(mean, meanFields(c, v.Means[0])...))
	}
	return rows
}

// sideRows are the rows of more than two.
func sideRows(c compare.Comparison, v compare.Value, axes []string, n *notes) (rows [][]Field) {
	for _, r := range v.Rows {
		for i, s := range r.Sides {
			mark := c.Sides[i].Mark
			row := append(placeFields(r, axes), Field{Text: mark}, sampleField(c, v, s, mark, n))
			rows = append(rows, append(row, changeFields(c, v, r, i)...))
		}
	}
	for i, m := range v.Means {
		if len(v.Rows) > 1 {
			mean := make([]Field, len(axes)+2)
			mean[0].Text, mean[len(axes)].Text = "geometric mean", c.Sides[i+1].Mark
			rows = append(rows, append(mean, meanFields(c, m)...))
		}
	}
	return rows
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

// changeFields are what a row says of a side against the base; of the base itself, nothing.
func changeFields(c compare.Comparison, v compare.Value, r compare.Row, side int) []Field {
	fields := make([]Field, 5)
	if side == 0 {
		return fields
	}
	if r.Sides[side].N == 0 {
		fields[0].Text = "–"
		return fields
	}
	x := r.Changes[side-1]
	interval := x.Shift.Interval
	if x.Ratio != nil {
		interval = x.Ratio.Interval
	}
	if interval.Holds(1 - c.Alpha) {
		fields[1].Text = span2(x, v.Unit)
	}
	fields[0].Text, fields[2].Text = changeText(x, v.Unit), chance(x)
	fields[3].Text, fields[4].Text = fmt.Sprintf("%+.2f", x.Delta), string(x.Finding)
	return fields
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

// meanFields are what is said of a side in the geometric mean over cells.
func meanFields(c compare.Comparison, m compare.Mean) []Field {
	fields := []Field{{Text: "–"}, {}, {}, {}, {}}
	if m.Cells > 0 {
		fields[0].Text = signed(m.Estimate - 1)
	}
	if m.Interval.Holds(1 - c.Alpha) {
		fields[1].Text = signed(m.Interval.Low-1) + " … " + signed(m.Interval.High-1)
	}
	return fields
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
