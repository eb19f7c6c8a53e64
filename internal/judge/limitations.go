package judge

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// From when on something is a limitation. See limitationsOf.
const (
	minLate    = time.Millisecond // of send delay and of waits for a CPU
	lateShare  = 0.1              // of the p99 of the latency that send delay adds to
	busyShare  = 0.9              // of the CPUs, or of a publisher's or a thread's time
	otherShare = 0.1              // of the host's CPUs, used by other processes
	waitShare  = 0.2              // of the time in which the process was runnable: it competes for the CPU
)

// limitationsOf are why the cell's numbers are not the broker's alone.
//
//   - ports: an agent could not open a connection because no local port was left.
//   - cpu: all processes of a host used 90 % of its CPUs, or an agent's process 90 % of those that it may use
//     (GOMAXPROCS). Polling the clock does not count: it stops where there is work.
//   - thread: one thread of a driver that is a process of its own ran for 90 % of the time. Most such clients have one
//     that everything goes through.
//   - publisher (closed loop): a publisher spent 90 % of the time in its own work: not waiting for confirms, in-flight
//     slots, blocked writes or connections.
//   - send delay (open loop): its p99 is above 1 ms, above a tenth of the p99 of the latency that it adds to, and above
//     the p99 of the time that messages were held up by the broker. A sleep ends up to 0.2 ms late on a healthy host.
//   - scheduling: goroutines that could run waited for a CPU for more than 1 ms and more than a tenth of the latency,
//     at the p99.
//
// Whose doing it was depends on the process: see loadProcess.flag.
func limitationsOf(in *input) (all []plan.Limitation) {
	processes := loadProcessesOf(in)
	if n := in.record.Total(record.PortsExhausted); n > 0 {
		all = append(all, plan.Limitation{Flag: plan.ClientBound, Cause: plan.CausePorts, Value: float64(n), Max: 1})
	}
	add := func(p *loadProcess, cause plan.LimitationCause, value, limit float64) {
		all = append(all, plan.Limitation{Flag: p.flag(), Cause: cause, Host: p.host, Agents: p.agents, Value: value,
			Max: limit})
	}
	busiest := in.record.Busiest()
	for _, p := range processes {
		switch {
		case p.hostCores > 0 && p.hostCPU-p.hostSpin >= busyShare*p.hostCores:
			add(p, plan.CauseCPU, p.hostCPU-p.hostSpin, p.hostCores)
		case p.cores > 0 && p.cpu-p.spin >= busyShare*p.cores:
			add(p, plan.CauseCPU, p.cpu-p.spin, p.cores)
		}
		if p.thread >= busyShare {
			add(p, plan.CauseThread, p.thread, busyShare)
		}
		var busy float64
		for _, agent := range p.agents {
			if t, known := busiest[agent]; known {
				busy = max(busy, t.Busy())
			}
		}
		if !in.workload.Publishers.Open() && busy >= busyShare {
			add(p, plan.CausePublisher, busy, busyShare)
		}
	}
	// Of these it is not known which process they are of: they are put to the one that competes most for its CPUs, send
	// delay to one with publishers.
	sends := func(p *loadProcess) bool {
		return slices.ContainsFunc(p.agents, func(agent string) bool { _, has := busiest[agent]; return has })
	}
	of := func(is func(*loadProcess) bool) *loadProcess {
		most := &loadProcess{}
		for _, p := range processes {
			if is(p) && (len(processes) == 1 || p.competes() && p.waited > most.waited) {
				most = p
			}
		}
		return most
	}
	if late, limit, open := in.sendDelay(); open && late > limit &&
		late > time.Duration(in.hists[record.Backpressure].Quantile(0.99)) {
		add(of(sends), plan.CauseSendDelay, late.Seconds(), limit.Seconds())
	}
	if waited := in.hists[record.Scheduling]; waited.Count() > 0 {
		limit, known := in.limit(record.PublishIntended, record.Publish, record.EndToEnd)
		if p99 := time.Duration(waited.Quantile(0.99)); known && p99 > limit {
			add(of(func(*loadProcess) bool { return true }), plan.CauseScheduling, p99.Seconds(), limit.Seconds())
		}
	}
	return all
}

// loadProcess is a process of the load generator, which may have several agents, in the measurement. CPU is in cores.
type loadProcess struct {
	host               string
	agents             []string
	cpu, spin, cores   float64 // of the process; cores are those that it may use
	hostCPU, hostCores float64 // of all processes of the host; 0: not known
	hostSpin, hostLoad float64 // of the cell's load processes on the host: polling the clock, and all that they use
	brokerCPU          float64 // of the broker's processes on the host, if they are known
	waited, thread     float64
	inProcess          bool // the broker is in the process
	local              bool // the broker is on the same host
	brokerKnown        bool // brokerCPU is, or the broker is in the process
}

// flag says whose doing it was that the process did less than it was to do.
func (p *loadProcess) flag() plan.Flag {
	others := p.hostCPU - p.hostLoad - p.brokerCPU
	busy := p.hostCores > 0 && others >= otherShare*p.hostCores && (p.brokerKnown || !p.local)
	switch {
	case p.inProcess && p.cores > 0 && p.cpu-p.spin >= busyShare*p.cores:
		return plan.SharedHost
	case !p.competes():
		return plan.ClientBound
	case busy:
		return plan.HostBusy
	case p.local:
		return plan.SharedHost
	}
	return plan.ClientBound
}

// competes reports whether others keep the process from a CPU.
func (p *loadProcess) competes() bool {
	return p.waited >= waitShare || p.hostCores > 0 && p.hostCPU-p.hostSpin >= busyShare*p.hostCores
}

// loadProcessesOf are the processes of the cell's agents, in the order of their first agent's name.
func loadProcessesOf(in *input) (all []*loadProcess) {
	hosts := map[string]string{}
	for _, a := range in.facts.Agents {
		hosts[a.Agent] = a.Host
	}
	samples, by := in.record.Hosts(), map[string]*loadProcess{}
	mean := func(agent string, of func(record.HostSample) float64) float64 {
		m, _ := meanOf(samples[agent], in.span.sending,
			func(s record.HostSample) (float64, bool) { return of(s), true })
		return m
	}
	for _, agent := range slices.Sorted(maps.Keys(samples)) {
		key := agent
		if n := len(samples[agent]); n > 0 && samples[agent][n-1].PID != 0 {
			key = hosts[agent] + "/" + strconv.Itoa(samples[agent][n-1].PID)
		}
		if p := by[key]; p != nil { // what is of the process is the same in the samples of all its agents
			p.agents = append(p.agents, agent)
			p.thread = max(p.thread, mean(agent, func(s record.HostSample) float64 { return s.DriverThread }))
			p.local = p.local || slices.ContainsFunc(samples[agent],
				func(s record.HostSample) bool { return s.LocalBroker })
			continue
		}
		own := in.task.Cell.InProcess
		p := &loadProcess{host: hosts[agent], agents: []string{agent}, cores: float64(in.facts.Cores[agent]),
			inProcess: own, local: own, brokerKnown: own}
		p.cpu = mean(agent, func(s record.HostSample) float64 { return s.AgentCPU })
		p.spin = mean(agent, func(s record.HostSample) float64 { return s.AgentSpin })
		p.thread = mean(agent, func(s record.HostSample) float64 { return s.DriverThread })
		p.waited = mean(agent, func(s record.HostSample) float64 { return s.AgentWaited })
		p.hostCPU = mean(agent, func(s record.HostSample) float64 { return s.HostCPU })
		p.brokerCPU = mean(agent, func(s record.HostSample) float64 { return s.BrokerCPU })
		inside(samples[agent], in.span.sending, func(s record.HostSample, _, _ time.Duration) {
			p.hostCores = float64(s.HostCores)
			p.local, p.brokerKnown = p.local || s.LocalBroker || s.HasBroker, p.brokerKnown || s.HasBroker
		})
		by[key] = p
		all = append(all, p)
	}
	for _, p := range all {
		for _, o := range all {
			if o.host == p.host {
				p.hostSpin, p.hostLoad = p.hostSpin+o.spin, p.hostLoad+o.cpu
			}
		}
	}
	return all
}

// send delay is its p99 and the limit for it; open is false where there is none.
func (in *input) sendDelay() (p99, limit time.Duration, open bool) {
	h := in.hists[record.SendDelay]
	if !in.workload.Publishers.Open() || h.Count() == 0 {
		return 0, 0, false
	}
	limit, _ = in.limit(record.PublishIntended, record.EndToEnd)
	return time.Duration(h.Quantile(0.99)), limit, true
}

// limit is what may be added to the first of these latencies that there is; known is false where there is none.
func (in *input) limit(latencies ...record.Series) (limit time.Duration, known bool) {
	for _, s := range latencies {
		if of := in.hists[s]; of.Count() > 0 {
			return max(minLate, time.Duration(lateShare*float64(of.Quantile(0.99)))), true
		}
	}
	return minLate, false
}
