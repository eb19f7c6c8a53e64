package page

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/chart"
)

// axisView is the drawings over one axis of the matrix.
type axisView struct {
	Axis    string
	Figures []figure
	Note    string
}

// Limits of the drawings over one axis. A note states what is left out.
const (
	maxFacets = 6
	maxRows   = 30
)

// measure is the content of one drawing over an axis: one or several values.
type measure struct {
	title, label string
	rates        bool // bars on a linear scale, unless the numbers are far apart (scaled); else latencies, with log
	log          bool
	values       []shown
	low, high    string // values with the interval of the first value
}

// farApart is the ratio of two rates from which a linear scale hides the lower one.
const farApart = 100

// numbers returns the numbers of the named values.
func numbers(all []spot, names []string) (xs []float64) {
	for _, s := range all {
		for _, name := range names {
			if x := s.values[name].Number; x != nil {
				xs = append(xs, *x)
			}
		}
	}
	return xs
}

// scaled returns the measure with a logarithmic scale if its rates are far apart.
func (m measure) scaled(all []spot) measure {
	lowest, highest := math.Inf(1), 0.0
	for _, x := range numbers(all, m.valueNames()) {
		if x > 0 {
			lowest, highest = min(lowest, x), max(highest, x)
		}
	}
	if m.rates && highest >= farApart*lowest {
		m.log, m.label = true, m.label+" (log)"
	}
	return m
}

func (m measure) valueNames() (names []string) {
	for _, v := range m.values {
		names = append(names, v.value)
	}
	return names
}

// names returns all values of a measure, including the bounds of its interval.
func (m measure) names() []string {
	names := m.valueNames()
	if m.low != "" {
		names = append(names, m.low, m.high)
	}
	return names
}

// shown is a value of a measure with its name in the legend.
type shown struct{ value, name string }

var measures = []measure{
	{title: "Capacity", label: "msg/s", rates: true, values: []shown{{"capacity", "capacity"}}, low: "capacity.low",
		high: "capacity.high"},
	{title: "Throughput", label: "msg/s", rates: true, values: []shown{{"publish.rate", "publish"}, {"consume.rate", "consume"}}},
	{title: "Publish latency", label: "publish call to confirm (log)", log: true,
		values: []shown{{"publish.p50", "p50"}, {"publish.p99", "p99"}, {"publish.max", "max"}}},
	{title: "End-to-end latency", label: "intended send time or publish call to delivery (log)", log: true,
		values: []shown{{"e2e.p50", "p50"}, {"e2e.p99", "p99"}, {"e2e.max", "max"}}},
}

// spot is a cell, or a group of one, with its values and its coordinates in the matrix.
type spot struct {
	at     map[string]string
	values map[string]report.Field
}

// spots returns the study's cells. It reads them from a table, so that drawings and tables cannot differ.
func spots(study report.Study) (axes []string, all []spot) {
	axes = slices.Clone(study.Run.Axes)
	if report.Grouped(study.Run) && !slices.Contains(axes, report.GroupAxis) {
		axes = append(axes, report.GroupAxis)
	}
	var values []string
	for _, m := range measures {
		values = append(values, m.names()...)
	}
	for _, t := range study.Tables([]plan.Table{{Rows: axes, Values: values}}) {
		for _, row := range t.Rows {
			s := spot{at: map[string]string{}, values: map[string]report.Field{}}
			for i, axis := range t.Axes {
				s.at[axis] = row[i].Text
			}
			for _, f := range row[len(t.Axes):] {
				s.values[f.Value] = f
			}
			all = append(all, s)
		}
	}
	return axes, all
}

// axisViews returns the drawings over every axis on which cells differ.
func axisViews(study report.Study) (views []axisView) {
	axes, all := spots(study)
	var varying []string
	for _, axis := range axes {
		if len(distinct(all, axis)) > 1 {
			varying = append(varying, axis)
		}
	}
	for _, axis := range varying {
		if axis == report.RunAxis && len(varying) > 1 {
			continue // the run is the colour in all other drawings
		}
		others := slices.DeleteFunc(slices.Clone(varying), func(o string) bool { return o == axis })
		if len(distinct(all, axis)) == len(all) { // it distinguishes all cells by itself
			others = nil
		}
		if v := drawAxis(axis, others, all); len(v.Figures) > 0 {
			views = append(views, v)
		}
	}
	return views
}

// distinct lists the values of an axis in the order of the matrix.
func distinct(all []spot, axis string) (values []string) {
	for _, s := range all {
		if !slices.Contains(values, s.at[axis]) {
			values = append(values, s.at[axis])
		}
	}
	return values
}

// facet is the cells that differ only on the drawn axis and the axis of colours.
type facet struct {
	name  string
	spots []spot
}

func drawAxis(axis string, others []string, all []spot) axisView {
	colour := colourOf(others, all)
	rest := slices.DeleteFunc(slices.Clone(others), func(o string) bool { return o == colour })
	facets := facetsOf(rest, all)
	v := axisView{Axis: axis}
	var notes []string
	if more := len(facets) - maxFacets; more > 0 {
		notes = append(notes, fmt.Sprintf("%d more combinations of %s only in the tables", more,
			strings.Join(rest, ", ")))
		facets = facets[:maxFacets]
	}
	for _, f := range facets {
		for _, m := range measures {
			if m.empty(f.spots) {
				continue
			}
			d := drawing{axis: axis, colour: colour, measure: m.scaled(all), facet: f, names: ascending(distinct(all, axis)),
				colours: ascending(distinct(all, colour))}
			d.facet.spots = slices.Clone(f.spots)
			slices.SortStableFunc(d.facet.spots, func(a, b spot) int {
				return slices.Index(d.names, a.at[axis]) - slices.Index(d.names, b.at[axis])
			})
			d.limit(all)
			v.Figures = append(v.Figures, d.figure())
		}
	}
	if n := len(distinct(all, axis)); n > maxRows && scaleOf(distinct(all, axis)).values == nil {
		notes = append(notes, fmt.Sprintf("the first %d of %d values of %s; all values are in the tables", maxRows, n,
			axis))
	}
	v.Note = strings.Join(notes, "; ")
	return v
}

// colourOf chooses the axis that colours distinguish: runs, else the axis with the most values up to chart.Series.
func colourOf(others []string, all []spot) (best string) {
	if slices.Contains(others, report.RunAxis) {
		return report.RunAxis
	}
	values := 1
	for _, axis := range others {
		if n := len(distinct(all, axis)); n <= chart.Series && n > values {
			best, values = axis, n
		}
	}
	return best
}

func facetsOf(rest []string, all []spot) (facets []facet) {
	at := map[string]int{}
	for _, s := range all {
		parts := make([]string, len(rest))
		for i, axis := range rest {
			parts[i] = axis + "=" + s.at[axis]
		}
		name := strings.Join(parts, " ")
		i, known := at[name]
		if !known {
			i = len(facets)
			at[name] = i
			facets = append(facets, facet{name: name})
		}
		facets[i].spots = append(facets[i].spots, s)
	}
	return facets
}

// empty reports whether no spot has a number of the measure. Such a measure is not drawn.
func (m measure) empty(all []spot) bool {
	return len(numbers(all, m.valueNames())) == 0
}

// drawing is one measure over one axis in one facet.
type drawing struct {
	axis, colour   string
	measure        measure
	facet          facet
	names, colours []string
	y              chart.Axis
}

// limit sets the limits of the value axis over all facets, so that their drawings have the same scale.
func (d *drawing) limit(all []spot) {
	d.y = chart.Axis{Label: d.measure.label, Zero: true, Format: rateTicks}
	if d.measure.log {
		d.y.Kind, d.y.Zero = chart.Log, false
	}
	if !d.measure.rates {
		d.y.Format = latencyTicks
	}
	for _, x := range numbers(all, d.measure.names()) {
		if x > 0 || !d.measure.log {
			if d.y.Min == 0 && d.measure.log {
				d.y.Min = x
			}
			d.y.Min, d.y.Max = min(d.y.Min, x), max(d.y.Max, x)
		}
	}
}

func (d *drawing) title() string {
	title := d.measure.title + " over " + d.axis
	if d.facet.name != "" {
		title += ", " + d.facet.name
	}
	return title
}

// figure draws lines over numbers or times, and rows over names.
func (d *drawing) figure() figure {
	if s := scaleOf(d.names); s.values != nil {
		return d.plot(s)
	}
	r := d.rows()
	r.Title = d.title()
	// nolint:gosec // the package escapes
	return figure{Title: d.title(), SVG: template.HTML(r.SVG()), Key: template.HTML(chart.Key(d.key(false)))}
}

// describe returns a value as text, with its coordinates and flags.
func (d *drawing) describe(s spot, v shown) string {
	f := s.values[v.value]
	where := d.axis + "=" + s.at[d.axis]
	if d.colour != "" {
		where += " " + d.colour + "=" + s.at[d.colour]
	}
	if f.Unit == plan.PerSecond && f.Number != nil {
		f.Text += " msg/s"
	}
	return where + ": " + v.name + " " + f.Full()
}

// isFlagged reports whether a number has a flag, or a repetition that is invalid or unknown.
func isFlagged(f report.Field) bool {
	return len(f.Flags) > 0 || f.Verdict == plan.Invalid || f.Verdict == plan.Unknown
}

// plot draws lines over numbers or times.
func (d *drawing) plot(s scaleOfNumbers) figure {
	p := chart.Plot{X: chart.Axis{Label: d.axis + s.note, Kind: s.kind, Names: d.names}, Y: d.y}
	if s.kind != chart.Ordinal {
		p.X.At = s.values
	}
	at := map[string]float64{}
	for i, name := range d.names {
		at[name] = s.values[i]
		if s.kind == chart.Ordinal {
			at[name] = float64(i)
		}
	}
	for i, colour := range d.colours {
		for n, v := range d.measure.values {
			l := chart.Line{Name: v.name, Look: d.look(i, n), Dash: min(n, 2), Shape: chart.Shape(n)}
			gap := false
			for _, spot := range d.facet.spots {
				if d.colour != "" && spot.at[d.colour] != colour {
					continue
				}
				f := spot.values[v.value]
				x := at[spot.at[d.axis]]
				if f.Number == nil || !d.measure.rates && *f.Number <= 0 {
					gap = true
					if n == 0 {
						p.Absent = append(p.Absent, chart.Point{X: x, Title: d.describe(spot, v)})
					}
					continue
				}
				point := chart.Point{X: x, Y: *f.Number, Flagged: isFlagged(f), Break: gap, Title: d.describe(spot, v)}
				point.Low, point.High = d.bounds(spot, f)
				l.Points = append(l.Points, point)
				gap = false
			}
			if len(l.Points) > 0 {
				p.Series = append(p.Series, l)
			}
		}
	}
	f := plotted(d.title(), p, d.remarks(len(p.Absent) > 0)...)
	f.Key = template.HTML(chart.Key(d.key(true))) //nolint:gosec // the package escapes
	return f
}

// bounds returns the interval of a number: the bounds of a search, or its own error bound. They are equal if neither is
// known.
func (d *drawing) bounds(s spot, f report.Field) (low, high float64) {
	if d.measure.low != "" {
		l, h := s.values[d.measure.low].Number, s.values[d.measure.high].Number
		if l != nil && h != nil {
			return *l, *h
		}
		return 0, 0
	}
	if f.Bound > 0 {
		return max(0, *f.Number-f.Bound), *f.Number + f.Bound
	}
	return 0, 0
}

// remarks explain the signs that occur in a drawing.
func (d *drawing) remarks(absent bool) (all []string) {
	flagged := func(s spot) bool {
		return slices.ContainsFunc(d.measure.values, func(v shown) bool {
			f := s.values[v.value]
			return f.Number != nil && isFlagged(f)
		})
	}
	if slices.ContainsFunc(d.facet.spots, flagged) {
		all = append(all, "ring: flagged, not valid, or a repetition failed; see the tables for the reason")
	}
	if absent {
		all = append(all, "∅: no number; hover for the reason")
	}
	return all
}

// rows draws one row per value of an axis that has no order.
func (d *drawing) rows() chart.Rows {
	r := chart.Rows{X: d.y}
	r.X.Label = d.measure.title + ", " + d.measure.label
	for _, name := range d.names {
		if len(r.Rows) == maxRows {
			break
		}
		row := chart.Row{Name: name}
		for i, colour := range d.colours {
			for _, s := range d.facet.spots {
				if s.at[d.axis] == name && (d.colour == "" || s.at[d.colour] == colour) {
					row.Values = append(row.Values, d.bars(s, i)...)
				}
			}
		}
		if len(row.Values) > 0 {
			r.Rows = append(r.Rows, row)
		}
	}
	return r
}

// bars returns the bars of one spot. A consume rate that agrees with the publish rate has no bar of its own.
func (d *drawing) bars(s spot, colour int) (all []chart.Bar) {
	for n, v := range d.measure.values {
		f := s.values[v.value]
		b := chart.Bar{Look: d.look(colour, n), Shape: chart.Shape(n), Flagged: isFlagged(f), Title: d.describe(s, v),
			Text: f.Full()}
		if f.Number == nil || !d.measure.rates && *f.Number <= 0 {
			if n == 0 && f.Text != "" {
				b.Absent, b.Text = true, f.Full()
				if d.colour != "" {
					b.Text = s.at[d.colour] + ": " + f.Full()
				}
				all = append(all, b)
			}
			continue
		}
		if n > 0 && d.measure.rates && balanced(all, *f.Number) {
			continue
		}
		if d.measure.log && (n > 0 || !d.measure.rates) {
			b.Text = "" // signs share a line
		}
		b.At = *f.Number
		b.Low, b.High = d.bounds(s, f)
		all = append(all, b)
	}
	return all
}

// balanced reports whether a number agrees with the first bar, within the same tolerance as in tables.
func balanced(before []chart.Bar, x float64) bool {
	return len(before) > 0 && !before[0].Absent && math.Abs(x-before[0].At) <= judge.Tolerance*before[0].At
}

// key returns the legend: the colours, then the signs of the values, unless there is only one of them.
func (d *drawing) key(dashed bool) (all []chart.Line) {
	if d.colour != "" {
		for i, colour := range d.colours {
			all = append(all, chart.Line{Name: d.colour + "=" + colour, Look: i, Loose: !dashed})
		}
	}
	for n, v := range d.measure.values {
		if len(d.measure.values) == 1 && d.colour != "" {
			break
		}
		l := chart.Line{Name: v.name, Look: d.look(0, n), Dash: min(n, 2), Shape: chart.Shape(n), Loose: !dashed}
		if d.colour != "" {
			l.Look = chart.Plain
		}
		if n > 0 && !dashed && d.measure.rates {
			l.Name += ", if it differs by more than 2 %"
		}
		all = append(all, l)
	}
	return all
}

// look returns the colour of a value: that of its place on the axis of colours, else one of its own.
func (d *drawing) look(colour, value int) int {
	if d.colour == "" && d.measure.rates && !d.measure.log {
		return value
	}
	return colour
}
