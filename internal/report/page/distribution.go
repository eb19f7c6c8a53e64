package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lockstep/internal/judge"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/report"
	"lockstep/internal/report/chart"
)

// curve is one distribution of a cell, of which there are several: of repetitions, groups and runs.
type curve struct {
	name   string
	hist   *record.Hist
	unsent uint64 // samples that are the age of a message that was due and not sent
	why    string // there is none to show, though there are samples
	off    string // how far it may be from the truth
}

// curves are the distributions of a cell by what they are of.
type curves struct{ send, processing []curve }

// distributions are what has a drawing of its own: values by the name that they begin with.
var distributions = []struct {
	name, title, axis string
	series            record.Series
}{
	{"publish", "Publish latency, distribution", "publish call to confirm (log)", record.Publish},
	{"e2e", "End-to-end latency, distribution", "intended send time or publish call to delivery (log)",
		record.EndToEnd},
}

// add takes the distributions of a task, by group where it has groups: those of different brokers are not mixed.
func (c *curves) add(d detail, m *record.Merged) {
	for n, part := range d.task.Parts() {
		name, values, of := d.title, d.outcome.Values, m.Group(part.Group)
		if part.Group != "" {
			name = joined(d.title, "group "+part.Group)
			values = nil
			if n < len(d.outcome.Groups) {
				values = d.outcome.Groups[n].Values
			}
		}
		for i, to := range []*[]curve{&c.send, &c.processing} {
			s := distributions[i].series
			one := curve{name: name}
			one.hist, one.unsent = judge.WithUnanswered(s, of.Hist, part.Cell.Workload.Topology.Subscriptions)
			if v, has := values[distributions[i].name+".p50"]; has {
				one.why, one.off = v.NA, between(v) // a backlog: its latency says how long the test was
			}
			if one.hist.Count() > 0 {
				*to = append(*to, one)
			}
		}
	}
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + ", " + b
}

// figures draws the distributions: those of one cell in one drawing.
func (c *curves) figures() (all []figure) {
	for i, some := range [][]curve{c.send, c.processing} {
		if len(some) > 0 {
			all = append(all, distribution(distributions[i].title, distributions[i].axis, some))
		}
	}
	return all
}

// perNine is how many points a curve has from one nine to the next.
const perNine = 12

func distribution(title, axis string, some []curve) figure {
	p := chart.Plot{X: chart.Axis{Label: "percentile (log of what is above)", Kind: chart.Percentile},
		Y: chart.Axis{Label: axis, Kind: chart.Log, Format: latencyTicks}}
	var notes []string
	for i, c := range some {
		if c.why != "" {
			notes = append(notes, cmp.Or(c.name, "not shown")+": "+c.why)
			continue
		}
		l := chart.Line{Name: cmp.Or(c.name, "all messages of the measurement"), Look: i, Dash: i / chart.Series % 3}
		l.Points = percentiles(c.hist)
		p.Series = append(p.Series, l)
		if c.off != "" {
			notes = append(notes, prefix(c.name)+c.off)
		}
		if c.unsent > 0 {
			notes = append(notes,
				fmt.Sprintf("%s%d samples are the age of a message that was due and not sent: its latency is at least that",
					prefix(c.name), c.unsent))
		}
		if n := c.hist.Negative(); n > 0 {
			notes = append(notes, fmt.Sprintf("%s%d negative samples are in no percentile: clocks were apart",
				prefix(c.name), n))
		}
		if n := c.hist.Over(); n > 0 {
			notes = append(notes, fmt.Sprintf("%s%d samples beyond an hour are drawn as an hour", prefix(c.name), n))
		}
	}
	return plotted(title, p, notes...)
}

func prefix(name string) string {
	if name == "" {
		return ""
	}
	return name + ": "
}

// percentiles are points of a distribution, as fine as its samples allow; those that tables know have markers, the
// greatest sample is the last.
func percentiles(h *record.Hist) (points []chart.Point) {
	n := float64(h.Count())
	last := 1 - 1/(2*n) // where the greatest of n samples stands for itself
	var at []float64
	for i := 0; ; i++ {
		q := 1 - math.Pow(10, -float64(i)/perNine)
		if q >= 1-1/n && i > 0 {
			break
		}
		at = append(at, q)
	}
	named := map[float64]string{}
	for _, q := range plan.Quantiles() {
		if q.Q < 1 && q.Q < 1-1/n {
			named[q.Q] = q.Name
			at = append(at, q.Q)
		}
	}
	slices.Sort(at)
	for _, q := range slices.Compact(at) {
		p := chart.Point{X: q, Y: seconds(h.Quantile(q)), Bare: named[q] == ""}
		if !p.Bare {
			p.Title = named[q] + ": " + report.Format(plan.Seconds, p.Y)
		}
		points = append(points, p)
	}
	most := seconds(h.Max())
	return append(points, chart.Point{X: last, Y: most,
		Title: fmt.Sprintf("max of %d: %s", h.Count(), report.Format(plan.Seconds, most))})
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }
