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

// sentences are warnings or reasons.
type sentences []string

func (w *sentences) add(format string, args ...any) { *w = append(*w, fmt.Sprintf(format, args...)) }

// warningsOf returns the warnings: sentences about everything that did not affect the verdict.
func warningsOf(m *measurements, values map[string]plan.Value) (w sentences) {
	w.addLatencies(m, false)
	w.addNodes(m.in, m.broker)
	w.addMetrics(m.in, m.broker)
	w.addBindings(m, values)
	w.addClocks(m, values)
	if why := m.in.facts.NotSteady; why != "" {
		w.add("not-steady: after %v of warm-up: %s", m.in.warmup(), why)
	}
	if m.in.latencyOff() {
		w.add("latency-off: the simulated network added %v to a round trip (median) instead of %v: the hosts of the agents are too busy or slow",
			m.in.addedLatency(0.5).Round(time.Microsecond), m.in.workload.Network.Latency.D())
	}
	for _, d := range m.drifts {
		verb := "rose"
		if d.part < 0 {
			verb = "fell"
		}
		w.add("drifting: %s %s by %.0f %% in the %d s of the measurement: use a longer measurement or warm-up",
			d.name, verb, 100*math.Abs(d.part), d.seconds)
	}
	for _, f := range m.in.workload.Faults {
		late, agent, happened := startDelay(m.in.record, f)
		if happened && late > max(f.For.D()/10, 10*time.Millisecond) && f.At.D()+late < m.in.workload.Measure.D() {
			w.add("the fault %s began %v late on agent %s", f, late.Round(time.Millisecond), agent)
		}
	}
	w.addSkew(m.in.workload, m.starts)
	w.addDelivery(m, values)
	return w
}

// addLatencies adds warnings about the latencies of bindings, or about those of messages.
func (w *sentences) addLatencies(m *measurements, bindings bool) {
	for _, s := range latencySeries {
		l := m.latencies[s.name]
		if strings.HasPrefix(s.name, "binding") != bindings || l.na != "" && l.na != NABacklog && l.na != NANoSamples {
			continue
		}
		samples := "times of " + l.name
		if l.name == "e2e" {
			samples = "end-to-end latencies"
		}
		if n := l.distribution.hist.Negative(); l.across && n > 0 && (l.name == "e2e" || l.na == "") {
			w.add("%d of %d %s were negative and are excluded from quantiles: the clocks of the hosts differ",
				n, n+l.distribution.hist.Count(), samples)
		}
		if n := l.distribution.hist.Over(); n > 0 && l.na != NABacklog {
			w.add("%d %s samples exceeded the range of the histogram, one hour, and count as one hour", n, l.name)
		}
	}
}

// addNodes adds warnings about nodes that observers saw only in a part of the measurement.
func (w *sentences) addNodes(in *input, b brokerMetrics) {
	for _, n := range b.nodes {
		if b.observed && n.known < time.Duration(minAnswered*float64(in.span.length())) {
			w.add("an observer measured the processes of broker %s for %v of %v", in.task.Cell.Broker.Name,
				n.known.Round(100*time.Millisecond), in.span.length())
		}
	}
}

// addMetrics adds warnings about seconds without metrics of the broker.
func (w *sentences) addMetrics(in *input, b brokerMetrics) {
	whole := int(in.span.length() / time.Second)
	if b.probed && float64(b.answered) < minAnswered*float64(whole) {
		w.add("the broker reported its metrics %d times in a measurement of %d s: they describe only these moments",
			b.answered, whole)
	}
	if b.lacking > 0 {
		w.add("the metrics of the broker did not include all nodes %d times; these samples are excluded", b.lacking)
	}
}

func (w *sentences) addBindings(m *measurements, values map[string]plan.Value) {
	if m.in.workload.Topology.Churn.Rate <= 0 {
		return
	}
	w.addLatencies(m, true)
	perSecond, length := m.in.workload.Topology.Churn.Rate, m.in.span.sending.Seconds()
	intended, made := perSecond*length, m.in.counted(record.BindingsMade)
	if intended-made > Tolerance*intended+1 {
		w.add("configured are %s bindings per second, created were %s", display.Number(perSecond),
			display.Number(made/length))
	}
	if n := m.in.record.Total(record.BindingErrors); n > 0 {
		w.add("%d calls to create or remove a binding failed; see the events", n)
	}
	if v, n := values["binding.lost"], m.bindings.Missing; v.NA == "" && n > 0 {
		w.add("%s through a new binding %s lost after the broker had confirmed the binding", messages(n), was(n))
	}
}

// addClocks adds warnings about clocks that were stepped, and clocks that were known less accurately than the measured
// latency.
func (w *sentences) addClocks(m *measurements, values map[string]plan.Value) {
	for _, e := range m.clocks.steps {
		w.add("clock-unsafe: agent %s, %v into the measurement: %s", e.Agent, time.Duration(e.At).Round(time.Millisecond),
			e.Detail)
	}
	for _, l := range latencySeries {
		if l.across && m.clocks.coarse(values[l.name+".p50"]) {
			w.add("clock-unsafe: the uncertainty of the clocks of publishers and consumers is %v, more than the median of %s",
				m.clocks.bound.Round(time.Microsecond), l.name)
		}
	}
}

func (w *sentences) addSkew(cell plan.Workload, s starts) {
	if !s.beyond(cell) {
		return
	}
	var late []string
	for _, a := range s.agents {
		late = append(late, a.Agent+" "+a.Skew.D().Round(10*time.Microsecond).String())
	}
	const maxAgents = 10
	if len(late) > maxAgents {
		late = append(late[:maxAgents], "…")
	}
	w.add("skewed: agents started within %v, and the cell permits %v; delay of each agent: %s",
		time.Duration(s.skew.Number*1e9).Round(10*time.Microsecond), cell.Skew.D(), strings.Join(late, ", "))
}

// addDelivery adds warnings about messages, links and agents.
func (w *sentences) addDelivery(m *measurements, values map[string]plan.Value) {
	in, l := m.in, m.ledger
	if l.Foreign > 0 && in.workload.Topology.Existing != "" {
		w.add("%s that this task had not sent %s in the existing queues, and acknowledged", messages(l.Foreign),
			was(l.Foreign))
	} else if l.Foreign > 0 {
		w.add("%s of another task %s received: another program uses the same queues", messages(l.Foreign), was(l.Foreign))
	}
	if l.Uncertain > 0 {
		w.add("%s may or may not have been sent: the publish call failed", messages(l.Uncertain))
	}
	if l.Unconfirmed > 0 {
		w.add("%d of %s %s never confirmed", l.Unconfirmed, messages(l.Sent), was(l.Unconfirmed))
	}
	if l.Rejected > 0 {
		w.add("%d of %s %s rejected by the broker", l.Rejected, messages(l.Sent), was(l.Rejected))
	}
	if n := values["spread.leaders"].Number; n > 1 && in.workload.Topology.QueueNode == "spread" {
		w.add("the leaders of queues are uneven: their numbers per node differ by %.0f", n)
	}
	if t := in.workload.Topology; t.QueueNode == "spread" && t.Existing == "" && len(in.facts.Subject.Members) != 1 {
		for _, a := range in.facts.Agents {
			if a.Placement != nil && a.Placement.Unknown != "" {
				w.add("the placement of queues is not known: %s", a.Placement.Unknown)
			}
		}
	}
	if l.Dropped > 0 {
		w.add("%s %s dropped by the broker: consumers rejected them at its maximum number of deliveries", messages(l.Dropped), was(l.Dropped))
	}
	if in.task.Cell.Guarantees.Ordered && l.Reordered > 0 && in.unmarkedRedeliveries() {
		w.add("%s received after a later one: consumers disconnected, and the broker does not report whether these are redeliveries", messagesWere(l.Reordered))
	}
	w.addShortfall(m)
	reconnects, broken := in.record.Total(record.Reconnects), int64(0) // links for one message are in neither
	for _, e := range in.record.Events() {
		if e.Kind == record.EventGap {
			broken++
		}
	}
	if reconnects > 0 {
		w.add("links failed and were opened again %d times; see the events", reconnects)
	}
	if n := broken - reconnects; n > 0 {
		w.add("links that failed and were not opened again: %d; see the events", n)
	}
	if l.Undrained > 0 && in.facts.DrainCut {
		w.add("%s missing when the drain timed out after %v", messages(l.Undrained), in.workload.Drain.Timeout)
	}
	for _, a := range in.facts.Agents {
		if a.Error != "" && !strings.Contains(in.facts.Failure, a.Error) {
			w.add("agent %s in phase %s: %s", a.Agent, a.Phase, a.Error)
		}
	}
}

// addShortfall adds a warning if fewer messages were sent in the measurement than were due, with the reason. It adds
// none with a message count, because the measurement then lasts until all are sent. It also adds none for tasks that
// failed or were cancelled, whose cause is known.
func (w *sentences) addShortfall(m *measurements) {
	in := m.in
	if !in.workload.Publishers.Open() || in.span.byCount || in.facts.Failure != "" || in.facts.Cancelled {
		return
	}
	var due, failed, unsent float64 // of the measurement, whenever they were sent
	in.record.Range(func(w *record.Window) {
		if w.Measured {
			failed += float64(w.Counts[record.PublishErrors])
			unsent += float64(w.Counts[record.Unsent])
			due += float64(w.Counts[record.Sent] + w.Counts[record.PublishErrors] + w.Counts[record.Unsent])
		}
	})
	if due-in.load <= Tolerance*due+1 { // the end of the measurement may cut off one message
		return
	}
	sendDelay, blocked := in.hists[record.SendDelay].Quantile(0.99), in.hists[record.Backpressure].Quantile(0.99)
	why := fmt.Sprintf("publishers waited for the broker (back-pressure p99 %v)", roughly(blocked))
	if sendDelay > blocked {
		cause := "publishers were late" // within the limit of send delay
		if len(m.limitations) > 0 {
			cause = string(m.limitations[0].Flag)
		}
		why = fmt.Sprintf("%s (send delay p99 %v, back-pressure p99 %v)", cause, roughly(sendDelay), roughly(blocked))
	}
	if failed > 0 {
		why += fmt.Sprintf("; failed publish calls: %.0f", failed)
	}
	if unsent > 0 {
		why += fmt.Sprintf("; unsent messages: %.0f", unsent)
	}
	per := in.span.sending.Seconds()
	w.add("intended publish rate %s/s, actual %s/s: %s", display.Number(due/per), display.Number(in.load/per), why)
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
