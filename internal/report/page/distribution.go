package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/chart"
)

// curve is one distribution of a cell, for a repetition, group and run.
type curve struct {
	name   string
	hist   *record.Hist
	unsent uint64 // samples that are ages of messages that were due and not sent, or sent and not delivered
	why    string // the reason for not showing the curve; empty: it is shown
	off    string // its maximum error, as text
}

// curves are the distributions of a cell by their kind.
type curves struct{ send, processing []curve }

// distributions are the kinds of distributions. name is the prefix of their values.
var distributions = []struct {
	name, title, axis string
	series            record.Series
}{
	{"publish", "Publish latency, distribution", "publish call to confirm (log)", record.Publish},
	{"e2e", "End-to-end latency, distribution", "intended send time or publish call to delivery (log)",
		record.EndToEnd},
}

// add adds the distributions of a task, one per group: groups may use different brokers.
func (c *curves) add(d detail, m *record.Merged) {
	timedOut := judge.FactsOf(d.outcome, m).DrainCut
	for n, part := range d.task.Parts() {
		name, values, ledger, of := d.title, d.outcome.Values, d.outcome.Ledger, m.Group(part.Group)
		if part.Group != "" {
			name = joined(d.title, "group "+part.Group)
			values, ledger = nil, plan.Ledger{}
			if n < len(d.outcome.Groups) {
				values, ledger = d.outcome.Groups[n].Values, d.outcome.Groups[n].Ledger
			}
		}
		subscriptions := part.Cell.Workload.Topology.Subscriptions
		if part.Cell.Workload.Consumers.Nodes == 0 {
			subscriptions = 0
		}
		undrained := judge.UndrainedOf(part.Cell.Workload, of, ledger, timedOut)
		for i, to := range []*[]curve{&c.send, &c.processing} {
			s := distributions[i].series
			one := curve{name: name}
			all, answered := judge.WithUnanswered(s, of.Hist, subscriptions, undrained)
			one.hist, one.unsent = all, all.Count()-answered.Count()
			if v, has := values[distributions[i].name+".p50"]; has {
				one.why, one.off = v.NA, between(v) // a backlog: the latency depends on the test time
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

// figures draws one figure per kind of distribution.
func (c *curves) figures() (all []figure) {
	for i, some := range [][]curve{c.send, c.processing} {
		if len(some) > 0 {
			all = append(all, distribution(distributions[i].title, distributions[i].axis, some))
		}
	}
	return all
}

// perNine is the number of points of a curve per nine (90 %, 99 %, 99.9 %).
const perNine = 12

func distribution(title, axis string, some []curve) figure {
	p := chart.Plot{X: chart.Axis{Label: "percentile (log)", Kind: chart.Percentile},
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
				fmt.Sprintf("%s%d samples are ages of messages that were not sent or not delivered; their latency is at least that",
					prefix(c.name), c.unsent))
		}
		if n := c.hist.Negative(); n > 0 {
			notes = append(notes, fmt.Sprintf("%s%d negative samples, caused by clock offsets, are in no percentile",
				prefix(c.name), n))
		}
		if n := c.hist.Over(); n > 0 {
			notes = append(notes, fmt.Sprintf("%s%d samples of more than one hour are drawn as one hour", prefix(c.name), n))
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

// percentiles returns the points of a distribution, at a resolution that its samples allow. The quantiles of tables
// have markers. The last point is the maximum.
func percentiles(h *record.Hist) (points []chart.Point) {
	n := float64(h.Count())
	last := 1 - 1/(2*n) // the position of the maximum of n samples
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
