package judge

import (
	"maps"
	"math"
	"slices"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// valueOf computes one value. It sets no flags: see withFlags.
type valueOf func(*measurements) plan.Value

// valuesOf computes every value, without flags.
func valuesOf(m *measurements) map[string]plan.Value {
	values := map[string]plan.Value{}
	for _, v := range plan.Values() {
		l, isQuantile := m.latencyOf(v.Name)
		switch of, why := functions[v.Name], m.in.absent(v.Traits); {
		case isQuantile:
			_, q, highest, _ := plan.SplitQuantile(v.Name)
			values[v.Name] = l.value(q.Q, highest)
		case of == nil: // of the broker, see below
		case why != "":
			values[v.Name] = plan.Value{NA: why}
		default:
			values[v.Name] = of(m)
		}
	}
	m.broker.addValues(values)
	return values
}

// functions has the function of each value of plan.Values, except quantiles of latencies and metrics of the broker. It
// is called only for tasks that can have the value: see absent.
var functions = map[string]valueOf{
	"publish.rate":  rate(record.Sent),
	"throughput":    rate(record.Sent),
	"confirm.rate":  rate(record.Confirmed),
	"consume.rate":  rate(record.Unique),
	"publish.bytes": rate(record.SentBytes),
	"consume.bytes": rate(record.ReceivedBytes),

	"sent":       accounted(func(l plan.Ledger) uint64 { return l.Sent }),
	"confirmed":  accounted(func(l plan.Ledger) uint64 { return l.Confirmed }),
	"rejected":   accounted(func(l plan.Ledger) uint64 { return l.Rejected }),
	"unroutable": accounted(func(l plan.Ledger) uint64 { return l.Unroutable }),
	"received":   accounted(func(l plan.Ledger) uint64 { return l.Received }),
	"dropped":    accounted(func(l plan.Ledger) uint64 { return l.Dropped }),
	"lost":       lost,
	"undrained":  accounted(func(l plan.Ledger) uint64 { return l.Undrained }),
	"unknown":    accounted(func(l plan.Ledger) uint64 { return l.Unknown }),
	"duplicated": accounted(func(l plan.Ledger) uint64 { return l.Duplicated }),
	"reordered":  accounted(func(l plan.Ledger) uint64 { return l.Reordered }),

	"unsent":         total(record.Unsent),
	"nacked":         total(record.Nacked),
	"publish.errors": total(record.PublishErrors),
	"errors.closed":  total(record.ClosedErrors),
	"errors.timeout": total(record.Timeouts),
	"errors.other": func(m *measurements) plan.Value {
		return plan.Value{Number: m.in.total(record.PublishErrors) - m.in.total(record.ClosedErrors) - m.in.total(record.Timeouts)}
	},
	"connects":        total(record.Connects),
	"disconnects":     total(record.Disconnects),
	"ports.exhausted": total(record.PortsExhausted),
	"reconnects":      total(record.Reconnects),
	"retries":         total(record.Retries),
	"republished":     total(record.Republished),
	"connection.blocked": func(m *measurements) plan.Value {
		return plan.Value{Number: time.Duration(m.in.record.Total(record.ConnBlockedNanos)).Seconds()}
	},
	"e2e.negative": func(m *measurements) plan.Value { return number(m.in.hists[record.EndToEnd].Negative()) },

	"backlog.max":   maxBacklog,
	"backlog.drain": backlogDrain,
	"catchup.rate":  catchUpRate,

	"gap.longest":       longestGap,
	"gap.confirm":       func(m *measurements) plan.Value { return m.gaps[record.GapConfirm].longest },
	"gap.delivery":      func(m *measurements) plan.Value { return m.gaps[record.GapDelivery].longest },
	"recovery.confirm":  func(m *measurements) plan.Value { return m.gaps[record.GapConfirm].recovery },
	"recovery.delivery": func(m *measurements) plan.Value { return m.gaps[record.GapDelivery].recovery },

	"topology.declare": declared,
	"topology.first":   firstDelivery,

	"spread.leaders":    unevenness(func(p *plan.Placement) map[string]int { return p.Leaders }),
	"spread.publishers": unevenness(func(p *plan.Placement) map[string]int { return p.Publishers }),
	"spread.consumers":  unevenness(func(p *plan.Placement) map[string]int { return p.Consumers }),

	"start.skew":          func(m *measurements) plan.Value { return m.starts.skew },
	"warmup.cut":          func(m *measurements) plan.Value { return plan.Value{Number: m.in.warmup().Seconds()} },
	"network.latency.p50": networkLatency(0.5),
	"network.latency.p99": networkLatency(0.99),

	"agent.cpu":       agentMean(func(s record.HostSample) float64 { return s.AgentCPU }),
	"agent.spin":      agentMean(func(s record.HostSample) float64 { return s.AgentSpin }),
	"agent.waited":    agentMean(func(s record.HostSample) float64 { return s.AgentWaited }),
	"agent.rss":       agentRSS,
	"agent.gc.p99":    runtimeQuantile(record.GCPause, 0.99),
	"agent.gc.max":    runtimeQuantile(record.GCPause, 1),
	"agent.sched.p99": runtimeQuantile(record.Scheduling, 0.99),
	"agent.sched.max": runtimeQuantile(record.Scheduling, 1),

	"binding.made":     total(record.BindingsMade),
	"binding.removed":  total(record.BindingsRemoved),
	"binding.errors":   total(record.BindingErrors),
	"binding.sent":     func(m *measurements) plan.Value { return number(m.bindings.Sent) },
	"binding.received": func(m *measurements) plan.Value { return number(m.bindings.Received) },
	"binding.lost":     bindingsLost,

	// Searched sets these for searches.
	"capacity":      unsearched,
	"capacity.low":  unsearched,
	"capacity.high": unsearched,
}

func number(n uint64) plan.Value { return plan.Value{Number: float64(n)} }

func unsearched(*measurements) plan.Value { return plan.Value{NA: NANoSearch} }

// total returns the value of a counter over the whole task.
func total(c record.Counter) valueOf {
	return func(m *measurements) plan.Value { return plan.Value{Number: m.in.total(c)} }
}

// accounted returns the value of a number in the ledger.
func accounted(of func(plan.Ledger) uint64) valueOf {
	return func(m *measurements) plan.Value { return number(of(m.ledger)) }
}

// rate returns the value of a counter per second of the overlap. With a message count, consumers continue after
// publishers. If the overlap is the whole measurement, their rate refers to the time until the last delivery.
func rate(c record.Counter) valueOf {
	return func(m *measurements) plan.Value {
		in := m.in
		from, to, per := in.overlap.from, in.overlap.to, in.overlap.length
		if in.span.byCount && to == in.span.windows && (c == record.Unique || c == record.ReceivedBytes) {
			to, per = math.MaxInt, max(per, in.span.receiving-time.Duration(from)*time.Second)
		}
		switch {
		case in.load == 0 || per <= 0 && (!in.span.byCount || in.span.sending <= 0 || in.degraded()):
			return plan.Value{NA: NANotMeasured}
		case per <= 0:
			return plan.Value{NA: NAApart}
		}
		return plan.Value{Number: float64(in.record.Sum(c, from, to)) / per.Seconds()}
	}
}

// lost returns the number of lost messages. If the drain was cut, it is unknown which messages are lost and which are
// late.
func lost(m *measurements) plan.Value {
	if m.ledger.Undrained > 0 {
		return plan.Value{NA: NAUndrained}
	}
	return number(m.ledger.Lost)
}

// bindingsLost returns the number of messages lost through new bindings, by the rules of the ledger.
func bindingsLost(m *measurements) plan.Value {
	switch {
	case m.in.degraded():
		return plan.Value{NA: naLossAgentLost}
	case m.in.drainCut():
		return plan.Value{NA: naLossDrainCut}
	}
	return plan.Value{Number: float64(m.bindings.Missing)}
}

func declared(m *measurements) plan.Value {
	for _, a := range m.in.facts.Agents {
		if a.Declared > 0 {
			return plan.Value{Number: a.Declared.D().Seconds()}
		}
	}
	return plan.Value{NA: NANotReported}
}

func firstDelivery(m *measurements) plan.Value {
	at := m.in.record.FirstDelivery()
	if at == 0 {
		return plan.Value{NA: NANoSamples}
	}
	v := plan.Value{Number: max(0, time.Duration(at)+m.in.warmup()).Seconds()}
	if !m.clocks.unknown {
		v.Bound = m.clocks.bound.Seconds()
	}
	return v
}

// unevenness returns the difference between the nodes with the most and the fewest, over all agents. The number of
// nodes is that of the broker's description, or of the nodes that have any.
func unevenness(of func(*plan.Placement) map[string]int) valueOf {
	return func(m *measurements) plan.Value {
		nodes := map[string]int{}
		for _, a := range m.in.facts.Agents {
			if a.Placement != nil {
				for node, n := range of(a.Placement) {
					nodes[node] += n
				}
			}
		}
		counts := slices.Collect(maps.Values(nodes))
		if len(counts) == 0 {
			return plan.Value{NA: NANotReported}
		}
		if len(counts) < len(m.in.facts.Subject.Members) {
			counts = append(counts, 0)
		}
		return plan.Value{Number: float64(slices.Max(counts) - slices.Min(counts))}
	}
}

func longestGap(m *measurements) plan.Value {
	var longest int64
	for _, e := range m.in.record.Events() {
		if e.Kind == record.EventGap {
			longest = max(longest, e.Nanos)
		}
	}
	return plan.Value{Number: time.Duration(longest).Seconds()}
}

// networkLatency returns the value of the round-trip latency that the simulated network added.
func networkLatency(q float64) valueOf {
	return func(m *measurements) plan.Value {
		delays := m.in.hists[record.NetworkDelay]
		if delays.Count() == 0 {
			return plan.Value{NA: NANoNetwork}
		}
		v := distribution{delays, delays}.quantile(q)
		configured := m.in.workload.Network.Latency.D().Seconds()
		if v.Sample > 0 {
			v.Sample = configured + 2*v.Sample
		}
		if v.NA == "" {
			v.Number = configured + 2*v.Number
		}
		return v
	}
}
