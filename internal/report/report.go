// Package report formats the outcomes of a run as tables for people and machines. Numbers are medians over repetitions.
// Flags and footnotes state which of them are not reliable. The same outcomes give the same output, and a missing value
// never looks like a number.
package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/stats"
)

// Table is a summary table, independent of the output format.
type Table struct {
	Title   string       `json:"title"`
	Split   []Coordinate `json:"split,omitempty"` // the part of the matrix that it shows
	Axes    []string     `json:"axes"`            // the first len(Axes) fields of a row are coordinates
	Head    []string     `json:"head"`            // one heading per field of a row
	Rows    [][]Field    `json:"rows"`
	Notes   []string     `json:"notes,omitempty"`   // footnotes, numbered from 1 by Field.Notes
	Remarks []string     `json:"remarks,omitempty"` // about the whole table
	Chart   *Chart       `json:"chart,omitempty"`

	whole bool // no column is left out on a narrow terminal
}

// Coordinate is the value of an axis as text.
type Coordinate struct {
	Axis string `json:"axis"`
	Text string `json:"text"`
}

// Field is a field of a table: a coordinate of its row, or a value of one cell.
type Field struct {
	Text    string       `json:"text"`             // a number with its unit, or a word
	Bound   float64      `json:"bound,omitempty"`  // maximum error of Number in both directions, in its unit
	Mark    string       `json:"mark,omitempty"`   // shown after the text
	Number  *float64     `json:"number,omitempty"` // nil: no number
	Unit    plan.Unit    `json:"unit,omitempty"`
	Flags   []plan.Flag  `json:"flags,omitempty"`
	Verdict plan.Verdict `json:"verdict,omitempty"` // the worst of the repetitions; empty: not run
	Value   string       `json:"value,omitempty"`   // name of the value; empty for a coordinate
	Column  []Coordinate `json:"column,omitempty"`
	Notes   []int        `json:"notes,omitempty"` // footnotes

	sign limitSign // of Number
}

// Build returns the tables that a run's matrix requests: one per part of a split that has a cell. An axis on which
// cells differ becomes a row axis if the table does not name it, so that no two cells share a field. A table of best
// cells shows such axes as columns. The tables of capacity searches follow.
func Build(run plan.Run, outcomes []plan.Outcome) []Table {
	return StudyOf(run, outcomes).Build()
}

// requestedTables returns the tables that a run's matrix requests, or a default table.
func requestedTables(run plan.Run) []plan.Table {
	if len(run.Tables) > 0 {
		return run.Tables
	}
	t := plan.Table{Rows: run.Axes, Values: []string{"publish.rate", "consume.rate", "publish.p99"}}
	if Grouped(run) {
		t.Rows = append(slices.Clip(t.Rows), GroupAxis)
	}
	return []plan.Table{t}
}

// ValueInfo returns the description of a value. An unknown value, from a newer matrix, has its name as its title.
func ValueInfo(metrics plan.Metrics, name string) plan.ValueInfo {
	if v, is := metrics.ValueNamed(name); is {
		return v
	}
	return plan.ValueInfo{Name: name, Title: name, Unit: plan.Count}
}

// notes are the footnotes of a table, without duplicates.
type notes struct{ texts []string }

func (n *notes) add(text string) []int {
	n.texts = addNew(n.texts, text)
	return []int{slices.Index(n.texts, text) + 1}
}

// addNew appends the items that a list does not contain.
func addNew[T comparable](list []T, items ...T) []T {
	for _, x := range items {
		if !slices.Contains(list, x) {
			list = append(list, x)
		}
	}
	return list
}

// legend explains the flags in a table with their remedies, and the signs that it uses.
func (t Table) legend() []string {
	var lines []string
	for _, m := range meanings {
		shown, where, used := 0, "", []string(nil)
		for _, row := range t.Rows {
			if slices.ContainsFunc(row, func(f Field) bool { return slices.Contains(t.shownFlags(f.Flags), m.flag) }) {
				shown++
			}
			if _, signOf := t.rowFlags(row[min(len(t.Axes), len(row)):]); signOf[m.flag] != "" {
				used = addNew(used, signOf[m.flag])
			}
		}
		if len(used) > 0 {
			where = ", values with " + strings.Join(used, " or ")
		}
		if shown > 0 {
			lines = append(lines, fmt.Sprintf("%s (%s%s): %s; %s", m.flag, display.Count(shown, "row"), where, m.text, m.remedy))
		}
	}
	bounded := func(row []Field) bool { return slices.ContainsFunc(row, func(f Field) bool { return f.Bound > 0 }) }
	if slices.ContainsFunc(t.Rows, bounded) {
		lines = append(lines, "±: error bound (clock offsets between hosts, backlogs sampled once per second)")
	}
	return lines
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

// shownFlags returns the flags that rows of the table show.
func (t Table) shownFlags(flags []plan.Flag) []plan.Flag {
	if t.whole { // a comparison, which does not list the limitations of runs
		return flags
	}
	return slices.DeleteFunc(slices.Clone(flags), func(x plan.Flag) bool { return x == plan.SharedHost })
}

// rowFlags returns the flags of all values of a row, in the order of meanings. A flag that does not apply to all values
// has a sign, which is also the result by flag.
func (t Table) rowFlags(values []Field) (text string, signOf map[plan.Flag]string) {
	var all []plan.Flag
	for _, f := range values {
		all = append(all, t.shownFlags(f.Flags)...)
	}
	signOf = map[plan.Flag]string{}
	var parts []string
	for _, flag := range distinctFlags(all) {
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

// Full returns the text of a field with its unit, error bound, annotation and flags.
func (f Field) Full() string {
	parts := []string{f.Text}
	if f.Number != nil {
		parts = append(parts, display.PlusMinus(*f.Number, f.Bound))
	}
	parts = append(parts, f.Mark, flagText(f.Flags))
	if f.Verdict == plan.Invalid && f.Number != nil {
		parts = append(parts, string(plan.Invalid))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}
