package page

import (
	"fmt"

	"lockstep/internal/plan"
	"lockstep/internal/report"
	"lockstep/internal/report/chart"
)

// latencyTicks writes the ticks of an axis of latencies: powers of ten of seconds, and 2 and 5 times them.
func latencyTicks(x float64) string {
	for _, u := range []struct {
		least float64
		name  string
	}{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}} {
		if x >= u.least*0.999 {
			return fmt.Sprintf("%.3g %s", x/u.least, u.name)
		}
	}
	return fmt.Sprintf("%.3g ns", x*1e9)
}

// rateTicks writes the ticks of an axis of rates or counts: 200, 12k, 3M.
func rateTicks(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.4gM", x/1e6)
	case x >= 1e4:
		return fmt.Sprintf("%.4gk", x/1e3)
	}
	return fmt.Sprintf("%.4g", x)
}

// searchFigure draws the steps of a search: latency over the rate that was asked for. What held, failed and is not known differ in colour and sign.
func searchFigure(t report.Table) figure {
	answers := []struct {
		is   func(plan.Answer) bool
		name string
		look int
	}{
		{func(a plan.Answer) bool { return a == plan.AnswerHeld }, "held", 0},
		{func(a plan.Answer) bool { return a == plan.AnswerFailed }, "failed", 1},
		{func(a plan.Answer) bool { return a != plan.AnswerHeld && a != plan.AnswerFailed }, "client-bound or unknown", 2},
	}
	quantiles := []struct {
		name  string
		of    func(report.Point) *float64
		shape chart.Shape
	}{
		{"p50", func(p report.Point) *float64 { return p.P50 }, chart.Filled},
		{"p99", func(p report.Point) *float64 { return p.P99 }, chart.Hollow},
		{"max", func(p report.Point) *float64 { return p.Max }, chart.Cross},
	}
	plot := chart.Plot{X: chart.Axis{Label: "asked rate, msgs/s", Kind: chart.Linear, Zero: true, Format: rateTicks},
		Y: chart.Axis{Label: t.Chart.Latency + " latency (log)", Kind: chart.Log, Format: latencyTicks}}
	least, most := 0.0, 0.0
	for _, p := range t.Chart.Points {
		if least == 0 || p.Rate < least {
			least = p.Rate
		}
		most = max(most, p.Rate)
	}
	if most > 20*least {
		plot.X.Kind, plot.X.Label = chart.Log, "asked rate, msgs/s (log)"
	}
	for _, a := range answers {
		for _, q := range quantiles {
			l := chart.Line{Name: a.name + ", " + q.name, Look: a.look, Shape: q.shape, Loose: true}
			for _, p := range t.Chart.Points {
				if x := q.of(p); x != nil && a.is(p.Answer) {
					l.Points = append(l.Points, chart.Point{X: p.Rate, Y: *x,
						Title: fmt.Sprintf("%s msgs/s %s: %s %s", plan.Grouped(p.Rate), p.Answer, q.name, report.Format(plan.Seconds, *x))})
				}
			}
			if len(l.Points) > 0 {
				plot.Series = append(plot.Series, l)
			}
		}
	}
	marked := false
	for _, p := range t.Chart.Points {
		if p.P50 == nil && p.P99 == nil && p.Max == nil {
			plot.Absent = append(plot.Absent, chart.Point{X: p.Rate, Title: fmt.Sprintf("%s msgs/s %s: no latency: %s", plan.Grouped(p.Rate), p.Answer, p.Absent)})
		}
		if p.Capacity && !marked {
			marked = true
			plot.Marks = append(plot.Marks, chart.Mark{At: p.Rate, Text: "capacity", Full: "capacity: " + plan.Grouped(p.Rate) + " msgs/s"})
		}
	}
	return plotted("Latency of each step over its rate", plot)
}
