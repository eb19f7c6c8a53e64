package judge

import (
	"slices"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// evaluation is the input of the flag rules. Its values have no flags.
type evaluation struct {
	m      *measurements
	values map[string]plan.Value
}

// flagRules define when a value has a flag. Flags of a value are in this order.
var flagRules = []struct {
	flag plan.Flag
	// the rule applies only to values of the broker's performance, which depend on the load being as configured
	performance bool
	when        func(e evaluation, name string) bool
}{
	{plan.Backlog, false, isBacklog},
	{plan.Clipped, false, beyondRange},
	{plan.ClockUnsafe, false, clocksUnsafe},
	{plan.NotSteady, true, func(e evaluation, _ string) bool { return e.m.in.facts.NotSteady != "" }},
	{plan.LatencyOff, true, func(e evaluation, _ string) bool { return e.m.in.latencyOff() }},
	{plan.Drifting, true, func(e evaluation, _ string) bool { return len(e.m.drifts) > 0 }},
	{plan.ClientBound, true, limited(plan.ClientBound)},
	{plan.SharedHost, true, limited(plan.SharedHost)},
	{plan.HostBusy, true, limited(plan.HostBusy)},
	{plan.Skewed, true, func(e evaluation, _ string) bool { return e.m.starts.beyond(e.m.in.workload) }},
	{plan.Degraded, false, func(e evaluation, _ string) bool { return e.m.in.degraded() }},
}

// withFlags returns the values with their flags.
func withFlags(m *measurements, values map[string]plan.Value) map[string]plan.Value {
	e, out := evaluation{m, values}, map[string]plan.Value{}
	for name, v := range values {
		info, _ := plan.Metrics(nil).ValueNamed(name)
		for _, r := range flagRules {
			if (!r.performance || info.Traits.Has(plan.Performance)) && r.when(e, name) {
				v.Flags = append(v.Flags, r.flag)
			}
		}
		out[name] = v
	}
	return out
}

// isBacklog reports whether the value is affected by a backlog: consumers did not keep up, or did not catch up.
func isBacklog(e evaluation, name string) bool {
	switch v := e.values[name]; {
	case name == "throughput" || name == "consume.rate":
		return e.m.in.subscriptions > 0 && !e.m.keepsUp && e.values["publish.rate"].NA == ""
	case name == "backlog.drain":
		return v.NA == NANotDrained
	default:
		_, is := e.m.latencyOf(name)
		return is && v.NA == NABacklog
	}
}

// beyondRange reports whether samples of a latency were beyond the range of its histogram.
func beyondRange(e evaluation, name string) bool {
	l, is := e.m.latencyOf(name)
	v := e.values[name]
	return is && l.distribution.hist.Over() > 0 && (v.NA == "" || v.NA == NAFewSamples)
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
		return number && !e.m.starts.clocksKnown
	case name == "topology.first":
		return number && (e.m.clocks.unknown || len(e.m.clocks.steps) > 0)
	case name == "gap.confirm" || name == "recovery.confirm":
		return number && !e.m.gaps[record.GapConfirm].clocksKnown
	case name == "gap.delivery" || name == "recovery.delivery":
		return number && !e.m.gaps[record.GapDelivery].clocksKnown
	}
	l, is := e.m.latencyOf(name)
	if !is || !l.across || !number && v.NA != NABacklog {
		return false
	}
	negative := float64(l.distribution.hist.Negative())
	return e.m.clocks.unknown || len(e.m.clocks.steps) > 0 || e.m.clocks.coarse(e.values[l.name+".p50"]) ||
		number && l.name == "e2e" && negative > manyNegative*(negative+float64(e.m.in.hists[record.EndToEnd].Count()))
}

// limited returns a rule: whether the cell has a limitation with the flag.
func limited(flag plan.Flag) func(evaluation, string) bool {
	return func(e evaluation, _ string) bool {
		return slices.ContainsFunc(e.m.limitations, func(l plan.Limitation) bool { return l.Flag == flag })
	}
}
