// Package report turns the outcomes of a run into tables for people and machines: medians over repetitions, with every doubt
// beside its number. It promises the same output for the same outcomes, and that nothing missing looks like a number.
package report

import (
	"io"

	"lockstep/internal/plan"
)

// Table is a summary table, the same for every format.
type Table struct {
	Title string    `json:"title"`
	Axes  []string  `json:"axes"` // the first len(Axes) fields of a row are coordinates
	Head  []string  `json:"head"`
	Rows  [][]Field `json:"rows"`
	Notes []string  `json:"notes,omitempty"` // numbered from 1
}

// Field is one place of a table.
type Field struct {
	Text    string       `json:"text"`             // number with its unit, or a word
	Number  *float64     `json:"number,omitempty"` // nil: there is none
	Unit    plan.Unit    `json:"unit,omitempty"`
	Flags   []plan.Flag  `json:"flags,omitempty"`
	Value   string       `json:"value,omitempty"` // name of the value; empty for a coordinate
	Verdict plan.Verdict `json:"verdict,omitempty"`
	Notes   []int        `json:"notes,omitempty"` // footnotes
}

// Build makes the tables that a run's matrix asks for.
func Build(run plan.Run, outcomes []plan.Outcome) []Table { return nil }

// Text writes tables for a terminal of the given width in columns; 0 is any width.
func Text(w io.Writer, tables []Table, width int) error { return nil }

// Markdown writes tables in GitHub's Markdown.
func Markdown(w io.Writer, tables []Table) error { return nil }

// CSV writes one line for every field of every table.
func CSV(w io.Writer, tables []Table) error { return nil }

// JSON writes tables as they are.
func JSON(w io.Writer, tables []Table) error { return nil }

// Summary is the last line of a run's report: "24 tasks: 23 valid, 1 invalid, 0 unknown".
func Summary(run plan.Run, outcomes []plan.Outcome) string { return "" }

// Problems lists what keeps a run from being a success, one line a cell and reason; none if it is one.
func Problems(run plan.Run, outcomes []plan.Outcome) []string { return nil }

// Files are the tables as they are kept beside a run, by name: tables.txt, .md, .csv and .json.
func Files(run plan.Run, outcomes []plan.Outcome) (map[string][]byte, error) { return nil, nil }
