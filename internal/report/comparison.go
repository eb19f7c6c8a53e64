package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
)

// Comparison is a comparison as tables and lines, in the order in which they are shown.
type Comparison struct {
	Sides   []string // one line per side
	Besides []Table  // the table of other differences, if there are any
	Tables  []Table
	Left    []string
	Found   []string // one line per difference
	Method  []string // the test and the intervals, in two lines
	Summary string
}

// maxLeft limits the listed cells that were left out.
const maxLeft = 40

// NewComparison formats a comparison.
func NewComparison(c compare.Comparison) Comparison {
	out := Comparison{Besides: besides(c), Left: left(c), Found: found(c), Method: method(c),
		Summary: foundSummary(c)}
	for i, s := range c.Sides {
		line := fmt.Sprintf("%s: %s, %s, %s, %s × %d", s.Mark, s.Run, s.Name,
			display.Time(s.Started), display.Count(s.Cells, "cell"), s.Repetitions)
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

func marks(c compare.Comparison) []string {
	all := make([]string, len(c.Sides))
	for i, s := range c.Sides {
		all[i] = s.Mark
	}
	return all
}

// besides returns the table of differences other than those of values.
func besides(c compare.Comparison) []Table {
	if len(c.Differences) == 0 {
		return nil
	}
	t := Table{Title: "Other differences", Axes: []string{"part", "property"},
		Head: append([]string{"part", "property"}, marks(c)...)}
	partial := 0
	for _, d := range c.Differences {
		if c.By != "" && strings.HasPrefix(d.Of, "broker") && slices.Contains(d.Values, "–") { // of another driver
			partial++
			continue
		}
		row := []Field{{Text: d.Of}, {Text: d.What}}
		for _, v := range d.Values {
			row = append(row, Field{Text: v})
		}
		t.Rows = append(t.Rows, row)
	}
	if partial > 0 {
		t.Remarks = []string{fmt.Sprintf("%s of brokers that not all sides have: see the JSON output", display.Count(partial, "setting"))}
	}
	return []Table{t}
}

var betterWords = map[plan.Direction]string{plan.HigherIsBetter: "higher is better",
	plan.LowerIsBetter: "lower is better", plan.NeitherBetter: "neither is better"}

// valueTable returns the table of one value. It has one row per cell. With more than two sides it has one row per cell
// and side, so that its width stays the same.
func valueTable(c compare.Comparison, v compare.Value) Table {
	t := Table{Title: fmt.Sprintf("%s (%s), %s", v.Title, v.Name, betterWords[v.Better]), Axes: axesOf(v), whole: true}
	if len(t.Axes) == 0 {
		t.Axes = []string{"cell"}
	}
	n := &notes{}
	change := []string{"change", sure(c) + " interval", "p", "finding"}
	if len(c.Sides) > 2 {
		t.Rows = sideRows(c, v, t.Axes, n)
		t.Axes = append(t.Axes, cmp.Or(c.By, "side"))
		t.Head = slices.Concat(t.Axes, []string{"median"}, change)
	} else {
		t.Rows = cellRows(c, v, t.Axes, n)
		t.Head = slices.Concat(t.Axes, marks(c), change)
	}
	t.Notes = n.texts
	t.Remarks = t.legend()
	return t
}

// axesOf returns the axes of the cells of values.
func axesOf(values ...compare.Value) (axes []string) {
	for _, v := range values {
		for _, r := range v.Rows {
			for _, at := range r.At {
				axes = addNew(axes, at.Axis)
			}
		}
	}
	return axes
}

// cellRows returns the rows for two sides.
func cellRows(c compare.Comparison, v compare.Value, axes []string, n *notes) (rows [][]Field) {
	for _, r := range v.Rows {
		row := placeFields(r, axes)
		for _, s := range r.Sides {
			row = append(row, sampleField(c, v, s))
		}
		rows = append(rows, append(row, changeFields(c, v, r, 1, n)...))
	}
	if len(v.Rows) > 1 {
		mean := make([]Field, len(axes)+len(c.Sides))
		mean[0].Text = "geometric mean"
		rows = append(rows, append(mean, meanFields(c, v.Means[0], len(v.Rows))...))
	}
	return rows
}

// sideRows returns the rows for more than two sides.
func sideRows(c compare.Comparison, v compare.Value, axes []string, n *notes) (rows [][]Field) {
	for _, r := range v.Rows {
		for i, s := range r.Sides {
			row := append(placeFields(r, axes), Field{Text: c.Sides[i].Mark}, sampleField(c, v, s))
			rows = append(rows, append(row, changeFields(c, v, r, i, n)...))
		}
	}
	for i, m := range v.Means {
		if len(v.Rows) > 1 {
			mean := make([]Field, len(axes)+2)
			mean[0].Text, mean[len(axes)].Text = "geometric mean", c.Sides[i+1].Mark
			rows = append(rows, append(mean, meanFields(c, m, len(v.Rows))...))
		}
	}
	return rows
}

func sure(c compare.Comparison) string { return fmt.Sprintf("%.4g %%", 100*(1-c.Alpha)) }

// placeFields returns the fields of a row's coordinates. A row without coordinates has its name instead.
func placeFields(r compare.Row, axes []string) []Field {
	fields := placeOf(r.At).fields(axes)
	if len(r.At) == 0 {
		fields[0].Text = r.Name
	}
	return fields
}

// changeFields returns the fields of a side's change against the base. They are empty for the base itself.
func changeFields(c compare.Comparison, v compare.Value, r compare.Row, side int, n *notes) []Field {
	fields := make([]Field, 4)
	if side == 0 {
		return fields
	}
	x := r.Changes[side-1]
	fields[0].Text, fields[1].Text = changeText(x, v.Unit), changeInterval(x, v.Unit, 1-c.Alpha)
	fields[2].Text, fields[3].Text = chance(x), string(x.Finding)
	if x.Why != "" {
		fields[3].Notes = n.add(x.Why)
	}
	return fields
}

// sampleField returns the field of a side's median, with its relative interval and its flags.
func sampleField(c compare.Comparison, v compare.Value, s compare.Sample) Field {
	f := Field{Value: v.Name, Unit: v.Unit, Flags: s.Flags, Bound: s.Bound}
	if s.N == 0 || s.HasBacklog() {
		f.Text = "–"
		return f
	}
	middle := s.Median
	f.Number = &middle
	info, shown := plan.ValueInfo{Name: v.Name, Unit: v.Unit}, plan.Value{Number: middle}
	f.Text, f.sign = show(info, shown), signOf(info, shown)
	if part, ok := s.Relative(1 - c.Alpha); ok {
		f.Mark = fmt.Sprintf("±%s", display.Percent(part))
	}
	return f
}

// meanFields returns the fields of a side's geometric mean, with the number of cells if some have none.
func meanFields(c compare.Comparison, m compare.Mean, cells int) []Field {
	fields := []Field{{Text: "–"}, {}, {}, {}}
	if m.Cells > 0 {
		fields[0].Text = display.Change(m.Estimate - 1)
	}
	if m.Interval.Holds(1 - c.Alpha) {
		fields[1].Text = display.Change(m.Interval.Low-1) + " … " + display.Change(m.Interval.High-1)
	}
	if m.Cells < cells {
		fields[3].Text = fmt.Sprintf("%d of %s", m.Cells, display.Count(cells, "cell"))
	}
	return fields
}

// changeText formats a change as a percentage or, without a ratio, as a difference in the value's unit; "–": unknown.
func changeText(x compare.Change, unit plan.Unit) string {
	switch {
	case x.Ratio != nil:
		return display.Change(x.Ratio.Estimate - 1)
	case x.Finding == "", x.Why != "" && x.Shift.Estimate == 0:
		return "–"
	}
	return signedNumber(unit, x.Shift.Estimate)
}

// changeInterval formats the interval of a change. It is empty if the interval does not reach the confidence.
func changeInterval(x compare.Change, unit plan.Unit, confidence float64) string {
	switch {
	case x.Ratio != nil && x.Ratio.Interval.Holds(confidence):
		return display.Change(x.Ratio.Interval.Low-1) + " … " + display.Change(x.Ratio.Interval.High-1)
	case x.Ratio == nil && x.Shift.Interval.Holds(confidence):
		return signedNumber(unit, x.Shift.Interval.Low) + " … " + signedNumber(unit, x.Shift.Interval.High)
	}
	return ""
}

func signedNumber(unit plan.Unit, x float64) string {
	if unit == plan.Text {
		unit = plan.PerSecond
	}
	if text := Format(unit, x); x < 0 || text == Format(unit, 0) {
		return text
	} else {
		return "+" + text
	}
}

// chance formats the adjusted p of a change; "–" if it is inconclusive.
func chance(x compare.Change) string {
	switch {
	case x.Finding == "":
		return ""
	case x.Finding == compare.Inconclusive:
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

// method describes the test and the intervals in two lines.
func method(c compare.Comparison) []string {
	test, change := "t-test of the medians of runs, with the run-to-run spread of earlier runs",
		"the ratio of the medians"
	if c.By != "" {
		test, change = "Mann–Whitney over repetitions", "the median of the ratios of all pairs of repetitions"
	}
	return []string{
		fmt.Sprintf("A difference is reported if the change is at least %s and p is at most %.4g, after Holm's correction for %s (%s)",
			display.Percent(c.Effect), c.Alpha, display.Count(c.Tests, "test"), test),
		fmt.Sprintf("change: %s, with its %s interval; ±: interval of the median", change, sure(c)),
	}
}

// left lists the cells that are not compared, at most maxLeft.
func left(c compare.Comparison) (lines []string) {
	for i, l := range c.Left {
		if i == maxLeft {
			lines = append(lines, fmt.Sprintf("and %d more (see JSON or CSV)", len(c.Left)-maxLeft))
			break
		}
		lines = append(lines, fmt.Sprintf("%s (%s): %s", l.Cell, strings.Join(l.Sides, ", "), l.Reason))
	}
	return lines
}

// found lists the differences in the order of compare.Findings.
func found(c compare.Comparison) (lines []string) {
	for _, f := range compare.Findings() {
		if f == compare.NoDifference || f == compare.Inconclusive {
			continue
		}
		for _, v := range c.Values {
			for _, r := range v.Rows {
				for i, x := range r.Changes {
					if x.Finding == f {
						lines = append(lines, foundLine(c, v, r, i))
					}
				}
			}
		}
	}
	return lines
}

func foundLine(c compare.Comparison, v compare.Value, r compare.Row, i int) string {
	x, then, now := r.Changes[i], sampleField(c, v, r.Sides[0]), sampleField(c, v, r.Sides[i+1])
	line := fmt.Sprintf("%s: %s: %s %s (medians %s → %s, p %s)", x.Finding, r.Name, v.Name, changeText(x, v.Unit),
		then.Text, now.Text, probability(x.Adjusted))
	if len(c.Sides) > 2 {
		line = c.Sides[i+1].Mark + " " + line
	}
	if flags := flagsOf(r, i); len(flags) > 0 {
		line += ", flagged " + flagText(flags)
	}
	return line
}

// flagsOf returns the flags of the base and of the side with change i.
func flagsOf(r compare.Row, i int) []plan.Flag {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.Sides[0].Flags, r.Sides[i+1].Flags))))
}

// foundSummary returns the last line: "24 compared: 2 worse, 1 better, 21 no difference shown".
func foundSummary(c compare.Comparison) string {
	n, total := c.Found(), 0
	var parts []string
	for _, f := range compare.Findings() {
		if n[f] > 0 {
			total += n[f]
			parts = append(parts, fmt.Sprintf("%d %s", n[f], f))
		}
	}
	text := "nothing could be compared"
	if total > 0 {
		text = fmt.Sprintf("%d compared: %s", total, strings.Join(parts, ", "))
	}
	if n := len(c.Left); n > 0 {
		text += fmt.Sprintf("; %s not compared", display.Count(n, "cell"))
	}
	return text
}

// Text writes a comparison for a terminal of the given width in columns; 0: no limit.
func (x Comparison) Text(w io.Writer, width int) error {
	out := bufio.NewWriter(w)
	for _, line := range x.Sides {
		fmt.Fprintln(out, display.Clean(line))
	}
	fmt.Fprintln(out)
	if len(x.Besides) == 0 {
		fmt.Fprintln(out, "No other differences recorded.")
	} else if err := writeText(out, x.Besides, width); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := writeText(out, x.Tables, width); err != nil {
		return err
	}
	section := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(out, "\n%s\n\n", title)
			for _, line := range lines {
				fmt.Fprintf(out, "  %s\n", display.Clean(line))
			}
		}
	}
	section("Not compared", x.Left)
	section("Findings", x.Found)
	fmt.Fprintln(out)
	for _, line := range x.Method {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, "\n%s\n", x.Summary)
	return out.Flush()
}

// Markdown writes a comparison in GitHub's Markdown.
func (x Comparison) Markdown(w io.Writer) error {
	out := bufio.NewWriter(w)
	section := func(title string, lines []string) {
		if len(lines) > 0 {
			if title != "" {
				fmt.Fprintf(out, "\n### %s\n\n", title)
			}
			for _, line := range lines {
				fmt.Fprintf(out, "- %s\n", MarkdownText(line))
			}
		}
	}
	section("", x.Sides)
	fmt.Fprintln(out)
	if len(x.Besides) == 0 {
		fmt.Fprintln(out, "No other differences recorded.")
	}
	if err := writeMarkdown(out, slices.Concat(x.Besides, x.Tables)); err != nil {
		return err
	}
	section("Not compared", x.Left)
	section("Findings", x.Found)
	fmt.Fprintln(out)
	for _, line := range x.Method {
		fmt.Fprintf(out, "- %s\n", MarkdownText(line))
	}
	fmt.Fprintf(out, "\n%s\n", MarkdownText(x.Summary))
	return out.Flush()
}
