// Package page writes the report of one or several runs as one HTML file without external resources. It has the tables
// of the terminal, drawings of them over each axis, and for each cell its verdict, distributions, time series and
// events. All numbers are from the record, and flagged ones are marked.
//
// Its Content-Security-Policy permits no requests and no script but report.Script, and all text of users is escaped.
// The same records give the same bytes.
package page

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"time"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/chart"
	"example.org/lockstep/lockstep/internal/runs"
)

// maxPrinted limits the cells that are printed in detail by default. With more cells only unfolded ones are printed.
const maxPrinted = 12

// Name is the file name of the report in a run's directory.
const Name = "report.html"

//go:embed page.html
var source string

//go:embed page.css
var css string

// Options select the content of a report.
type Options struct {
	// Full includes the details of every cell, however large the file becomes. Otherwise only Detailed tasks have them.
	Full bool
}

// Detailed limits the tasks with details if the report is not full. Failed and invalid ones are first, then flagged
// ones.
const Detailed = 48

// Write writes the report of runs. Several runs are named A, B and so on.
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

// Keep writes the tables (report.Files) and the report of a run into its directory.
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

var pageTemplate = template.Must(TableTemplate().Funcs(template.FuncMap{
	"stamp":       display.Time,
	"machine":     func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"combination": func(e plan.Excluded) string { return plan.Cell{Coordinates: e.Coordinates}.Name() },
}).Parse(source))

// sheet is the data of the page's template.
type sheet struct {
	CSS         template.CSS
	Script      template.JS
	Title       string
	Runs        []runView
	Tables      []TableView
	Axes        []axisView
	Cells       []cellView
	Few         bool   // all cells are printed in detail
	Left        string // which cells are not shown in detail
	Environment environment
	Data        data
}

// ScriptSource returns the expression that allows the script in the page's policy.
func (sheet) ScriptSource() string { return report.ScriptSource() }

// data is the content of the page as JSON, for programs.
type data struct {
	Runs   []string       `json:"runs"`
	Tables []report.Table `json:"tables"`
}

// figure is a drawing with its legend and notes.
type figure struct {
	Title string
	SVG   template.HTML
	Key   template.HTML
	Notes []string
}

// plotted returns a figure of a plot, whose texts the chart package escapes. If the plot has no point, the figure has
// only the notes, which state the reason.
func plotted(title string, p chart.Plot, notes ...string) figure {
	if !slices.ContainsFunc(p.Series, func(l chart.Line) bool { return len(l.Points) > 0 }) {
		return figure{Title: title, Notes: notes}
	}
	p.Title = title
	// nolint:gosec // see above
	return figure{Title: title, SVG: template.HTML(p.SVG()), Key: template.HTML(chart.Key(p.Series)), Notes: notes}
}
