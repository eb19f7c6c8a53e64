package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/report"
	"lockstep/internal/report/chart"
)

// maxLines limits the agents or nodes in a drawing, and maxMetrics the drawn metrics of a broker.
const (
	maxLines   = chart.Series
	maxMetrics = 6
)

// machines draws the resource usage of agents and brokers.
func (t timeline) machines(d detail, m *record.Merged) (all []figure) {
	hosts := m.Hosts()
	if f, any := t.samples("Agents, CPU", "cores", hosts, cores,
		func(h record.HostSample) (float64, bool) { return h.AgentCPU, true }); any {
		all = append(all, f)
	}
	if f, any := t.pauses(m); any {
		all = append(all, f)
	}
	for _, part := range d.task.Parts() {
		of := ""
		if part.Group != "" {
			of = fmt.Sprintf(", group %s on %s", part.Group, part.Cell.Broker.Name)
		}
		all = append(all, t.brokerFigures(of, m.Group(part.Group))...)
	}
	for _, b := range d.task.Cell.Brokers() {
		seen := m.Observed(b.Name)
		if len(seen) == 0 {
			seen = hostsOf(b.Name, d.task, m)
		}
		has := func(of func(record.HostSample) float64) func(record.HostSample) (float64, bool) {
			return func(h record.HostSample) (float64, bool) { return of(h), h.HasBroker }
		}
		if f, any := t.samples("Broker "+b.Name+", CPU of its processes", "cores", seen, cores,
			has(func(h record.HostSample) float64 { return h.BrokerCPU })); any {
			all = append(all, f)
		}
		if f, any := t.samples("Broker "+b.Name+", memory of its processes", "bytes", seen, memory,
			has(func(h record.HostSample) float64 { return float64(h.BrokerRSS) })); any {
			all = append(all, f)
		}
	}
	return all
}

// hostsOf returns the samples of the agents that use a broker. The others do not measure its processes.
func hostsOf(broker string, task plan.Task, m *record.Merged) map[string][]record.HostSample {
	hosts := map[string][]record.HostSample{}
	for _, part := range task.Parts() {
		if part.Cell.Broker.Name == broker {
			maps.Copy(hosts, m.Group(part.Group).Hosts())
		}
	}
	return hosts
}

func cores(x float64) string  { return fmt.Sprintf("%.3g", x) }
func memory(x float64) string { return report.Format(plan.Bytes, x) }

// samples draws one metric of hosts, with a line per host that has it.
func (t timeline) samples(title, label string, hosts map[string][]record.HostSample, format func(float64) string,
	of func(record.HostSample) (float64, bool)) (figure, bool) {
	p := t.plot(label, false, format)
	left := 0
	for _, agent := range slices.Sorted(maps.Keys(hosts)) {
		l := chart.Line{Name: agent, Look: len(p.Series), Dash: len(p.Series) % 3, Shape: chart.NoMark}
		for _, h := range thinned(hosts[agent]) {
			if y, has := of(h); has {
				l.Points = append(l.Points, chart.Point{X: seconds(h.At), Y: y})
			}
		}
		switch {
		case len(l.Points) < 2:
		case len(p.Series) == maxLines:
			left++
		default:
			p.Series = append(p.Series, l)
		}
	}
	return t.finished(title, p, left)
}

func (t timeline) finished(title string, p chart.Plot, left int) (figure, bool) {
	if len(p.Series) == 0 {
		return figure{}, false
	}
	var notes []string
	if left > 0 {
		notes = append(notes, fmt.Sprintf("%d more are not shown", left))
	}
	return plotted(title, p, notes...), true
}

// thinned returns at most maxPoints samples, evenly chosen.
func thinned[T any](samples []T) (some []T) {
	each := (len(samples)-1)/maxPoints + 1
	for i := 0; i < len(samples); i += each {
		some = append(some, samples[i])
	}
	return some
}

// pauses draws the longest pauses of the agents: garbage collection, waits for a processor, and send delays.
func (t timeline) pauses(m *record.Merged) (figure, bool) {
	periods, each := periodsOf(m)
	p := t.plot("longest (log)", true, latencyTicks)
	for i, s := range []struct {
		series record.Series
		name   string
	}{{record.GCPause, "garbage collection"}, {record.Scheduling, "waiting for a CPU"},
		{record.SendDelay, "send delay"}} {
		l := chart.Line{Name: s.name, Look: i, Dash: i, Shape: chart.Shape(i), Loose: true}
		for _, at := range periods {
			if h := at.hists[s.series]; h != nil && h.Max() > 0 {
				l.Points = append(l.Points, chart.Point{X: (at.from + at.to) / 2, Y: seconds(h.Max()),
					Title: s.name + ": " + report.Format(plan.Seconds, seconds(h.Max()))})
			}
		}
		if len(l.Points) > 0 {
			p.Series = append(p.Series, l)
		}
	}
	if len(p.Series) == 0 {
		return figure{}, false
	}
	return plotted("Agents, pauses", p, partPeriods{each: each}.means("the longest of")), true
}

// brokerFigures draws the metrics that the broker of a part of a task reported, with a line per node. of names the part
// in titles.
func (t timeline) brokerFigures(of string, m *record.Merged) (all []figure) {
	by := map[string]map[string][]record.ProbeSample{}
	for _, s := range m.Probes() {
		if by[s.Name] == nil {
			by[s.Name] = map[string][]record.ProbeSample{}
		}
		by[s.Name][s.Node] = append(by[s.Name][s.Node], s)
	}
	left := 0
	for _, f := range plan.Metrics() {
		nodes := by[f.Name]
		if len(nodes) == 0 || flat(nodes) {
			continue
		}
		if len(all) == maxMetrics {
			left++
			continue
		}
		p := t.plot(string(f.Unit), false, formatOf(f.Unit))
		p.Y.Whole = f.Unit == plan.Count
		for _, node := range slices.Sorted(maps.Keys(nodes)) {
			if len(p.Series) == maxLines {
				break
			}
			l := chart.Line{Name: cmp.Or(node, "the broker"), Look: len(p.Series), Dash: len(p.Series) % 3,
				Shape: chart.NoMark}
			for _, s := range thinned(nodes[node]) {
				l.Points = append(l.Points, chart.Point{X: seconds(s.At), Y: s.Value})
			}
			p.Series = append(p.Series, l)
		}
		if fig, any := t.finished("Broker: "+f.Title+of, p, len(nodes)-len(p.Series)); any {
			all = append(all, fig)
		}
	}
	if left > 0 {
		last := &all[len(all)-1]
		last.Notes = append(last.Notes, fmt.Sprintf("%d more metrics of the broker are in the values", left))
	}
	return all
}

// flat reports whether a metric never changed. Such a metric is not drawn, because the values show it.
func flat(nodes map[string][]record.ProbeSample) bool {
	for _, samples := range nodes {
		for _, s := range samples {
			if s.Value != samples[0].Value {
				return false
			}
		}
	}
	return true
}

func formatOf(u plan.Unit) func(float64) string {
	if u == plan.Bytes {
		return memory
	}
	return rateTicks
}
