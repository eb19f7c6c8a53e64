package results

import (
	"time"

	"lockstep/internal/record"
)

// usage is what a process used inside the measurement.
type usage struct {
	time     time.Duration // that is known of; 0: nothing is
	coreTime float64       // seconds of one core
	rss      int64         // the most
}

func (u *usage) add(d time.Duration, cores float64, rss int64) {
	u.time += d
	u.coreTime += cores * d.Seconds()
	u.rss = max(u.rss, rss)
}

// cpu is the mean, in cores.
func (u usage) cpu() float64 {
	if u.time == 0 {
		return 0
	}
	return u.coreTime / u.time.Seconds()
}

// used adds up one agent's samples, by time, over the measurement. A sample is of the time since the one before, however long that is,
// and counts by the part of it that lies in the measurement. The first has none before it and reaches back into preparation: it
// only counts where there is no other.
func used(samples []record.HostSample, span time.Duration) (agent, broker usage) {
	count := func(s record.HostSample, from int64) {
		d := min(time.Duration(s.At), span) - max(0, time.Duration(from))
		if d <= 0 {
			return
		}
		agent.add(d, s.AgentCPU, s.AgentRSS)
		if s.HasBroker {
			broker.add(d, s.BrokerCPU, s.BrokerRSS)
		}
	}
	for i := range samples[min(1, len(samples)):] {
		count(samples[i+1], samples[i].At)
	}
	if agent.time == 0 && len(samples) > 0 {
		count(samples[0], 0)
	}
	return agent, broker
}

// hosts sets the figures of processes: of the agents' and the brokers', each the greatest of any.
func (j *judge) hosts() {
	var agents, brokers []usage
	for _, samples := range j.m.Hosts() {
		a, b := used(samples, max(j.span.sending, j.span.receiving))
		agents, brokers = append(agents, a), append(brokers, b)
	}
	j.greatest("agent", agents, NANotMeasured)
	j.greatest("broker", brokers, NANoProcess)
}

func (j *judge) greatest(process string, all []usage, missing string) {
	var known bool
	var cpu float64
	var rss int64
	for _, u := range all {
		known, cpu, rss = known || u.time > 0, max(cpu, u.cpu()), max(rss, u.rss)
	}
	if !known {
		j.na(process+".cpu", missing)
		j.na(process+".rss", missing)
		return
	}
	j.number(process+".cpu", cpu)
	j.number(process+".rss", float64(rss))
}
