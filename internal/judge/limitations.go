package judge

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// Thresholds of limitations. See limitationsOf.
const (
	minLate    = time.Millisecond // of send delay, and of waits for a CPU
	lateShare  = 0.1              // of the p99 of the latency to which send delay adds
	busyShare  = 0.9              // of the CPUs, or of the time of a publisher or a thread
	otherShare = 0.1              // of the host's CPUs, used by other processes
	waitShare  = 0.2              // of the time in which the process was runnable: it competes for the CPU
)

// limitationsOf returns the limitations of the load generator and its hosts:
//
//   - ports: an agent could not open a connection because no local port was free.
//   - cpu: all processes of a host used 90 % of its CPUs, or an agent's process used 90 % of its permitted CPUs
//     (GOMAXPROCS). Polling the clock does not count, because it stops when there is work.
//   - thread: one thread of a driver in a separate process ran for 90 % of the time. In most such clients all messages
//     pass through one thread.
//   - publisher (closed loop): a publisher spent 90 % of the time in its own work. Waiting for confirms, in-flight
//     slots, blocked writes or connections is not its own work.
//   - send delay (open loop): its p99 is above 1 ms, above a tenth of the affected latency's p99, and above the p99 of
//     back-pressure. On a healthy host a sleep ends up to 0.2 ms late.
//   - scheduling: the p99 of the time that runnable goroutines waited for a CPU is above 1 ms and above a tenth of the
//     latency's p99.
//
// The flag depends on the process: see loadProcess.flag.
func limitationsOf(in *input) (all []plan.Limitation) {
	processes := loadProcessesOf(in)
	if n := in.record.Total(record.PortsExhausted); n > 0 {
		all = append(all, plan.Limitation{Flag: plan.ClientBound, Cause: plan.CausePorts, Value: float64(n), Max: 1})
	}
	add := func(p *loadProcess, cause plan.LimitationCause, value, limit float64) {
		all = append(all, plan.Limitation{Flag: p.flag(cause), Cause: cause, Host: p.host, Agents: p.agents, Value: value,
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
	// The process of these limitations is unknown. They are attributed to the process that competes most for its CPUs;
	// send delay only to one with publishers.
	sends := func(p *loadProcess) bool {
		return slices.ContainsFunc(p.agents, func(agent string) bool { _, has := busiest[agent]; return has })
	}
	of := func(is func(*loadProcess) bool) *loadProcess {
		competing := &loadProcess{}
		for _, p := range processes {
			if is(p) && (len(processes) == 1 || p.competes() && p.waited > competing.waited) {
				competing = p
			}
		}
		return competing
	}
	if delays := in.hists[record.SendDelay]; in.workload.Publishers.Open() && delays.Count() > 0 {
		limit, _ := in.limit(record.PublishIntended, record.EndToEnd)
		late := time.Duration(delays.Quantile(0.99))
		if late > max(limit, time.Duration(in.hists[record.Backpressure].Quantile(0.99))) {
			add(of(sends), plan.CauseSendDelay, late.Seconds(), limit.Seconds())
		}
	}
	if waited := in.hists[record.Scheduling]; waited.Count() > 0 {
		limit, known := in.limit(record.PublishIntended, record.Publish, record.EndToEnd)
		if p99 := time.Duration(waited.Quantile(0.99)); known && p99 > limit {
			add(of(func(*loadProcess) bool { return true }), plan.CauseScheduling, p99.Seconds(), limit.Seconds())
		}
	}
	return all
}

// loadProcess is a process of the load generator, with one or more agents. Its numbers are means over the measurement.
// CPU is in cores.
type loadProcess struct {
	host               string
	agents             []string
	cpu, spin, cores   float64 // of the process; cores: CPUs that it may use
	hostCPU, hostCores float64 // of all processes of the host; 0: not known
	hostSpin, hostLoad float64 // of all load processes of the cell on the host: polling, and total CPU
	brokerCPU          float64 // of the broker's processes on the host, if known
	waited, thread     float64
	inProcess          bool // the broker runs in this process
	local              bool // the broker runs on the same host
	brokerKnown        bool // brokerCPU is known, or the broker runs in this process
}

// flag returns the flag of a limitation of the process: its own work, the broker, or other processes of the host. Only
// the own work of a publisher can be separated from that of a broker in the same process, while CPUs are free.
func (p *loadProcess) flag(cause plan.LimitationCause) plan.Flag {
	others := p.hostCPU - p.hostLoad - p.brokerCPU
	busy := p.hostCores > 0 && others >= otherShare*p.hostCores && (p.brokerKnown || !p.local)
	switch {
	case p.inProcess && p.cores > 0 && p.cpu-p.spin >= busyShare*p.cores:
		return plan.SharedHost
	case p.competes() && busy:
		return plan.HostBusy
	case p.inProcess && cause != plan.CausePublisher:
		return plan.SharedHost
	case !p.competes():
		return plan.ClientBound
	case p.local:
		return plan.SharedHost
	}
	return plan.ClientBound
}

// competes reports whether other processes or threads keep the process from a CPU.
func (p *loadProcess) competes() bool {
	return p.waited >= waitShare || p.hostCores > 0 && p.hostCPU-p.hostSpin >= busyShare*p.hostCores
}

// loadProcessesOf returns the processes of the group's agents, in the order of their first agent's name. Those of other
// groups of the cell are load, too, not other processes of the host.
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
		if p := by[key]; p != nil { // metrics of the process are the same for all its agents
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
	load := all
	if in.cell != in {
		cell := *in.cell
		cell.span, cell.cell = in.span, &cell
		load = loadProcessesOf(&cell)
	}
	for _, p := range all {
		for _, o := range load {
			if o.host == p.host {
				p.hostSpin, p.hostLoad = p.hostSpin+o.spin, p.hostLoad+o.cpu
			}
		}
	}
	return all
}
