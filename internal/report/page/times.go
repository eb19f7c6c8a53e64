package page

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/chart"
)

// timeFigures draws the seconds of a task: a set of figures per group, then agents and broker.
func timeFigures(d detail, m *record.Merged, events []plan.Event) (all []figure) {
	marks, unmarked := marksOf(events)
	t := timeline{bands: bandsOf(d, m), marks: marks}
	if whole, _ := periodsOf(m); len(whole) > 0 {
		t.from, t.to = whole[0].from, whole[len(whole)-1].to
	}
	for _, part := range d.task.Parts() {
		own := m.Group(part.Group)
		periods, each := periodsOf(own)
		if len(periods) == 0 {
			continue
		}
		c := partPeriods{timeline: t, task: part, values: d.outcome.Values, periods: periods, each: each}
		for _, g := range d.outcome.Groups {
			if g.Name == part.Group {
				c.values = g.Values
			}
		}
		all = append(append(all, c.rates(), c.latencies()), c.backlog()...)
	}
	if len(all) == 0 {
		return nil
	}
	if unmarked > 0 {
		all[0].Notes = append(all[0].Notes, fmt.Sprintf("%d more events are in the record and are not marked", unmarked))
	}
	return append(all, t.machines(d, m)...)
}

// timeline is the common part of all drawings of a task over time.
type timeline struct {
	from, to float64 // in seconds: all drawings of a task have the same scale
	bands    []chart.Band
	marks    []chart.Mark
}

func (t timeline) plot(label string, log bool, format func(float64) string) chart.Plot {
	y := chart.Axis{Label: label, Zero: true, Format: format}
	if log {
		y.Kind, y.Zero = chart.Log, false
	}
	return chart.Plot{X: chart.Axis{Label: "seconds since the start of the measurement", Min: t.from, Max: t.to}, Y: y,
		Bands: t.bands, Marks: t.marks}
}

// bandsOf returns the shaded times: the measurement, as far as all agents ran, faults, and outages of links.
func bandsOf(d detail, m *record.Merged) []chart.Band {
	from := float64(judge.MeasuredFrom(d.task.Cell.Workload, d.outcome.Cut.D(), m))
	bands := []chart.Band{{From: from, To: from + d.outcome.Measured.D().Seconds(), Class: "band",
		Text: "the measurement, as far as all agents ran"}}
	var gaps []chart.Band
	for _, e := range m.Events() {
		from, to := seconds(e.At), seconds(e.At+e.Nanos)
		switch e.Kind {
		case record.EventFault:
			bands = append(bands, chart.Band{From: from, To: to, Class: "fault",
				Text: fmt.Sprintf("fault injected by %s: %s", e.Agent, e.Detail)})
		case record.EventGap:
			gaps = append(gaps, chart.Band{From: from, To: to, Class: "fault", Text: "disconnected"})
		}
	}
	slices.SortFunc(gaps, func(a, b chart.Band) int { return cmp.Compare(a.From, b.From) })
	for i, g := range gaps { // overlapping outages of several links are merged
		if last := &bands[len(bands)-1]; i > 0 && g.From <= last.To {
			last.To = max(last.To, g.To)
			continue
		}
		bands = append(bands, g)
	}
	return bands
}

// maxMarks limits the marked events of a drawing.
const maxMarks = 30

// marksOf returns marks for events. Events of one kind within 0.1 s share a mark. more is the number of events without
// one.
func marksOf(events []plan.Event) (marks []chart.Mark, more int) {
	last := map[string]int{}
	for _, e := range events {
		at := e.At.D().Seconds()
		full := strings.TrimSpace(fmt.Sprintf("%s at %.3f s %s %s", e.Kind, at, e.Agent, e.Detail))
		if i, seen := last[e.Kind]; seen && at-marks[i].At < 0.1 {
			if strings.Count(marks[i].Full, "\n") < 5 {
				marks[i].Full += "\n" + full
			}
			continue
		}
		if len(marks) == maxMarks {
			more++
			continue
		}
		last[e.Kind] = len(marks)
		marks = append(marks, chart.Mark{At: at, Text: e.Kind, Full: full})
	}
	// of two close marks only the first has a text: prefer a cause to its consequence
	slices.SortStableFunc(marks, func(a, b chart.Mark) int {
		return cmp.Or(cmp.Compare(math.Floor(2*a.At), math.Floor(2*b.At)),
			cmp.Compare(consequence(a.Text), consequence(b.Text)))
	})
	return marks, more
}

// consequence returns 0 for events that are usually a cause.
func consequence(kind string) int {
	if kind == record.EventFault || kind == plan.EventAgentLost {
		return 0
	}
	return 1
}

// partPeriods is the time series of a task or of one of its groups.
type partPeriods struct {
	timeline timeline
	task     plan.Task
	values   map[string]plan.Value
	periods  []period
	each     int
}

func (c partPeriods) title(text string) string {
	if c.task.Group != "" {
		return text + ", group " + c.task.Group
	}
	return text
}

// means describes what a point shows.
func (c partPeriods) means(what string) string {
	each := "each second"
	if c.each > 1 {
		each = fmt.Sprintf("each %d seconds", c.each)
	}
	return what + " " + each + "; shaded: the measurement"
}

// rates draws the publish, confirm and consume rates. Each rate covers its period from the beginning to the end.
func (c partPeriods) rates() figure {
	p := c.timeline.plot("msg/s", false, rateTicks)
	w := c.task.Cell.Workload
	publishes := w.Publishers.Nodes > 0
	kinds := []struct {
		counter record.Counter
		name    string
		shown   bool
	}{
		{record.Sent, "publish", publishes},
		{record.Confirmed, "confirmed", publishes && w.Publishers.Confirmed()},
		{record.Unique, "consume", w.Consumers.Nodes > 0},
	}
	for i, k := range kinds {
		if k.shown {
			l := chart.Line{Name: k.name, Look: i, Dash: i, Shape: chart.NoMark, Step: true}
			for n := range c.periods {
				l.Points = append(l.Points, chart.Point{X: c.periods[n].from, Y: c.periods[n].rate(k.counter)})
			}
			end := c.periods[len(c.periods)-1]
			l.Points = append(l.Points, chart.Point{X: end.to, Y: end.rate(k.counter)})
			p.Series = append(p.Series, l)
		}
	}
	p.Hovers = c.hovers(func(s *period) (parts []string) {
		for _, k := range kinds {
			if k.shown {
				parts = append(parts, k.name+" "+report.Format(plan.PerSecond, s.rate(k.counter))+"/s")
			}
		}
		return parts
	})
	return plotted(c.title("Rates over time"), p, c.means("means of")+
		"; the first and last seconds are only partly under load")
}

func (c partPeriods) hovers(texts func(*period) []string) (all []chart.Band) {
	for i := range c.periods {
		s := &c.periods[i]
		text := fmt.Sprintf("%g–%g s: %s", s.from, s.to, strings.Join(texts(s), ", "))
		all = append(all, chart.Band{From: s.from, To: s.to, Text: text})
	}
	return all
}

// latencies draws percentiles per period. A latency that has no number in the cell's values is not drawn.
func (c partPeriods) latencies() figure {
	p := c.timeline.plot("latency (log)", true, latencyTicks)
	var notes []string
	kinds := []struct {
		name   string
		series record.Series
	}{{"publish", record.Publish}, {"e2e", record.EndToEnd}}
	for i, k := range kinds {
		if v, has := c.values[k.name+".p50"]; has && v.NA != "" {
			notes = append(notes, k.name+": "+v.NA)
			continue
		}
		if bound := between(c.values[k.name+".p50"]); bound != "" {
			notes = append(notes, k.name+": "+bound)
		}
		for n, q := range []plan.Quantile{{Name: "p50", Q: 0.5}, {Name: "p99", Q: 0.99}} {
			p.Series = append(p.Series, c.quantile(k.series, q, i, n))
		}
	}
	if len(p.Series) > 0 {
		notes = append([]string{c.means("percentiles of messages completed in") + "; warm-up and drain included"}, notes...)
	}
	p.Hovers = c.hovers(func(s *period) (parts []string) {
		for _, l := range kinds {
			if h := s.hists[l.series]; h != nil && h.Count() > 0 && c.values[l.name+".p50"].NA == "" {
				parts = append(parts, fmt.Sprintf("%s p50 %s, p99 %s, max %s", l.name,
					display.Seconds(seconds(h.Quantile(0.5))), display.Seconds(seconds(h.Quantile(0.99))),
					display.Seconds(seconds(h.Max()))))
			}
		}
		return parts
	})
	return plotted(c.title("Latency over time"), p, notes...)
}

// between describes the error bound of a latency between hosts, which applies to every sample.
func between(v plan.Value) string {
	unsafe := slices.Contains(v.Flags, plan.ClockUnsafe)
	switch {
	case unsafe && v.Bound == 0: // the clocks were not compared
		return "clock-unsafe: times from clocks of different hosts; the error bound is not known"
	case unsafe:
		return "clock-unsafe: times from clocks of different hosts; error bound of each time: " +
			display.Seconds(v.Bound)
	case v.Bound > 0:
		return "error bound of each time, from clock offsets: ± " + display.Seconds(v.Bound)
	}
	return ""
}

// quantile returns the line of one quantile, with a gap at each period without samples.
func (c partPeriods) quantile(s record.Series, q plan.Quantile, look, dash int) chart.Line {
	l := chart.Line{Name: fmt.Sprintf("%s %s", s, q.Name), Look: look, Dash: dash, Shape: chart.NoMark, Step: true}
	gap := true
	for _, at := range c.periods {
		h := at.hists[s]
		if h == nil || h.Count() == 0 {
			gap = true
			continue
		}
		y := seconds(h.Quantile(q.Q))
		l.Points = append(l.Points, chart.Point{X: at.from, Y: y, Break: gap}, chart.Point{X: at.to, Y: y})
		gap = false
	}
	return l
}

// backlog draws the number of messages that are sent and not received at the end of each period, over all
// subscriptions.
func (c partPeriods) backlog() []figure {
	w := c.task.Cell.Workload
	if w.Consumers.Nodes == 0 || w.Publishers.Nodes == 0 {
		return nil
	}
	subscriptions := int64(max(1, w.Topology.Subscriptions))
	p := c.timeline.plot("messages", false, rateTicks)
	p.Y.Whole = true
	l := chart.Line{Name: "sent and not received yet", Shape: chart.NoMark}
	level := int64(0)
	levels := map[float64]int64{}
	for i := range c.periods {
		s := &c.periods[i]
		level += subscriptions*(s.counts[record.Sent]-s.counts[record.Returned]-s.counts[record.Rejected]) - s.counts[record.Unique]
		levels[s.from] = max(0, level)
		l.Points = append(l.Points, chart.Point{X: s.to, Y: float64(max(0, level))})
	}
	p.Series = []chart.Line{l}
	p.Hovers = c.hovers(func(s *period) []string {
		return []string{display.Number(float64(levels[s.from])) + " not received at the end"}
	})
	return []figure{plotted(c.title("Backlog over time"), p, c.means("level at the end of"))}
}

// maxLines limits the agents or nodes in a drawing, and maxMetrics the drawn metrics of a broker.
const (
	maxLines   = chart.Series
	maxMetrics = 6
)

// machines draws the resource usage of agents and brokers.
func (t timeline) machines(d detail, m *record.Merged) (all []figure) {
	all = append(t.samples("Agents, CPU", "cores", m.Hosts(), cores,
		func(h record.HostSample) (float64, bool) { return h.AgentCPU, true }), t.pauses(m)...)
	for _, part := range d.task.Parts() {
		of := ""
		if part.Group != "" {
			of = fmt.Sprintf(", group %s on %s", part.Group, part.Cell.Broker.Name)
		}
		all = append(all, t.brokerFigures(of, m.Group(part.Group), d.task.Metrics)...)
	}
	for _, b := range d.task.Cell.Brokers() {
		seen := m.Observed(b.Name)
		if len(seen) == 0 {
			seen = hostsOf(b.Name, d.task, m)
		}
		all = append(all, t.samples("Broker "+b.Name+", CPU of its processes", "cores", seen, cores,
			func(h record.HostSample) (float64, bool) { return h.BrokerCPU, h.HasBroker })...)
		all = append(all, t.samples("Broker "+b.Name+", memory of its processes", "bytes", seen, display.Bytes,
			func(h record.HostSample) (float64, bool) { return float64(h.BrokerRSS), h.HasBroker })...)
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

func cores(x float64) string { return fmt.Sprintf("%.3g", x) }

// samples draws one metric of hosts, with a line per host that has it.
func (t timeline) samples(title, label string, hosts map[string][]record.HostSample, format func(float64) string,
	of func(record.HostSample) (float64, bool)) []figure {
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
	return finished(title, p, left)
}

// finished returns the figure of a plot from which some lines are left out. A plot without lines has none.
func finished(title string, p chart.Plot, left int) []figure {
	if len(p.Series) == 0 {
		return nil
	}
	var notes []string
	if left > 0 {
		notes = append(notes, fmt.Sprintf("%d more are not shown", left))
	}
	return []figure{plotted(title, p, notes...)}
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
func (t timeline) pauses(m *record.Merged) []figure {
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
					Title: s.name + ": " + display.Seconds(seconds(h.Max()))})
			}
		}
		if len(l.Points) > 0 {
			p.Series = append(p.Series, l)
		}
	}
	if len(p.Series) == 0 {
		return nil
	}
	return []figure{plotted("Agents, pauses", p, partPeriods{each: each}.means("the longest of"))}
}

// brokerFigures draws the metrics that the broker of a part of a task reported, with a line per node. of names the part
// in titles.
func (t timeline) brokerFigures(of string, m *record.Merged, metrics plan.Metrics) (all []figure) {
	by := map[string]map[string][]record.ProbeSample{}
	for _, s := range m.Probes() {
		if by[s.Name] == nil {
			by[s.Name] = map[string][]record.ProbeSample{}
		}
		by[s.Name][s.Node] = append(by[s.Name][s.Node], s)
	}
	left := 0
	for _, f := range metrics.All() {
		nodes := by[f.Name]
		if len(nodes) == 0 || flat(nodes) {
			continue
		}
		if len(all) == maxMetrics {
			left++
			continue
		}
		format := rateTicks
		if f.Unit == string(plan.Bytes) {
			format = display.Bytes
		}
		p := t.plot(f.Unit, false, format)
		p.Y.Whole = f.Unit == string(plan.Count)
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
		all = append(all, finished("Broker: "+plan.MetricTitle(f.Name)+of, p, len(nodes)-len(p.Series))...)
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
		if slices.ContainsFunc(samples, func(s record.ProbeSample) bool { return s.Value != samples[0].Value }) {
			return false
		}
	}
	return true
}
