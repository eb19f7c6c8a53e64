package judge

import (
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// inside calls f for each host sample in the measurement, with the part of the measurement that the sample covers. A
// sample covers the time since the previous one. The first sample has no known beginning, because it includes
// preparation. It counts only if there is no other.
func inside(samples []record.HostSample, span time.Duration, f func(s record.HostSample, from, to time.Duration)) {
	count := func(s record.HostSample, from int64) bool {
		from, to := max(0, from), min(s.At, int64(span))
		if from >= to {
			return false
		}
		f(s, time.Duration(from), time.Duration(to))
		return true
	}
	any := false
	for i := range samples[min(1, len(samples)):] {
		any = count(samples[i+1], samples[i].At) || any
	}
	if !any && len(samples) > 0 {
		count(samples[0], 0)
	}
}

// meanOf returns the time-weighted mean of a metric over the measurement, and the total time of its samples.
func meanOf(samples []record.HostSample, span time.Duration, of func(record.HostSample) (float64, bool)) (mean float64,
	known time.Duration) {
	inside(samples, span, func(s record.HostSample, from, to time.Duration) {
		if v, is := of(s); is {
			known += to - from
			mean += (v - mean) * float64(to-from) / float64(known)
		}
	})
	return mean, known
}

// agentMean returns the value of a mean over agents' processes: the maximum of all agents.
func agentMean(of func(record.HostSample) float64) valueOf {
	return func(m *measurements) plan.Value {
		v := plan.Value{NA: NANotMeasured}
		for _, samples := range m.in.record.Hosts() {
			mean, known := meanOf(samples, m.in.span.length(),
				func(s record.HostSample) (float64, bool) { return of(s), true })
			if known > 0 {
				v = plan.Value{Number: max(mean, v.Number)}
			}
		}
		return v
	}
}

// agentRSS returns the maximum memory of any agent's process during the measurement.
func agentRSS(m *measurements) plan.Value {
	v := plan.Value{NA: NANotMeasured}
	for _, samples := range m.in.record.Hosts() {
		inside(samples, m.in.span.length(), func(s record.HostSample, _, _ time.Duration) {
			v = plan.Value{Number: max(float64(s.AgentRSS), v.Number)}
		})
	}
	return v
}

// runtimeQuantile returns the value of a quantile that Go's runtime measured in the agents' processes. Scheduling is
// always measured. Without it, the absence of GC pauses means that nothing was measured. The maximum of no pauses is 0.
func runtimeQuantile(s record.Series, q float64) valueOf {
	return func(m *measurements) plan.Value {
		if m.in.hists[record.Scheduling].Count() == 0 {
			return plan.Value{NA: NANotMeasured}
		}
		return distribution{m.in.hists[s], m.in.hists[s]}.quantile(q)
	}
}
