package web

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/chart"
	"example.org/lockstep/lockstep/internal/stats"
)

// maxSeries is the maximum number of series on one page.
const maxSeries = 60

// historyView is the page of series with their change points and alarms.
type historyView struct {
	Matrices []choice
	Values   []choice
	Name     string // of the selected matrix
	Title    string // of the selected value
	Common   []string
	Series   []seriesView
	One      bool // a single cell with all its points
	More     int  // series that are not shown
	Runs     int  // maximum number of newest runs of each cell
	// Numbers of cells and points that the controller's answer omits. If any is omitted, alarms may differ from the
	// digest.
	MoreCells, MorePoints int
}

type choice struct {
	Name, Link string
	Is         bool
}

// seriesView is one series.
type seriesView struct {
	Name, Apart string // name of the cell; what distinguishes this series of it
	Last, Link  string
	Alarm       bool
	Chart       template.HTML
	Changes     []changeView
	Points      []pointView // newest first
}

type changeView struct {
	Text   string
	Link   runLink
	Alarm  bool
	Causes []string
}

type pointView struct {
	Link   runLink
	At     time.Time
	Number *float64
	Text   string
	Status string
	New    []string
}

// show fills in the series of a value. Series with an alarm come first.
func (v *historyView) show(t history.Trends, info plan.ValueInfo, link func(cell string) string) {
	v.Title = info.Title
	format := func(x float64) string { return report.Show(info, plan.Value{Number: x}) }
	for _, c := range t.Common {
		v.Common = append(v.Common, fmt.Sprintf("%+.1f %% in %d of %d cells since %s, in %d run(s)",
			100*stats.Median(c.Shifts), len(c.Cells), c.Tested, c.Since.Run, c.Runs))
	}
	first, last := time.Time{}, time.Time{}
	for _, s := range t.Series {
		for _, p := range s.Points {
			if first.IsZero() || p.Started.Before(first) {
				first = p.Started
			}
			if p.Started.After(last) {
				last = p.Started
			}
		}
	}
	if !last.After(first) { // an axis needs a length
		first, last = first.Add(-12*time.Hour), last.Add(12*time.Hour)
	}
	var alarms []seriesView
	for _, s := range t.Series {
		x := seriesView{Name: cmp.Or(s.Cell.Name(), "cell "+s.Cell.ID), Apart: t.Distinction(s), Link: link(s.Cell.ID)}
		if numbers := s.Numbers(); len(numbers) > 0 {
			x.Last = format(numbers[len(numbers)-1])
		}
		plot := chart.Plot{Title: fmt.Sprintf("%s of %s in %d runs", v.Title, x.Name, len(s.Points)),
			Series: []chart.Line{{}}}
		gap, highest := false, 0.0
		for _, p := range s.Points {
			at := float64(p.Started.Unix())
			point := pointView{Link: runLink{p.Run, v.Name}, At: p.Started, Text: "–", Status: p.Status, New: p.New}
			if p.Usable > 0 {
				point.Number, point.Text = &p.Number, format(p.Number)
				highest = max(highest, p.Number)
				plot.Series[0].Points = append(plot.Series[0].Points,
					chart.Point{X: at, Y: p.Number, Break: gap, Flagged: p.Status != "",
						Title: strings.TrimSpace(when(p.Started) + ": " + point.Text + " " + p.Status)})
			} else {
				plot.Absent = append(plot.Absent, chart.Point{X: at, Title: when(p.Started) + ": " + p.Status})
			}
			gap = p.Usable == 0
			x.Points = append(x.Points, point)
		}
		slices.Reverse(x.Points)
		for _, c := range s.Changes {
			since := s.Points[c.At]
			shift := display.Change(c.Shift())
			text := fmt.Sprintf("%s since %s: %s → %s, p = %.2g", shift, when(since.Started), format(c.Before),
				format(c.After), c.P)
			x.Changes = append(x.Changes, changeView{text, runLink{since.Run, v.Name}, c.Alarm && !v.One, s.Causes(c.At)})
			x.Alarm = x.Alarm || c.Alarm
			plot.Marks = append(plot.Marks, chart.Mark{At: float64(since.Started.Unix()), Text: shift, Full: text})
		}
		plot.X = chart.Axis{Label: "start of the run (UTC)",
			Format: func(x float64) string { return time.Unix(int64(x), 0).UTC().Format("Jan 2") }}
		plot.X.At, plot.X.Names = days(first, last)
		plot.X.Min, plot.X.Max = float64(first.Unix()), float64(last.Unix())
		plot.Y = chart.Axis{Label: labelOf(v.Title, info.Unit), Zero: true, Format: formatOf(info.Unit, highest)}
		x.Chart = template.HTML(plot.SVG()) //nolint:gosec // chart escapes every text
		if x.Alarm {
			alarms = append(alarms, x)
		} else {
			v.Series = append(v.Series, x)
		}
	}
	v.Series = append(alarms, v.Series...)
	v.More = max(0, len(v.Series)-maxSeries)
	v.Series = v.Series[:len(v.Series)-v.More]
}

// days returns up to about six ticks at midnights (UTC). If no midnight is in the range, it returns one tick at the
// time first.
func days(first, last time.Time) (at []float64, names []string) {
	const form, maxTicks = "Jan 2", 6
	day := 24 * time.Hour
	from := first.UTC().Truncate(day)
	step := day * time.Duration(max(1, int(math.Ceil(last.Sub(from).Hours()/24/maxTicks))))
	for t := from; !t.After(last); t = t.Add(step) {
		if !t.Before(first) {
			at, names = append(at, float64(t.Unix())), append(names, t.Format(form))
		}
	}
	if len(at) == 0 {
		return []float64{float64(first.Unix())}, []string{first.UTC().Format(form + " 15:04")}
	}
	return at, names
}

// labelOf returns the label of an axis. Units of rates are in the titles, and those of times in the ticks.
func labelOf(title string, u plan.Unit) string {
	switch u {
	case plan.Bytes, plan.BytesRate, plan.Cores:
		return title + ", " + string(u)
	}
	return title
}

// formatOf returns a function that formats all ticks of an axis in the same unit, that of the highest value.
func formatOf(u plan.Unit, highest float64) func(float64) string {
	scale, suffix := 1.0, ""
	switch {
	case u == plan.Seconds && highest < 1e-3:
		scale, suffix = 1e6, " µs"
	case u == plan.Seconds && highest < 1:
		scale, suffix = 1e3, " ms"
	case u == plan.Seconds:
		suffix = " s"
	case (u == plan.Bytes || u == plan.BytesRate) && highest >= 1e6:
		scale, suffix = 1e-6, " M"
	}
	return func(x float64) string { return display.Number(x*scale) + suffix }
}
