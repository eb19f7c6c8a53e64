package judge

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// warningsOf returns the warnings: sentences about everything that did not affect the verdict.
func warningsOf(m *measurements, values map[string]plan.Value) (all []string) {
	for _, s := range latencySeries {
		all = append(all, latencyWarnings(s.name, m.latencies[s.name])...)
	}
	all = append(all, nodeWarnings(m.in, m.broker)...)
	all = append(all, missingMetricWarnings(m.in, m.broker)...)
	all = append(all, bindingWarnings(m, values)...)
	all = append(all, clockWarnings(m, values)...)
	if why := m.in.facts.NotSteady; why != "" {
		all = append(all, fmt.Sprintf("not-steady: after %v of warm-up: %s", m.in.warmup(), why))
	}
	if m.in.latencyOff() {
		all = append(all,
			fmt.Sprintf("latency-off: the simulated network added %v to a round trip (median) instead of %v: the hosts of the agents are too busy or slow",
				m.in.addedLatency(0.5).Round(time.Microsecond), m.in.workload.Network.Latency.D()))
	}
	for _, d := range m.drifts {
		verb := "rose"
		if d.part < 0 {
			verb = "fell"
		}
		all = append(all,
			fmt.Sprintf("drifting: %s %s by %.0f %% in the %d s of the measurement: use a longer measurement or warm-up",
				d.name, verb, 100*math.Abs(d.part), d.seconds))
	}
	all = append(all, skewWarnings(m.in.workload, m.starts)...)
	return append(all, deliveryWarnings(m)...)
}

func latencyWarnings(name string, l latency) (all []string) {
	h := l.hist
	if l.na != "" && l.na != NABacklog && l.na != NANoSamples {
		return nil
	}
	if n := h.Negative(); l.across && n > 0 {
		all = append(all,
			fmt.Sprintf("%d of %d end-to-end latencies were negative and are excluded from quantiles: the clocks of the hosts differ", n, n+h.Count()))
	}
	if l.na == NABacklog {
		return all
	}
	return append(all, rangeWarnings(name, h)...)
}

func rangeWarnings(name string, h *record.Hist) []string {
	if n := h.Over(); n > 0 {
		return []string{fmt.Sprintf("%d %s samples exceeded the range of the histogram, one hour, and count as one hour",
			n, name)}
	}
	return nil
}

// nodeWarnings are about nodes that observers saw only in a part of the measurement.
func nodeWarnings(in *input, b brokerMetrics) (all []string) {
	for _, n := range b.nodes {
		if b.observed && n.known < time.Duration(minAnswered*float64(in.span.length())) {
			all = append(all, fmt.Sprintf("an observer measured the processes of broker %s for %v of %v",
				in.task.Cell.Broker.Name,
				n.known.Round(100*time.Millisecond), in.span.length()))
		}
	}
	return all
}

// missingMetricWarnings are about seconds without metrics of the broker.
func missingMetricWarnings(in *input, b brokerMetrics) (all []string) {
	whole := int(in.span.length() / time.Second)
	if b.probed && float64(b.answered) < minAnswered*float64(whole) {
		all = append(all,
			fmt.Sprintf("the broker reported its metrics %d times in a measurement of %d s: they describe only these moments",
				b.answered, whole))
	}
	if b.lacking > 0 {
		all = append(all, fmt.Sprintf("the metrics of the broker did not include all nodes %d times; these samples are excluded",
			b.lacking))
	}
	return all
}

func bindingWarnings(m *measurements, values map[string]plan.Value) (all []string) {
	if !m.in.churns() {
		return nil
	}
	for _, name := range bindingNames {
		l := m.bindingLatencies[name]
		if n := l.hist.Negative(); l.across && l.na == "" && n > 0 {
			all = append(all,
				fmt.Sprintf("%d of %d times of %s were negative and are excluded from quantiles: the clocks of the hosts differ", n, n+l.hist.Count(), name))
		}
		all = append(all, rangeWarnings(name, l.hist)...)
	}
	perSecond, length := m.in.workload.Topology.Churn.Rate, m.in.span.sending.Seconds()
	intended, made := perSecond*length, m.in.counted(record.BindingsMade)
	if intended-made > Tolerance*intended+1 {
		all = append(all, fmt.Sprintf("configured are %s bindings per second, created were %s", display.Number(perSecond),
			display.Number(made/length)))
	}
	if n := m.in.record.Total(record.BindingErrors); n > 0 {
		all = append(all, fmt.Sprintf("%d calls to create or remove a binding failed; see the events", n))
	}
	if v, n := values["binding.lost"], m.bindings.Missing; v.NA == "" && n > 0 {
		all = append(all, fmt.Sprintf("%s through a new binding %s lost after the broker had confirmed the binding",
			messages(n), was(n)))
	}
	return all
}

// clockWarnings are about clocks that were stepped, and clocks that were known less accurately than the measured
// latency.
func clockWarnings(m *measurements, values map[string]plan.Value) (all []string) {
	for _, e := range m.clocks.steps {
		all = append(all, fmt.Sprintf("clock-unsafe: agent %s, %v into the measurement: %s", e.Agent,
			time.Duration(e.At).Round(time.Millisecond), e.Detail))
	}
	for _, latency := range []string{"e2e", "binding.first", "binding.message"} {
		if m.clocks.coarse(values[latency+".p50"]) {
			all = append(all,
				fmt.Sprintf("clock-unsafe: the uncertainty of the clocks of publishers and consumers is %v, more than the median of %s",
					m.clocks.bound.Round(time.Microsecond), latency))
		}
	}
	return all
}

func skewWarnings(w plan.Workload, s starts) []string {
	if !s.beyond(w) {
		return nil
	}
	var late []string
	for _, a := range s.agents {
		late = append(late, a.Agent+" "+a.Skew.D().Round(10*time.Microsecond).String())
	}
	const maxAgents = 10
	if len(late) > maxAgents {
		late = append(late[:maxAgents], "…")
	}
	return []string{fmt.Sprintf("skewed: agents started within %v, and the cell permits %v; delay of each agent: %s",
		time.Duration(s.skew.Number*1e9).Round(10*time.Microsecond), w.Skew.D(), strings.Join(late, ", "))}
}

// deliveryWarnings are about messages, links and agents.
func deliveryWarnings(m *measurements) (all []string) {
	in, l := m.in, m.ledger
	warn := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if l.Foreign > 0 {
		warn("%s of another task %s received: another program uses the same queues", messages(l.Foreign), was(l.Foreign))
	}
	if l.Uncertain > 0 {
		warn("%s may or may not have been sent: the publish call failed", messages(l.Uncertain))
	}
	if l.Unconfirmed > 0 {
		warn("%d of %s %s never confirmed", l.Unconfirmed, messages(l.Sent), was(l.Unconfirmed))
	}
	if l.Rejected > 0 {
		warn("%d of %s %s rejected by the broker", l.Rejected, messages(l.Sent), was(l.Rejected))
	}
	if n := unevenLeaders(m).Number; n > 1 && in.workload.Topology.QueueNode == "spread" {
		warn("the leaders of queues are uneven: their numbers per node differ by %.0f", n)
	}
	if l.Dropped > 0 {
		warn("%s %s dropped by the broker: consumers rejected them at its maximum number of deliveries", messages(l.Dropped), was(l.Dropped))
	}
	if in.task.Cell.Guarantees.Ordered && l.Reordered > 0 && in.unmarkedRedeliveries() {
		warn("%s received after a later one: consumers disconnected, and the broker does not report whether these are redeliveries", messagesWere(l.Reordered))
	}
	if short := shortfall(m); short != "" {
		warn("%s", short)
	}
	reconnects, broken := in.record.Total(record.Reconnects), int64(0) // links for one message are in neither
	for _, e := range in.record.Events() {
		if e.Kind == record.EventGap {
			broken++
		}
	}
	if reconnects > 0 {
		warn("links failed and were opened again %d times; see the events", reconnects)
	}
	if n := broken - reconnects; n > 0 {
		warn("links that failed and were not opened again: %d; see the events", n)
	}
	if l.Undrained > 0 && in.facts.DrainCut {
		warn("%s missing when the drain timed out after %v", messages(l.Undrained), in.workload.Drain.Timeout)
	}
	for _, a := range in.facts.Agents {
		if a.Error != "" && !strings.Contains(in.facts.Failure, a.Error) {
			warn("agent %s in phase %s: %s", a.Agent, a.Phase, a.Error)
		}
	}
	return all
}

// shortfall returns why fewer messages were sent in the measurement than were due; empty if they were not fewer. It is
// empty with a message count, because the measurement then lasts until all are sent. It is also empty for tasks that
// failed or were cancelled, whose cause is known.
func shortfall(m *measurements) string {
	in := m.in
	if !in.workload.Publishers.Open() || in.span.byCount || in.facts.Failure != "" || in.facts.Cancelled {
		return ""
	}
	var due, failed, unsent float64 // of the measurement, whenever they were sent
	in.record.Range(func(w *record.Window) {
		if w.Measured {
			failed += float64(w.Counts[record.PublishErrors])
			unsent += float64(w.Counts[record.Unsent])
			due += float64(w.Counts[record.Sent] + w.Counts[record.PublishErrors] + w.Counts[record.Unsent])
		}
	})
	if due-in.sent <= Tolerance*due+1 { // the end of the measurement may cut off one message
		return ""
	}
	sendDelay, blocked := in.hists[record.SendDelay].Quantile(0.99), in.hists[record.Backpressure].Quantile(0.99)
	why := fmt.Sprintf("publishers waited for the broker (back-pressure p99 %v)", roughly(blocked))
	if len(m.limitations) > 0 && sendDelay > blocked {
		why = fmt.Sprintf("%s (send delay p99 %v, back-pressure p99 %v)", m.limitations[0].Flag, roughly(sendDelay),
			roughly(blocked))
	}
	if failed > 0 {
		why += fmt.Sprintf("; failed publish calls: %.0f", failed)
	}
	if unsent > 0 {
		why += fmt.Sprintf("; unsent messages: %.0f", unsent)
	}
	per := in.span.sending.Seconds()
	return fmt.Sprintf("intended publish rate %s/s, actual %s/s: %s", display.Number(due/per), display.Number(in.sent/per), why)
}

// roughly formats a latency with three or four digits, or "below 1µs".
func roughly(ns int64) string {
	if float64(ns) < plan.Resolution*1e9 {
		return "below 1µs"
	}
	d, unit := time.Duration(ns), time.Duration(1)
	for d/unit >= 10_000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

func messages(n uint64) string {
	if n == 1 {
		return "1 message"
	}
	return strconv.FormatUint(n, 10) + " messages"
}

func was(n uint64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

func messagesWere(n uint64) string { return messages(n) + " " + was(n) }
