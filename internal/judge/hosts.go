package judge

import (
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// usage is what a process, or several together, used in a stretch of time.
type usage struct {
	time     time.Duration // that is known of; 0: nothing is
	coreTime float64       // seconds of one core
	rss      int64         // the most
	spin     float64       // of coreTime, spent polling the clock; of agents alone
	waited   float64       // HostSample.AgentWaited times seconds
	thread   float64       // HostSample.DriverThread times seconds
}

func (u *usage) add(d time.Duration, cores float64, rss int64) {
	u.time += d
	u.coreTime += cores * d.Seconds()
	u.rss = max(u.rss, rss)
}

// cpu is the mean, in cores.
func (u usage) cpu() float64 { return u.mean(u.coreTime) }

func (u usage) mean(sum float64) float64 {
	if u.time == 0 {
		return 0
	}
	return sum / u.time.Seconds()
}

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

// used adds up one agent's samples, by time, over the measurement.
func used(samples []record.HostSample, span time.Duration) (agent, broker usage) {
	inside(samples, span, func(s record.HostSample, from, to time.Duration) {
		agent.add(to-from, s.AgentCPU, s.AgentRSS)
		agent.spin += s.AgentSpin * (to - from).Seconds()
		agent.waited += s.AgentWaited * (to - from).Seconds()
		agent.thread += s.DriverThread * (to - from).Seconds()
		if s.HasBroker {
			broker.add(to-from, s.BrokerCPU, s.BrokerRSS)
		}
	})
	return agent, broker
}

// hosts sets the figures of processes: of the agents', the greatest of any.
func (j *judge) hosts() {
	var known bool
	var cpu, spin, waited float64
	var rss int64
	for _, samples := range j.m.Hosts() {
		u, _ := used(samples, j.length())
		known = known || u.time > 0
		cpu, spin, waited = max(cpu, u.cpu()), max(spin, u.mean(u.spin)), max(waited, u.mean(u.waited))
		rss = max(rss, u.rss)
	}
	for name, x := range map[string]float64{"agent.cpu": cpu, "agent.rss": float64(rss), "agent.spin": spin, "agent.waited": waited} {
		if known {
			j.number(name, x)
		} else {
			j.na(name, NANotMeasured)
		}
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
