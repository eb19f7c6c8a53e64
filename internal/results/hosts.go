package results

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// usage is what a process, or several together, used in a stretch of time.
type usage struct {
	time     time.Duration // that is known of; 0: nothing is
	coreTime float64       // seconds of one core
	byteTime float64       // bytes times seconds
	rss      int64         // the most
	spin     float64       // of coreTime, spent polling the clock; of agents alone
	waited   float64       // seconds of one core that it could have had besides; of agents alone
}

func (u *usage) add(d time.Duration, cores float64, rss int64) {
	u.time += d
	u.coreTime += cores * d.Seconds()
	u.byteTime += float64(rss) * d.Seconds()
	u.rss = max(u.rss, rss)
}

// busy is for how much of the time the process had something to do for a processor, or would have had one to do it, in cores: not the polling
// of the clock, which stops where there is work.
func (u usage) busy() float64 { return u.mean(max(0, u.coreTime-u.spin) + u.waited) }

// cpu is the mean, in cores.
func (u usage) cpu() float64 { return u.mean(u.coreTime) }

// memory is the mean, in bytes.
func (u usage) memory() float64 { return u.mean(u.byteTime) }

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

// processes returns what the broker's processes used in all of the measurement and in each second of it, those of all hosts added up: of a
// host by the one agent there that saw most of them, as all see the same. A second that some host does not know of is left out.
func (j *judge) processes() (whole []usage, seconds [][]usage) {
	hosts := map[string]string{}
	for _, a := range j.f.Agents {
		hosts[a.Agent] = cmp.Or(a.Host, a.Clock)
	}
	type seen struct {
		whole   usage
		samples []record.HostSample
	}
	best, all := map[string]seen{}, j.m.Hosts()
	for _, agent := range slices.Sorted(maps.Keys(all)) {
		_, u := used(all[agent], j.length())
		if host := hosts[agent]; u.time > best[host].whole.time {
			best[host] = seen{u, all[agent]}
		}
	}
	bySecond := map[int][]usage{}
	for _, host := range slices.Sorted(maps.Keys(best)) {
		whole = append(whole, best[host].whole)
		for second, u := range perSecond(best[host].samples, j.length()) {
			bySecond[second] = append(bySecond[second], u)
		}
	}
	for _, second := range slices.Sorted(maps.Keys(bySecond)) {
		if us := bySecond[second]; len(us) == len(best) {
			seconds = append(seconds, us)
		}
	}
	return whole, seconds
}

// perSecond adds up what the broker's processes used by the second in which the middle of each sample lies.
func perSecond(samples []record.HostSample, span time.Duration) map[int]usage {
	bySecond := map[int]usage{}
	inside(samples, span, func(s record.HostSample, from, to time.Duration) {
		if !s.HasBroker {
			return
		}
		second := int((from + to) / 2 / time.Second)
		u := bySecond[second]
		u.add(to-from, s.BrokerCPU, s.BrokerRSS)
		bySecond[second] = u
	})
	return bySecond
}

// processFigures sets the figures of the broker's processes, as their hosts say; which gives them for the figures of these names.
func (j *judge) processFigures() {
	whole, seconds := j.processes()
	j.statistics("cpu", NANoProcess, whole, seconds, usage.cpu, usage.cpu)
	j.statistics("rss", NANoProcess, whole, seconds, usage.memory, func(u usage) float64 { return float64(u.rss) })
}

// statistics sets those of one figure: the mean over the whole time, and the median and greatest of its seconds, all of them sums over hosts.
func (j *judge) statistics(figure, missing string, whole []usage, seconds [][]usage, mean, each func(usage) float64) {
	sum := func(us []usage, f func(usage) float64) (total float64) {
		for _, u := range us {
			total += f(u)
		}
		return total
	}
	values := make([]float64, len(seconds))
	for i, us := range seconds {
		values[i] = sum(us, each)
	}
	if len(values) == 0 {
		for _, s := range plan.FigureStatistics() {
			j.na(plan.FigureValue(figure, s), missing)
		}
		return
	}
	j.figure(figure, sum(whole, mean), values)
}

// figure sets the statistics of a figure that has values.
func (j *judge) figure(name string, mean float64, values []float64) {
	slices.Sort(values)
	j.number(plan.FigureValue(name, "mean"), mean)
	j.number(plan.FigureValue(name, "p50"), values[(len(values)-1)/2]) // of an even number the lower one, so that it was measured
	j.number(plan.FigureValue(name, "max"), values[len(values)-1])
}
