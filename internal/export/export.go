// Package export writes the outcomes and windows of a run for other tools. The formats are CSV and Parquet for
// notebooks, Go benchmarks for benchstat, and result files of the OpenMessaging Benchmark. Information without a place
// in a format is left out, and no value is invented. The same record gives the same bytes.
package export

import (
	"encoding/csv"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/runs"
)

// kind is the type of a column.
type kind int

// The kinds of columns.
const (
	text kind = iota
	whole
	number
	truth
)

// Column is a column of a table.
type Column struct {
	Name string
	Kind kind
}

// Table is a table for notebooks, with rows as a stream. The type of a field depends on the Kind of its column: string,
// int64, float64 or bool. A missing value is nil.
type Table struct {
	Columns []Column
	Rows    iter.Seq2[[]any, error]
}

// identity is the first columns of every table. The axes follow.
var identity = []Column{{"run", text}, {"matrix", text}, {"started", text}, {"task", text}, {"cell", text},
	{"repetition", whole}, {"group", text},
	{"broker", text}, {"driver", text}, {"product", text}, {"version", text}, {"subject", text}, {"verdict", text}}

// head returns the columns that identify a row.
func head(p plan.Run) []Column {
	all := slices.Clone(identity)
	for _, axis := range p.Axes {
		all = append(all, Column{"axis." + axis, text})
	}
	return all
}

// part is a task or one of its groups, with its result.
type part struct {
	task    plan.Task
	group   string
	subject plan.Subject
	verdict plan.Verdict
	values  map[string]plan.Value
	outcome plan.Outcome
}

// place returns the fields that identify the part's rows.
func (x part) place(p plan.Run) []any {
	c, s := x.task.Cell, x.subject
	row := []any{p.ID, p.Name, x.outcome.Started.UTC().Format("2006-01-02T15:04:05.000Z"), x.task.ID, c.ID,
		int64(x.task.Repetition), optional(x.group),
		c.Broker.Name, c.Broker.Driver, optional(s.Product), optional(s.Version), optional(s.Fingerprint),
		string(x.verdict)}
	for _, axis := range p.Axes {
		if value, has := c.Coordinate(axis); has {
			row = append(row, value)
		} else {
			row = append(row, nil)
		}
	}
	return row
}

func optional(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// parts lists the results in the order of outcomes: each task as a whole, then its groups.
func parts(p plan.Run, outcomes []plan.Outcome) []part {
	tasks := map[string]plan.Task{}
	for _, t := range p.Tasks() {
		tasks[t.ID] = t
	}
	var all []part
	for _, o := range outcomes {
		t, known := tasks[o.Task]
		if !known {
			continue
		}
		all = append(all, part{t, "", o.Subject, o.Verdict, o.Values, o})
		for _, of := range t.Parts() {
			i := slices.IndexFunc(o.Groups, func(g plan.GroupOutcome) bool { return g.Name == of.Group })
			if i < 0 || of.Group == "" {
				continue
			}
			g, s := o.Groups[i], o.Subject
			if g.Subject != nil {
				s = *g.Subject
			}
			all = append(all, part{of, g.Name, s, g.Verdict, g.Values, o})
		}
	}
	return all
}

// Values returns a table with one row per repetition of a cell, and one per group of it. Values are in their units
// (seconds, messages per second, bytes), and empty if missing. The last columns are the flags as "value:flag
// value:flag", the reasons for missing values as "value:reason; …", the names of values that are only lower bounds, and
// maximum errors as "value:error".
func Values(run *runs.Run) (Table, error) {
	p := run.Plan()
	outcomes, err := run.Outcomes()
	if err != nil {
		return Table{}, err
	}
	t := Table{Columns: head(p)}
	infos := p.Metrics.Values()
	for _, v := range infos {
		t.Columns = append(t.Columns, Column{v.Name, number})
	}
	t.Columns = append(t.Columns, Column{"flags", text}, Column{"missing", text}, Column{"lower_bounds", text},
		Column{"errors", text})
	t.Rows = func(yield func([]any, error) bool) {
		for _, x := range parts(p, outcomes) {
			if !yield(valueRow(p, infos, x), nil) {
				return
			}
		}
	}
	return t, nil
}

func valueRow(p plan.Run, infos []plan.ValueInfo, x part) []any {
	row := x.place(p)
	var flags, missing, lower, bounds []string
	for _, info := range infos {
		v, has := x.values[info.Name]
		for _, f := range v.Flags {
			flags = append(flags, info.Name+":"+string(f))
		}
		switch {
		case has && v.NA == "":
			row = append(row, v.Number)
			if v.Over > 0 {
				lower = append(lower, info.Name)
			}
			if v.Bound > 0 {
				bounds = append(bounds, info.Name+":"+strconv.FormatFloat(v.Bound, 'g', 4, 64))
			}
			continue
		case has:
			missing = append(missing, info.Name+":"+v.NA)
		}
		row = append(row, nil)
	}
	return append(row, optional(strings.Join(flags, " ")), optional(strings.Join(missing, "; ")),
		optional(strings.Join(lower, " ")), optional(strings.Join(bounds, " ")))
}

// shown lists the latencies in the table of windows.
var shown = []record.Series{record.Publish, record.PublishIntended, record.EndToEnd, record.SendDelay,
	record.Backpressure}

// Windows returns a table with one row per second of a repetition. It has every counter and, per latency, the number of
// samples, p50, p99 and the maximum, in seconds. The column measured is false for seconds of messages whose intended
// send time is outside the measurement.
func Windows(run *runs.Run) (Table, error) {
	p := run.Plan()
	outcomes, err := run.Outcomes()
	if err != nil {
		return Table{}, err
	}
	t := Table{Columns: append(head(p), Column{"second", whole}, Column{"start", number}, Column{"length", number},
		Column{"measured", truth})}
	for _, c := range record.Counters() {
		t.Columns = append(t.Columns, Column{c.String(), whole})
	}
	for _, s := range shown {
		t.Columns = append(t.Columns, Column{s.String() + ".count", whole}, Column{s.String() + ".p50", number},
			Column{s.String() + ".p99", number}, Column{s.String() + ".max", number})
	}
	t.Rows = func(yield func([]any, error) bool) {
		for _, x := range parts(p, outcomes) {
			if !windowsOf(run, x, yield) {
				return
			}
		}
	}
	return t, nil
}

func windowsOf(run *runs.Run, x part, yield func([]any, error) bool) bool {
	m, err := run.Record(x.task.ID)
	if err != nil {
		return yield(nil, err)
	}
	place := x.place(run.Plan())
	load := x.task.Cell.Workload
	began := -int64(load.Warmup.D() + judge.Cut(load, m))
	windows := m.Group(x.group).Windows()
	for i := range windows {
		w := &windows[i]
		start, length := w.Start, w.Length
		if cut := began - start; cut > 0 && cut < length { // the second in which the warm-up began
			start, length = began, length-cut
		}
		row := append(slices.Clone(place), int64(w.Index), float64(start)/1e9, float64(length)/1e9, w.Measured)
		for _, c := range record.Counters() {
			row = append(row, w.Counts[c])
		}
		for _, s := range shown {
			row = append(row, spread(w.Hists[s])...)
		}
		if !yield(row, nil) {
			return false
		}
	}
	return true
}

// spread returns the four fields of a distribution.
func spread(h *record.Hist) []any {
	if h == nil || h.Count() == 0 {
		return []any{int64(0), nil, nil, nil}
	}
	// the codec bounds the count, so it fits
	return []any{int64(h.Count()), float64(h.Quantile(0.5)) / 1e9, float64(h.Quantile(0.99)) / 1e9,
		float64(h.Max()) / 1e9}
}

// wrong returns the error of a value that does not have the type of its column.
func wrong(c Column, v any) error {
	return fmt.Errorf("column %s: a value of type %T does not fit", c.Name, v)
}

// CSV writes a table according to RFC 4180. Numbers are unrounded, and a missing value is empty.
func CSV(w io.Writer, t Table) error {
	out := csv.NewWriter(w)
	line := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		line[i] = c.Name
	}
	if err := out.Write(line); err != nil {
		return err
	}
	for row, err := range t.Rows {
		if err != nil {
			return err
		}
		for i, v := range row {
			if line[i], err = plain(t.Columns[i], v); err != nil {
				return err
			}
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func plain(c Column, v any) (string, error) {
	switch x := v.(type) {
	case nil:
		return "", nil
	case string:
		return x, nil
	case int64:
		return strconv.FormatInt(x, 10), nil
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64), nil
	case bool:
		return strconv.FormatBool(x), nil
	}
	return "", wrong(c, v)
}
