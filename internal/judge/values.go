package judge

import (
	"math"
	"sync"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// valueOf is the function of one value. It sets no flags: see withFlags.
type valueOf func(*measurements) plan.Value

// valuesOf computes every value, without flags.
func valuesOf(m *measurements) map[string]plan.Value {
	values := map[string]plan.Value{}
	for name, of := range functions() {
		values[name] = of(m)
	}
	return values
}

// functions has the function of each value of plan.Values.
var functions = sync.OnceValue(func() map[string]valueOf {
	all := map[string]valueOf{
		"send.rate":     rate(record.Sent),
		"throughput":    rate(record.Sent),
		"confirm.rate":  confirmed(rate(record.Confirmed)),
		"receive.rate":  consumed(rate(record.Unique)),
		"send.bytes":    rate(record.SentBytes),
		"receive.bytes": consumed(rate(record.ReceivedBytes)),

		"sent":       accounted(func(l plan.Ledger) uint64 { return l.Sent }),
		"confirmed":  confirmed(accounted(func(l plan.Ledger) uint64 { return l.Confirmed })),
		"rejected":   confirmed(accounted(func(l plan.Ledger) uint64 { return l.Rejected })),
		"unroutable": accounted(func(l plan.Ledger) uint64 { return l.Unroutable }),
		"received":   consumed(accounted(func(l plan.Ledger) uint64 { return l.Received })),
		"lost":       consumed(lost),
		"undrained":  consumed(accounted(func(l plan.Ledger) uint64 { return l.Undrained })),
		"unknown":    consumed(accounted(func(l plan.Ledger) uint64 { return l.Unknown })),
		"duplicated": consumed(accounted(func(l plan.Ledger) uint64 { return l.Duplicated })),
		"reordered":  consumed(accounted(func(l plan.Ledger) uint64 { return l.Reordered })),

		"unsent":              openLoop(total(record.Unsent)),
		"nacked":              consumed(total(record.Nacked)),
		"publish.errors":      total(record.PublishErrors),
		"errors.closed":       total(record.ClosedErrors),
		"errors.timeout":      total(record.Timeouts),
		"errors.other":        otherErrors,
		"joins":               total(record.Joins),
		"leaves":              total(record.Leaves),
		"ports.exhausted":     total(record.PortsExhausted),
		"reconnects":          total(record.Reconnects),
		"connection.blocked":  connectionBlocked,
		"processing.negative": consumed(func(m *measurements) plan.Value { return number(m.in.hists[record.Processing].Negative()) }),

		"backlog.most":  consumed(mostBacklog),
		"backlog.drain": consumed(backlogDrain),
		"catchup.rate":  consumed(catchUpRate),

		"gap.longest":      longestGap,
		"gap.confirm":      func(m *measurements) plan.Value { return m.gaps[record.GapConfirm].longest },
		"gap.receipt":      func(m *measurements) plan.Value { return m.gaps[record.GapReceipt].longest },
		"recovery.confirm": func(m *measurements) plan.Value { return m.gaps[record.GapConfirm].recovery },
		"recovery.receipt": func(m *measurements) plan.Value { return m.gaps[record.GapReceipt].recovery },

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

		"binding.made":     churning(total(record.BindingsMade)),
		"binding.removed":  churning(total(record.BindingsRemoved)),
		"binding.errors":   churning(total(record.BindingErrors)),
		"binding.sent":     churning(func(m *measurements) plan.Value { return number(m.bindings.Sent) }),
		"binding.received": churning(consumed(func(m *measurements) plan.Value { return number(m.bindings.Received) })),
		"binding.lost":     churning(consumed(bindingsLost)),

		// Searched sets these of a search.
		"capacity":      unsearched,
		"capacity.low":  unsearched,
		"capacity.high": unsearched,
	}
	for _, q := range plan.Quantiles() {
		for _, s := range latencySeries {
			all[s.name+"."+q.Name] = func(m *measurements) plan.Value {
				return m.clockBound(m.latencies[s.name], (latency).quantileValue, q.Q)
			}
		}
		for _, name := range bindingNames {
			all[name+"."+q.Name] = churning(func(m *measurements) plan.Value {
				return m.clockBound(m.bindingLatencies[name], (latency).quantileValue, q.Q)
			})
		}
	}
	for _, q := range plan.HighestQuantiles() {
		for _, name := range highestSeries {
			all[name+"."+q.Name+".highest"] = func(m *measurements) plan.Value { return m.clockBound(m.latencies[name], (latency).highest, q.Q) }
		}
	}
	for _, f := range append(plan.Figures(), plan.ProcessFigures()...) {
		for _, s := range plan.FigureStatistics() {
			all[plan.FigureValue(f.Name, s)] = func(m *measurements) plan.Value { return m.broker.figures[f.Name].value(s) }
		}
	}
	return all
})

// unless returns the function of a value that a task cannot have for a reason.
func unless(reason func(*input) string, of valueOf) valueOf {
	return func(m *measurements) plan.Value {
		if why := reason(m.in); why != "" {
			return plan.Value{NA: why}
		}
		return of(m)
	}
}

func reasonIf(is bool, reason string) string {
	if is {
		return reason
	}
	return ""
}

// confirmed, consumed, openLoop and churning are the functions of values that only tasks with confirms, with consumers, with a publish rate, and with
// bindings that come and go can have.
func confirmed(of valueOf) valueOf {
	return unless(func(in *input) string { return unconfirmedReason(in.workload.Publishers.Mode) }, of)
}

func consumed(of valueOf) valueOf {
	return unless(func(in *input) string { return reasonIf(in.subscriptions == 0, NANoConsumers) }, of)
}

func openLoop(of valueOf) valueOf {
	return unless(func(in *input) string { return reasonIf(!in.workload.Publishers.Open(), NAClosedLoop) }, of)
}

func churning(of valueOf) valueOf {
	return unless(func(in *input) string { return reasonIf(!in.churns(), NANoChurn) }, of)
}

func number(n uint64) plan.Value { return plan.Value{Number: float64(n)} }

func unsearched(*measurements) plan.Value { return plan.Value{NA: NANoSearch} }

// total is the value of a counter over the whole task.
func total(c record.Counter) valueOf {
	return func(m *measurements) plan.Value { return plan.Value{Number: m.in.total(c)} }
}

// accounted is the value of a number of the ledger.
func accounted(of func(plan.Ledger) uint64) valueOf {
	return func(m *measurements) plan.Value { return number(of(m.ledger)) }
}

// rate is the value of a counter per second of the overlap. By count, consumers go on after publishers: if the overlap is all of the measurement,
// theirs is until the last delivery.
func rate(c record.Counter) valueOf {
	return func(m *measurements) plan.Value {
		in := m.in
		from, to, per := in.overlap.from, in.overlap.to, in.overlap.length
		if in.span.byCount && to == in.span.windows && (c == record.Unique || c == record.ReceivedBytes) {
			to, per = math.MaxInt, max(per, in.span.receiving-time.Duration(from)*time.Second)
		}
		switch {
		case in.sent == 0 || per <= 0 && (!in.span.byCount || in.span.sending <= 0 || in.degraded()):
			return plan.Value{NA: NANotMeasured}
		case per <= 0:
			return plan.Value{NA: NAApart}
		}
		return plan.Value{Number: float64(in.record.Sum(c, from, to)) / per.Seconds()}
	}
}

// clockBound is a quantile of a latency with what the clocks at its ends may add to it or take away.
func (m *measurements) clockBound(l latency, quantile func(latency, float64) plan.Value, q float64) plan.Value {
	v := quantile(l, q)
	if l.across && v.NA == "" && !m.clocks.unknown {
		v.Bound = m.clocks.bound.Seconds()
	}
	return v
}

// lost is the number of lost messages. Where the drain was cut, nobody waited to see which are lost and which are late.
func lost(m *measurements) plan.Value {
	if m.ledger.Undrained > 0 {
		return plan.Value{NA: NAUndrained}
	}
	return number(m.ledger.Lost)
}

func otherErrors(m *measurements) plan.Value {
	return plan.Value{Number: m.in.total(record.PublishErrors) - m.in.total(record.ClosedErrors) - m.in.total(record.Timeouts)}
}

func connectionBlocked(m *measurements) plan.Value {
	return plan.Value{Number: time.Duration(m.in.record.Total(record.ConnBlockedNanos)).Seconds()}
}

func mostBacklog(m *measurements) plan.Value {
	if m.in.sent == 0 {
		return plan.Value{NA: NANotMeasured}
	}
	return plan.Value{Number: m.backlog.most()}
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

// NANoNetwork is why a cell has no achieved latency.
const NANoNetwork = "no network is simulated, or nothing passed it"

// networkLatency is the value of the latency of a round trip that the simulated network added.
func networkLatency(q float64) valueOf {
	return func(m *measurements) plan.Value {
		if m.in.hists[record.NetworkDelay].Count() == 0 {
			return plan.Value{NA: NANoNetwork}
		}
		return plan.Value{Number: m.in.addedLatency(q).Seconds()}
	}
}

// addedLatency is the latency asked for, and twice the delay of a piece one way.
func (in *input) addedLatency(q float64) time.Duration {
	return in.workload.Network.Latency.D() + 2*time.Duration(in.hists[record.NetworkDelay].Quantile(q))
}
