package page

import (
	"cmp"
	"html/template"
	"math"
	"slices"
	"strconv"
	"time"

	"lockstep/internal/judge"
	"lockstep/internal/report"
	"lockstep/internal/report/chart"
)

// scaleOfNumbers is the positions of an axis's values if all of them are numbers or durations. Otherwise values is nil.
type scaleOfNumbers struct {
	values []float64
	kind   chart.Kind
	note   string
}

// minApart is the minimum distance of two values, as a part of the axis.
const minApart = 0.04

// ascending sorts the values of an axis if they are numbers or durations.
func ascending(texts []string) []string {
	s := scaleOf(texts)
	if s.values == nil {
		return texts
	}
	order := make([]int, len(texts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.values[a], s.values[b]) })
	sorted := make([]string, len(texts))
	for i, at := range order {
		sorted[i] = texts[at]
	}
	return sorted
}

// scaleOf chooses the scale of an axis: linear if the values are far enough apart, else logarithmic, else evenly
// spaced. note names a scale that is not linear.
func scaleOf(texts []string) scaleOfNumbers {
	var s scaleOfNumbers
	for _, text := range texts {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			d, err := time.ParseDuration(text)
			if err != nil {
				return scaleOfNumbers{}
			}
			x = d.Seconds()
		}
		s.values = append(s.values, x)
	}
	switch {
	case apart(s.values, func(x float64) float64 { return x }):
		s.kind = chart.Linear
	case apart(s.values, math.Log10):
		s.kind, s.note = chart.Log, " (log)"
	default:
		s.kind, s.note = chart.Ordinal, " (evenly spaced)"
	}
	return s
}

// apart reports whether values ascend after f, each by at least minApart of their range.
func apart(values []float64, f func(float64) float64) bool {
	first, last := f(values[0]), f(values[len(values)-1])
	for i := range values[1:] {
		step := f(values[i+1]) - f(values[i])
		if !(step >= minApart*(last-first)) || step <= 0 || math.IsInf(step, 0) {
			return false
		}
	}
	return true
}

// plot draws lines over numbers or times.
func (d *drawing) plot(s scaleOfNumbers) figure {
	p := chart.Plot{X: d.ticked(s), Y: d.y}
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
				if f.Number == nil || d.measure.log && *f.Number <= 0 {
					gap = true
					if n == 0 {
						p.Absent = append(p.Absent, chart.Point{X: x, Title: d.tell(spot, v)})
					}
					continue
				}
				point := chart.Point{X: x, Y: *f.Number, Flagged: doubtful(f), Break: gap, Title: d.tell(spot, v)}
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

// ticked returns the axis with a tick at each value.
func (d *drawing) ticked(s scaleOfNumbers) chart.Axis {
	a := chart.Axis{Label: d.axis + s.note, Kind: s.kind, Names: d.names}
	if s.kind != chart.Ordinal {
		a.At = s.values
	}
	return a
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
	for _, s := range d.facet.spots {
		for _, v := range d.measure.values {
			if f := s.values[v.value]; f.Number != nil && doubtful(f) {
				all = append(all, "ring: flagged, not valid, or a repetition failed; see the tables for the reason")
				break
			}
		}
		if len(all) > 0 {
			break
		}
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
		b := chart.Bar{Look: d.look(colour, n), Shape: chart.Shape(n), Flagged: doubtful(f), Title: d.tell(s, v),
			Text: f.Full()}
		if f.Number == nil || d.measure.log && *f.Number <= 0 {
			if n == 0 && f.Text != "" {
				b.Absent, b.Text = true, f.Full()
				if d.colour != "" {
					b.Text = s.at[d.colour] + ": " + f.Full()
				}
				all = append(all, b)
			}
			continue
		}
		if n > 0 && !d.measure.log && balanced(all, *f.Number) {
			continue
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
		if n > 0 && !dashed && !d.measure.log {
			l.Name += ", if it differs by more than 2 %"
		}
		all = append(all, l)
	}
	return all
}

// look returns the colour of a value: that of its place on the axis of colours, else one of its own.
func (d *drawing) look(colour, value int) int {
	if d.colour == "" && !d.measure.log {
		return value
	}
	return colour
}
