// Package page writes the report of a run, or of several side by side, as one HTML file that needs nothing from outside
// and no script: the tables that the terminal shows, drawings of them over each axis, and of each cell its verdict,
// distributions, seconds and events. Every figure on it is one of the record's, and a number that is doubtful is shown
// so.
//
// The file allows itself nothing (Content-Security-Policy), and all text of users is escaped. The same records give the
// same bytes.
package page

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/report"
	"lockstep/internal/report/chart"
	"lockstep/internal/runs"
)

// maxPrinted is how many cells are printed in detail unasked; of more, those that are unfolded.
const maxPrinted = 12

// Name is that of the file in a run's directory.
const Name = "report.html"

//go:embed page.html
var source string

//go:embed page.css
var css string

// Options say what a report has.
type Options struct {
	// Full has the details of every cell, however large the file becomes; without, only Detailed tasks have them.
	Full bool
}

// Detailed is how many tasks a report has in detail, if it is not full: the failed and invalid ones first, then the
// flagged ones.
const Detailed = 48

// Write writes the report of runs, which are called A, B, … where there are several.
func Write(w io.Writer, list []*runs.Run, o Options) error {
	p, err := gather(list, o)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := pageTemplate.Execute(w, p); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// Keep writes what people read of a run into its directory: the tables (report.Files) and the report.
func Keep(run *runs.Run) error {
	outcomes, err := run.Outcomes()
	if err != nil {
		return err
	}
	files, err := report.Files(run.Plan(), outcomes)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := Write(&text, []*runs.Run{run}, Options{}); err != nil {
		return fmt.Errorf("run %s: %w", run.Plan().ID, err)
	}
	files[Name] = text.Bytes()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := run.WriteFile(name, files[name]); err != nil {
			return err
		}
	}
	return nil
}

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"stamp":       func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"machine":     func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"words":       strings.Fields,
	"indented":    func(text string) bool { return strings.HasPrefix(text, " ") },
	"add":         func(a, b int) int { return a + b },
	"combination": func(e plan.Excluded) string { return plan.Cell{Coordinates: e.Coordinates}.Name() },
}).Parse(source))

// sheet is all that the page shows.
type sheet struct {
	CSS         template.CSS
	Title       string
	Runs        []runView
	Tables      []tableView
	Axes        []axisView
	Cells       []cellView
	Few         bool   // cells: all of them are printed in detail
	Left        string // which cells are not shown in detail
	Environment environment
	Data        data
}

// data is what the page says, for programs.
type data struct {
	Runs   []string       `json:"runs"`
	Tables []report.Table `json:"tables"`
}

// figure is a drawing with what there is to say of it.
type figure struct {
	Title string
	SVG   template.HTML
	Key   template.HTML
	Notes []string
}

// plotted makes a figure of a plot. What the chart package returns is escaped.
// plotted is a figure of lines. Where none has a point, only the notes are left, which say why.
func plotted(title string, p chart.Plot, notes ...string) figure {
	if !slices.ContainsFunc(p.Series, func(l chart.Line) bool { return len(l.Points) > 0 }) {
		return figure{Title: title, Notes: notes}
	}
	p.Title = title
	// nolint:gosec // see above
	return figure{Title: title, SVG: template.HTML(p.SVG()), Key: template.HTML(chart.Key(p.Series)), Notes: notes}
}

// tableView is a table and, of a search, its drawing.
type tableView struct {
	N int // from 1
	report.Table
	Lines  []line
	Figure *figure
}

// maxUpright is how many columns have room on a page that is printed upright, and on most screens.
const maxUpright = 9

// Many reports whether the table has more columns than most readers see at once.
func (v tableView) Many() bool { return len(v.Head) > maxUpright }

// line is a row of a table: its coordinates, then its values.
type line struct {
	At     []report.Field
	Values []report.Field
}

func tableViews(tables []report.Table, several bool) []tableView {
	var views []tableView
	for i, t := range tables {
		if several {
			t = beside(t)
		}
		v := tableView{N: i + 1, Table: t}
		for _, row := range t.Rows {
			v.Lines = append(v.Lines, line{At: row[:len(t.Axes)], Values: row[len(t.Axes):]})
		}
		if t.Chart != nil {
			f := searchFigure(t)
			v.Figure = &f
		}
		views = append(views, v)
	}
	return views
}

// beside has the columns of one value beside each other, so that runs are compared where the eye is.
func beside(t report.Table) report.Table {
	if len(t.Rows) == 0 {
		return t
	}
	place := map[string]int{}
	order := make([]int, len(t.Head))
	for i := range order {
		order[i] = i
		if value := t.Rows[0][i].Value; value != "" {
			if _, known := place[value]; !known {
				place[value] = 1 + len(place)
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return place[t.Rows[0][a].Value] - place[t.Rows[0][b].Value] })
	out := t
	out.Head, out.Rows = nil, nil
	for _, i := range order {
		out.Head = append(out.Head, t.Head[i])
	}
	for _, row := range t.Rows {
		var moved []report.Field
		for _, i := range order {
			moved = append(moved, row[i])
		}
		out.Rows = append(out.Rows, moved)
	}
	return out
}
