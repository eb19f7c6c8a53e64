package report

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"lockstep/internal/display"
	"lockstep/internal/plan"
	"lockstep/internal/stats"
)

// Layout is a table as people read it. Each column of numbers has one unit, which its heading names. The last column
// has the flags of each row, and what holds for all of its values: failed, invalid, n/a or not run. The flag
// shared-host is left out of the tables of a run, because the lines above them (Limitations) state its cells.
type Layout struct {
	Head []string
	Keys int // number of leading columns with coordinates
	Rows [][]Shown
}

// Shown is a field of a layout.
type Shown struct {
	Text  string // a number without its unit, or a word
	Tail  string // after it: error bound, annotation
	Notes []int
	Same  bool   // a coordinate that the row above has, too, like all coordinates before it
	Of    *Field // nil: the column of flags
}

// Left reports whether the heading of a column stands left: of coordinates and flags.
func (l Layout) Left(column int) bool {
	return column < l.Keys || len(l.Rows) > 0 && l.Rows[0][column].Of == nil
}

// signs connect flags with the values that they apply to, if they do not apply to all values of their row.
var signs = []string{"*", "†", "‡", "§", "¶"}

// Layout returns the layout of a table.
func (t Table) Layout() Layout {
	out := Layout{Head: slices.Clone(t.Head), Keys: len(t.Axes)}
	units := make([]scale, len(t.Head))
	for i := len(t.Axes); i < len(t.Head); i++ {
		if units[i] = t.scaleOf(i); units[i].name != "" {
			out.Head[i] += " (" + units[i].name + ")"
		}
	}
	states := make([]Shown, len(t.Rows))
	for n, row := range t.Rows {
		fields := make([]Shown, len(row))
		same := n > 0
		for i := range t.Axes {
			same = same && row[i].Text == t.Rows[n-1][i].Text && i < len(t.Axes)-1
			fields[i] = Shown{Text: row[i].Text, Tail: annotation(row[i].Mark), Same: same, Of: &row[i]}
		}
		values := row[len(t.Axes):]
		state, common := rowState(values), commonNotes(values)
		flags, signOf := t.rowFlags(values)
		for i := range values {
			f := &values[i]
			s := Shown{Of: f}
			for _, note := range f.Notes {
				if !slices.Contains(common, note) {
					s.Notes = append(s.Notes, note)
				}
			}
			if state == "" || state == string(plan.Invalid) || len(s.Notes) > 0 {
				s.Text, s.Tail = units[len(t.Axes)+i].show(*f)
			}
			for _, flag := range f.Flags {
				s.Tail += signOf[flag]
			}
			if f.Verdict == plan.Invalid && state == "" {
				s.Tail += " " + string(plan.Invalid)
			}
			fields[len(t.Axes)+i] = s
		}
		states[n] = Shown{Text: strings.TrimSpace(state + " " + flags), Notes: common}
		out.Rows = append(out.Rows, fields)
	}
	if slices.ContainsFunc(states, func(s Shown) bool { return s.Text != "" || len(s.Notes) > 0 }) {
		out.Head = append(out.Head, "Flags")
		for n := range out.Rows {
			out.Rows[n] = append(out.Rows[n], states[n])
		}
	}
	return out
}

func annotation(text string) string {
	if text == "" {
		return ""
	}
	return " " + text
}

// shownFlags returns the flags that rows of the table show.
func (t Table) shownFlags(flags []plan.Flag) []plan.Flag {
	if t.whole { // a comparison, which does not list the limitations of runs
		return flags
	}
	return without(flags, plan.SharedHost)
}

// rowFlags returns the flags of all values of a row, in the order of meanings. A flag that does not apply to all values
// has a sign, which is also the result by flag.
func (t Table) rowFlags(values []Field) (text string, signOf map[plan.Flag]string) {
	var all []plan.Flag
	for _, f := range values {
		all = append(all, t.shownFlags(f.Flags)...)
	}
	slices.SortFunc(all, func(a, b plan.Flag) int { return flagOrder(a) - flagOrder(b) })
	all = slices.Compact(all)
	signOf = map[plan.Flag]string{}
	var parts []string
	for _, flag := range all {
		unflagged := func(f Field) bool {
			return (f.Number != nil || len(f.Flags) > 0) && !slices.Contains(f.Flags, flag)
		}
		if slices.ContainsFunc(values, unflagged) {
			signOf[flag] = signs[min(len(signOf), len(signs)-1)]
		}
		parts = append(parts, string(flag)+signOf[flag])
	}
	return strings.Join(parts, " "), signOf
}

// rowState returns the state that all values of a row have in common: invalid, failed, not run or n/a; empty: none.
func rowState(values []Field) string {
	if len(values) == 0 {
		return ""
	}
	state := values[0].Text
	if values[0].Number != nil || !slices.Contains([]string{"failed", "not run", "n/a"}, state) {
		state = ""
	}
	invalid := true
	for _, f := range values {
		if f.Text != state {
			state = ""
		}
		invalid = invalid && f.Verdict == plan.Invalid
	}
	if state == "" && invalid {
		return string(plan.Invalid)
	}
	return state
}

// commonNotes returns the footnotes that all values of a row have. A row with one value has none: they belong to it.
func commonNotes(values []Field) (common []int) {
	if len(values) < 2 && rowState(values) == "" {
		return nil
	}
	for _, note := range values[0].Notes {
		if !slices.ContainsFunc(values, func(f Field) bool { return !slices.Contains(f.Notes, note) }) {
			common = append(common, note)
		}
	}
	return common
}

// scale is the unit of a column.
type scale struct {
	unit plan.Unit
	name string  // in the heading; empty: the fields have their units
	one  float64 // size of the unit
}

// scales lists the units in which numbers are shown, largest first.
var scales = map[plan.Unit][]scale{
	plan.Seconds: {{plan.Seconds, "s", 1}, {plan.Seconds, "ms", 1e-3}, {plan.Seconds, "µs", 1e-6}},
	plan.Bytes: {{plan.Bytes, "TiB", 1 << 40}, {plan.Bytes, "GiB", 1 << 30}, {plan.Bytes, "MiB", 1 << 20},
		{plan.Bytes, "KiB", 1 << 10}, {plan.Bytes, "B", 1}},
	plan.BytesRate: {{plan.BytesRate, "TiB/s", 1 << 40}, {plan.BytesRate, "GiB/s", 1 << 30},
		{plan.BytesRate, "MiB/s", 1 << 20}, {plan.BytesRate, "KiB/s", 1 << 10}, {plan.BytesRate, "B/s", 1}},
	plan.Cores: {{plan.Cores, "cores", 1}},
	plan.Ratio: {{plan.Ratio, "%", 0.01}},
}

// scaleOf returns the unit of a column. Values of the same series, such as publish.p50 and publish.p99, have the same
// unit, in which their median number has at least one digit before the decimal point.
func (t Table) scaleOf(column int) scale {
	series := func(f Field) string { return f.Value[:max(0, strings.LastIndexByte(f.Value, '.'))] }
	var of Field
	for _, row := range t.Rows {
		if f := row[column]; f.Number != nil {
			of = f
		}
	}
	var sizes []float64
	for _, row := range t.Rows {
		for _, f := range row {
			if f.Number != nil && *f.Number != 0 && f.Unit == of.Unit && series(f) == series(of) {
				sizes = append(sizes, math.Abs(*f.Number))
			}
		}
	}
	var chosen scale
	for _, chosen = range scales[of.Unit] {
		if len(sizes) > 0 && stats.Median(sizes) >= 0.9995*chosen.one { // 0.9995 is shown as 1.00
			break
		}
	}
	return chosen
}

// show returns the text of a field in the unit of its column, and the text that follows it.
func (s scale) show(f Field) (text, tail string) {
	tail = annotation(f.Mark)
	if f.Number == nil {
		return f.Text, tail
	}
	plusMinus := func(bound string) string { // an interval may precede it: "±1.4 % error bound ± 300"
		if f.Mark != "" {
			return tail + " error bound " + bound
		}
		return " " + bound
	}
	if s.name == "" || f.Unit != s.unit {
		text, second, two := strings.Cut(f.Text, " / ") // the rates of throughput
		if two {
			tail = " / " + second + tail
		}
		if f.Bound > 0 {
			tail = plusMinus(display.PlusMinus(*f.Number, f.Bound))
		}
		return text, tail
	}
	if f.Bound > 0 {
		tail = plusMinus("± " + display.RoundUp(f.Bound/s.one))
	}
	x := *f.Number
	switch {
	case strings.HasPrefix(f.Text, "< "):
		return "< " + s.format(plan.Resolution), tail
	case strings.HasPrefix(f.Text, "> "):
		return "> " + s.format(x), tail
	}
	return s.format(x), tail
}

// format formats a number with three significant digits; cores and percentages with two decimals and one.
func (s scale) format(x float64) string {
	switch x /= s.one; s.unit {
	case plan.Cores:
		return display.Decimals(x, 2)
	case plan.Ratio:
		return display.Decimals(x, 1)
	}
	if math.Abs(x) >= 1 || x == 0 {
		return display.Significant(x)
	}
	return strconv.FormatFloat(x, 'f', 2-int(math.Floor(math.Log10(math.Abs(x)))), 64)
}

// Full returns the text of a field with its unit, error bound, annotation and flags.
func (f Field) Full() string {
	parts := []string{f.Text}
	if f.Number != nil {
		parts = append(parts, display.PlusMinus(*f.Number, f.Bound))
	}
	parts = append(parts, f.Mark, words(f.Flags))
	if f.Verdict == plan.Invalid && f.Number != nil {
		parts = append(parts, string(plan.Invalid))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}
