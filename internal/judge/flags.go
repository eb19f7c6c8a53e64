package judge

import (
	"maps"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// evaluation is the input of the flag rules. Its values have no flags.
type evaluation struct {
	m      *measurements
	values map[string]plan.Value
}

// flagRules define when a value of the listed names has a flag. Flags of a value are in this order.
var flagRules = []struct {
	flag   plan.Flag
	values func() []string
	when   func(e evaluation, name string) bool
}{
	{plan.Backlog, every, isBacklog},
	{plan.Clipped, latencyNames, beyondRange},
	{plan.ClockUnsafe, every, clocksUnsafe},
	{plan.NotSteady, performance, func(e evaluation, _ string) bool { return e.m.in.facts.NotSteady != "" }},
	{plan.LatencyOff, performance, func(e evaluation, _ string) bool { return e.m.in.latencyOff() }},
	{plan.Drifting, performance, func(e evaluation, _ string) bool { return len(e.m.drifts) > 0 }},
	{plan.ClientBound, performance, limited(plan.ClientBound)},
	{plan.SharedHost, performance, limited(plan.SharedHost)},
	{plan.HostBusy, performance, limited(plan.HostBusy)},
	{plan.Skewed, performance, func(e evaluation, _ string) bool { return e.m.starts.beyond(e.m.in.workload) }},
	{plan.Degraded, every, func(e evaluation, _ string) bool { return e.m.in.degraded() }},
}

// withFlags returns the values with their flags.
func withFlags(m *measurements, values map[string]plan.Value) map[string]plan.Value {
	e, out := evaluation{m, values}, maps.Clone(values)
	for _, r := range flagRules {
		names := r.values()
		if names == nil {
			names = slices.Collect(maps.Keys(out))
		}
		for _, name := range names {
			if v, has := out[name]; has && r.when(e, name) {
				v.Flags = append(v.Flags, r.flag)
				out[name] = v
			}
		}
	}
	return out
}

// every stands for all values, including those of metrics that drivers declare.
func every() []string { return nil }

// performance returns the names of the values that describe the broker's performance. They depend on the load being as
// configured.
func performance() (names []string) {
	for _, v := range plan.Values() {
		if v.Traits.Has(plan.Performance) {
			names = append(names, v.Name)
		}
	}
	return names
}

// latencyNames returns the names of the values that are quantiles of latencies.
func latencyNames() (names []string) {
	for _, s := range latencySeries {
		names = append(names, quantileNames(s.name)...)
	}
	for _, l := range bindingNames {
		names = append(names, quantileNames(l)...)
	}
	return names
}

// quantileNames returns the names of the quantiles of one latency.
func quantileNames(latency string) (names []string) {
	for _, q := range plan.Quantiles() {
		names = append(names, latency+"."+q.Name)
	}
	if slices.Contains(highestSeries, latency) {
		for _, q := range plan.HighestQuantiles() {
			names = append(names, latency+"."+q.Name+".highest")
		}
	}
	return names
}

// latencyOf returns the latency of which a value is a quantile, and the latency's name.
func (e evaluation) latencyOf(name string) (l latency, stem string, is bool) {
	stem = strings.TrimSuffix(name, ".highest")
	for _, q := range plan.Quantiles() {
		if s, cut := strings.CutSuffix(stem, "."+q.Name); cut {
			stem = s
			break
		}
	}
	if l, is = e.m.latencies[stem]; !is {
		l, is = e.m.bindingLatencies[stem]
	}
	return l, stem, is
}

// isBacklog reports whether the value is affected by a backlog: consumers did not keep up, or did not catch up.
func isBacklog(e evaluation, name string) bool {
	switch v := e.values[name]; {
	case name == "throughput" || name == "consume.rate":
		return e.m.in.subscriptions > 0 && !e.m.keepsUp && e.values["publish.rate"].NA == ""
	case name == "backlog.drain":
		return v.NA == NANotDrained
	default:
		_, _, is := e.latencyOf(name)
		return is && v.NA == NABacklog
	}
}

// beyondRange reports whether samples of a latency were beyond the range of its histogram.
func beyondRange(e evaluation, name string) bool {
	l, _, is := e.latencyOf(name)
	v := e.values[name]
	return is && l.hist.Over() > 0 && (v.NA == "" || v.NA == NAFewSamples)
}

// manyNegative is the fraction of negative latencies above which single clock readings do not explain them.
const manyNegative = 0.001

// clocksUnsafe reports whether a value was measured between clocks that were unknown, stepped, or known less accurately
// than the median. A latency between hosts is also unsafe if many samples are negative, because as many others may be
// equally wrong.
func clocksUnsafe(e evaluation, name string) bool {
	v := e.values[name]
	number := v.NA == ""
	switch {
	case name == "start.skew":
		return e.m.starts.clockUnsafe()
	case name == "topology.first":
		return number && (e.m.clocks.unknown || len(e.m.clocks.steps) > 0)
	case name == "gap.confirm" || name == "recovery.confirm":
		return number && !e.m.gaps[record.GapConfirm].clocksKnown
	case name == "gap.delivery" || name == "recovery.delivery":
		return number && !e.m.gaps[record.GapDelivery].clocksKnown
	}
	l, stem, is := e.latencyOf(name)
	if !is || !l.across || !number && v.NA != NABacklog {
		return false
	}
	negative := float64(l.hist.Negative())
	return e.m.clocks.unknown || len(e.m.clocks.steps) > 0 || e.m.clocks.coarse(e.values[stem+".p50"]) ||
		number && stem == "e2e" && negative > manyNegative*(negative+float64(e.m.in.hists[record.EndToEnd].Count()))
}

// limited returns a rule: whether the cell has a limitation with the flag.
func limited(flag plan.Flag) func(evaluation, string) bool {
	return func(e evaluation, _ string) bool {
		return slices.ContainsFunc(e.m.limitations, func(l plan.Limitation) bool { return l.Flag == flag })
	}
}
