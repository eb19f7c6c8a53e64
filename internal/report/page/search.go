package page

import (
	"fmt"
	"math"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/chart"
)

// latencyTicks formats the ticks of a latency axis: 1, 2 or 5 times a power of ten seconds.
func latencyTicks(x float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}} {
		if x >= u.size*0.999 {
			return fmt.Sprintf("%.3g %s", x/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.3g ns", x*1e9)
}

// rateTicks formats the ticks of an axis of rates or counts: 200, 12k, 3M.
func rateTicks(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.4gM", x/1e6)
	case x >= 1e4:
		return fmt.Sprintf("%.4gk", x/1e3)
	}
	return fmt.Sprintf("%.4g", x)
}

// The answers of steps and the kinds of latency, which colours and signs distinguish.
var (
	stepAnswers = []struct {
		name string
		is   func(plan.Answer) bool
	}{
		{"held", func(a plan.Answer) bool { return a == plan.AnswerHeld }},
		{"failed", func(a plan.Answer) bool { return a == plan.AnswerFailed }},
		{"limited by the load generator or its host, or unknown",
			func(a plan.Answer) bool { return a != plan.AnswerHeld && a != plan.AnswerFailed }},
	}
	stepLatencies = []struct {
		name string
		of   func(report.Point) *float64
	}{
		{"p50", func(p report.Point) *float64 { return p.P50 }},
		{"p99", func(p report.Point) *float64 { return p.P99 }},
		{"max", func(p report.Point) *float64 { return p.Max }},
	}
)

// searchFigure draws the steps of a search: latency over the requested rate. Held, failed and undecided steps differ in
// colour and sign.
func searchFigure(t report.Table) figure {
	plot := chart.Plot{X: ratesAxis(t.Chart.Points),
		Y: chart.Axis{Label: t.Chart.Latency + " latency (log)", Kind: chart.Log, Format: latencyTicks}}
	for look, answer := range stepAnswers {
		for n, latency := range stepLatencies {
			l := chart.Line{Name: answer.name + ", " + latency.name, Look: look, Shape: chart.Shape(n), Loose: true}
			for _, p := range t.Chart.Points {
				if x := latency.of(p); x != nil && answer.is(p.Answer) {
					l.Points = append(l.Points, chart.Point{X: p.Rate, Y: *x,
						Title: fmt.Sprintf("%s msg/s %s: %s %s", display.Number(p.Rate), p.Answer, latency.name,
							display.Seconds(*x))})
				}
			}
			if len(l.Points) > 0 {
				plot.Series = append(plot.Series, l)
			}
		}
	}
	for _, p := range t.Chart.Points {
		if p.P50 == nil && p.P99 == nil && p.Max == nil {
			plot.Absent = append(plot.Absent, chart.Point{X: p.Rate,
				Title: fmt.Sprintf("%s msg/s %s: no latency: %s", display.Number(p.Rate), p.Answer, p.Absent)})
		}
		if p.Capacity && len(plot.Marks) == 0 {
			plot.Marks = append(plot.Marks, chart.Mark{At: p.Rate, Text: "capacity",
				Full: "capacity: " + display.Number(p.Rate) + " msg/s"})
		}
	}
	return plotted("Latency of each step by rate", plot)
}

// ratesAxis returns a linear axis from zero, or a logarithmic one if the rates are far apart.
func ratesAxis(points []report.Point) chart.Axis {
	lowest, highest := math.Inf(1), 0.0
	for _, p := range points {
		if highest = max(highest, p.Rate); p.Rate > 0 {
			lowest = min(lowest, p.Rate)
		}
	}
	if highest > 20*lowest {
		return chart.Axis{Label: "target rate, msg/s (log)", Kind: chart.Log, Format: rateTicks}
	}
	return chart.Axis{Label: "target rate, msg/s", Zero: true, Format: rateTicks}
}
