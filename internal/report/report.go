// Package report formats the outcomes of a run as tables for people and machines. Numbers are medians over repetitions.
// Flags and footnotes state which of them are not reliable. The same outcomes give the same output, and a missing value
// never looks like a number.
package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"lockstep/internal/plan"
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
	Mark    string       `json:"mark,omitempty"`   // words shown after the text
	Number  *float64     `json:"number,omitempty"` // nil: no number
	Unit    plan.Unit    `json:"unit,omitempty"`
	Flags   []plan.Flag  `json:"flags,omitempty"`
	Verdict plan.Verdict `json:"verdict,omitempty"` // the worst of the repetitions; empty: not run
	Value   string       `json:"value,omitempty"`   // name of the value; empty for a coordinate
	Column  []Coordinate `json:"column,omitempty"`
	Notes   []int        `json:"notes,omitempty"` // footnotes
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
	if grouped(run) {
		t.Rows = append(slices.Clip(t.Rows), groupAxis)
	}
	return []plan.Table{t}
}

// tables builds a requested table, one Table per part of its split.
func (b *builder) tables(t plan.Table) (tables []Table) {
	if t.Highest != "" || t.Lowest != "" {
		for _, part := range b.tuples(t.Split, nil) {
			tables = append(tables, b.bestTable(t, part))
		}
		return tables
	}
	t.Rows = append(slices.Clone(t.Rows), b.missingAxes(slices.Concat(t.Split, t.Rows, t.Columns))...)
	g := b.grid(slices.Concat(t.Split, t.Rows, t.Columns))
	for _, part := range b.tuples(t.Split, nil) {
		tables = append(tables, g.table(t, part))
	}
	return tables
}

// table builds the table of one part of a split.
func (g *grid) table(t plan.Table, part place) Table {
	rows, columns := g.b.tuples(t.Rows, part), g.b.tuples(t.Columns, part)
	out := Table{Title: g.b.title(t, g.annotated(part)), Axes: t.Rows, Split: part.coordinates(),
		Head: axisHeadings(t, t.Rows)}
	for _, column := range columns {
		for _, value := range t.Values {
			out.Head = append(out.Head, heading(g.annotated(column), titleOf(t, value), len(t.Values) == 1))
		}
	}
	n := &notes{}
	for _, row := range rows {
		fields := slices.Grow(row.fields(t.Rows), len(out.Head))
		for i, axis := range t.Rows {
			fields[i].Mark = g.latencies[point{axis, fields[i].Text}]
		}
		for _, column := range columns {
			at := slices.Concat(part, row, column).on(g.axes).String()
			for _, value := range t.Values {
				f := g.field(at, value, n)
				f.Column = column.coordinates()
				fields = append(fields, f)
			}
		}
		out.Rows = append(out.Rows, fields)
	}
	out.Notes = n.texts
	out.Remarks = out.legend()
	if slices.ContainsFunc(t.Values, func(v string) bool { _, v = plan.SplitGroup(v); return v == "throughput" }) {
		out.Remarks = append(out.Remarks,
			"throughput: one rate if the publish and consume rates agree, else publish / consume")
	}
	return out
}

// repeated describes the number of repetitions behind each median; empty: there is one.
func (b *builder) repeated() string {
	least, most := b.run.Repeat, 0
	for _, c := range b.cells {
		least, most = min(least, c.repeat), max(most, c.repeat)
	}
	if len(b.cells) == 0 {
		most = least
	}
	few, many := b.measured()
	switch {
	case most <= 1 || len(b.cells) > 0 && many == 0:
		return ""
	case few < least || many < most:
		return fmt.Sprintf("medians of the valid repetitions, %s of %s", fromTo(few, many), fromTo(least, most))
	case least != most && b.run.Until != nil:
		return fmt.Sprintf("medians of the repetitions that the stop rule required (%s), %d to %d", b.run.Until.Rule,
			least, most)
	}
	return fmt.Sprintf("medians of %d repetitions", most)
}

// measured returns the minimum and maximum number of valid repetitions, over the cells that have any.
func (b *builder) measured() (few, many int) {
	for _, c := range b.cells {
		if n := len(c.with(plan.Valid)); n > 0 {
			if few == 0 || n < few {
				few = n
			}
			many = max(many, n)
		}
	}
	return few, many
}

// fromTo formats a range of counts: "3", "3 to 9".
func fromTo(least, most int) string {
	if least == most {
		return strconv.Itoa(most)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

// field returns one value at a place of the matrix.
func (g *grid) field(at string, value string, n *notes) Field {
	info := valueInfo(value)
	if c := g.cells[at]; c != nil {
		return c.field(info, n)
	}
	f := Field{Value: value, Unit: info.Unit}
	if e := g.excluded[at]; e != nil {
		f.Text = "·"
		if e.Kind == kindNA {
			f.Text = "n/a"
			f.Notes = n.add("n/a: " + e.Reason)
		}
	}
	return f
}

// title returns the title with the part of the split. If columns are axes, it includes the only value.
func (b *builder) title(t plan.Table, part place) string {
	title := t.Title
	if title == "" {
		title = b.run.Name
	}
	if len(part) > 0 {
		title = strings.TrimPrefix(title+", "+part.String(), ", ")
	}
	if len(t.Columns) > 0 && len(t.Values) == 1 {
		title = strings.TrimPrefix(title+": "+titleOf(t, t.Values[0]), ": ")
	}
	return title
}

func heading(column place, title string, only bool) string {
	switch {
	case len(column) == 0:
		return title
	case only:
		return column.String()
	}
	return column.String() + " " + title
}

// titleOf returns the heading of a value in a table.
func titleOf(t plan.Table, value string) string {
	if own := t.Headings[value]; own != "" {
		return own
	}
	return valueInfo(value).Title
}

func axisHeadings(t plan.Table, axes []string) []string {
	head := slices.Clone(axes)
	for i, axis := range head {
		if own := t.Headings[axis]; own != "" {
			head[i] = own
		}
	}
	return head
}

// known returns all values by name.
var known = sync.OnceValue(func() map[string]plan.ValueInfo {
	all := map[string]plan.ValueInfo{}
	for _, v := range plan.Values() {
		all[v.Name] = v
	}
	return all
})

// valueInfo returns the description of a value. An unknown value, from a newer matrix, has its name as its title.
func valueInfo(name string) plan.ValueInfo {
	group, plain := plan.SplitGroup(name)
	v, is := known()[plain]
	switch {
	case !is:
		return plan.ValueInfo{Name: name, Title: name, Unit: plan.Count}
	case group != "":
		v.Name, v.Title = name, group+": "+v.Title
	}
	return v
}

// notes are the footnotes of a table, without duplicates.
type notes struct{ texts []string }

func (n *notes) add(text string) []int {
	for i, old := range n.texts {
		if old == text {
			return []int{i + 1}
		}
	}
	n.texts = append(n.texts, text)
	return []int{len(n.texts)}
}
