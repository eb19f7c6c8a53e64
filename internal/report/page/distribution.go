package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
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

// curves are the distributions of a cell, by the index of their kind.
type curves [2][]curve

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
			name = strings.TrimPrefix(d.title+", group "+part.Group, ", ")
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
		for i, kind := range distributions {
			all, answered := judge.WithUnanswered(kind.series, of.Hist, subscriptions, undrained)
			one := curve{name: name, hist: all, unsent: all.Count() - answered.Count()}
			if v, has := values[kind.name+".p50"]; has {
				one.why, one.off = v.NA, between(v) // a backlog: the latency depends on the test time
			}
			if all.Count() > 0 {
				c[i] = append(c[i], one)
			}
		}
	}
}

// figures draws one figure per kind of distribution.
func (c *curves) figures() (all []figure) {
	for i, kind := range distributions {
		if len(c[i]) > 0 {
			all = append(all, distribution(kind.title, kind.axis, c[i]))
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
		p := chart.Point{X: q, Y: seconds(h.Quantile(q)), NoMarker: named[q] == ""}
		if !p.NoMarker {
			p.Title = named[q] + ": " + display.Seconds(p.Y)
		}
		points = append(points, p)
	}
	highest := seconds(h.Max())
	return append(points, chart.Point{X: last, Y: highest,
		Title: fmt.Sprintf("max of %d: %s", h.Count(), display.Seconds(highest))})
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }
