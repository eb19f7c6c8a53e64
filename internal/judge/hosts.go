package judge

import (
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// inside calls f for the samples of the measurement and the part of it that each is of. A sample is of the time since the one before, however
// long that is. The first has none before it and reaches back into preparation: it only counts where there is no other.
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

// meanOf is the mean of a figure of these samples over the measurement, weighed by time, and for how long it is known.
func meanOf(samples []record.HostSample, span time.Duration, of func(record.HostSample) (float64, bool)) (mean float64, known time.Duration) {
	inside(samples, span, func(s record.HostSample, from, to time.Duration) {
		if v, is := of(s); is {
			known += to - from
			mean += (v - mean) * float64(to-from) / float64(known)
		}
	})
	return mean, known
}

// hosts sets the figures of processes: of the agents', the greatest of any.
func (j *judge) hosts() {
	for name, of := range map[string]func(record.HostSample) float64{
		"agent.cpu":    func(s record.HostSample) float64 { return s.AgentCPU },
		"agent.spin":   func(s record.HostSample) float64 { return s.AgentSpin },
		"agent.waited": func(s record.HostSample) float64 { return s.AgentWaited },
	} {
		j.na(name, NANotMeasured)
		for _, samples := range j.m.Hosts() {
			mean, known := meanOf(samples, j.length(), func(s record.HostSample) (float64, bool) { return of(s), true })
			if known > 0 {
				j.number(name, max(mean, j.out.Values[name].Number))
			}
		}
	}
	j.na("agent.rss", NANotMeasured)
	for _, samples := range j.m.Hosts() {
		inside(samples, j.length(), func(s record.HostSample, _, _ time.Duration) {
			j.number("agent.rss", max(float64(s.AgentRSS), j.out.Values["agent.rss"].Number))
		})
	}
	j.runtimes()
}

// runtimes sets what Go's runtime measured in the agents' processes. It always has something to say of scheduling, so that no pause is
// none only where there is that.
func (j *judge) runtimes() {
	known := j.m.Hist(record.Scheduling).Count() > 0
	for name, s := range map[string]record.Series{"agent.gc": record.GCPause, "agent.sched": record.Scheduling} {
		h := j.m.Hist(s)
		for _, q := range []plan.Quantile{{Name: "p99", Q: 0.99}, {Name: "max", Q: 1}} {
			if known {
				j.number(name+"."+q.Name, time.Duration(h.Quantile(q.Q)).Seconds())
			} else {
				j.na(name+"."+q.Name, NANotMeasured)
			}
		}
	}
}

// length is how long the measurement was for those who looked on.
func (j *judge) length() time.Duration { return max(j.span.sending, j.span.receiving) }
