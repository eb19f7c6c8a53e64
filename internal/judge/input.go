package judge

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// input is everything from which a task, or one group of it, is evaluated. It does not change after newInput.
type input struct {
	task          plan.Task
	workload      plan.Workload // of the task
	record        *record.Merged
	hists         map[record.Series]*record.Hist // over the measurement; read-only
	facts         Facts                          // with the clock of each agent
	clocks        map[string]string              // by agent; read-only
	cut           time.Duration                  // result of Cut
	cell          *input                         // input of the whole cell; without groups, this input
	subscriptions int                            // subscriptions with consumers
	span          span
	overlap       overlap
	load          float64 // messages sent in the measurement; without publishers, received
	accounting    func() record.Accounting
	undrained     func() Undrained
}

// newInput prepares the evaluation of a task whose record is rebased. cell is nil for a task without groups.
func newInput(t plan.Task, m *record.Merged, f Facts, cut time.Duration, cell *input) *input {
	clocks := m.Clocks()
	f.Agents = slices.Clone(f.Agents)
	for i := range f.Agents { // the facts or the record may lack a clock
		a := &f.Agents[i]
		a.Clock = cmp.Or(a.Clock, clocks[a.Agent])
		clocks[a.Agent] = cmp.Or(clocks[a.Agent], a.Clock)
	}
	in := &input{task: t, workload: t.Cell.Workload, record: m, hists: map[record.Series]*record.Hist{}, facts: f,
		clocks: clocks, cut: cut, cell: cell}
	if cell == nil {
		in.cell = in
	}
	if in.workload.Consumers.Nodes > 0 {
		in.subscriptions = max(1, in.workload.Topology.Subscriptions)
	}
	for _, s := range record.AllSeries() {
		in.hists[s] = m.Hist(s)
	}
	in.addBindings()
	// reading a large ledger is expensive: do it once
	in.accounting = sync.OnceValue(func() record.Accounting { return m.Accounting(in.subscriptions) })
	in.undrained = sync.OnceValue(func() Undrained {
		return UndrainedOf(in.workload, m, ledgerOf(in), in.facts.DrainCut)
	})
	in.span = spanOf(in.workload, m)
	in.overlap = in.overlapOf()
	in.load = in.counted(record.Sent)
	if !in.publishes() {
		in.load = in.counted(record.Unique)
	}
	return in
}

// bindingFirst stands for the first deliveries through bindings. The record has them one by one, not as a series.
const bindingFirst = record.Series(math.MaxUint8)

// addBindings adds the latencies of bindings that were due, and of messages that were sent, in the measurement. If
// another agent had the first delivery of a binding, the first delivery on this agent counts as a further message.
func (in *input) addBindings() {
	first, further := record.NewHist(), in.hists[record.BindingMessage].Clone()
	measured := func(at int64) bool { return at >= 0 && at < int64(in.workload.Measure.D()) }
	one, others := in.record.BindingDeliveries()
	for _, r := range one {
		if measured(r.Called) {
			first.Record(r.At - r.Called)
		}
	}
	for _, r := range others {
		if measured(r.Sent) {
			further.Record(r.At - r.Sent)
		}
	}
	in.hists[bindingFirst], in.hists[record.BindingMessage] = first, further
}

// span is the duration of the measurement.
type span struct {
	byCount   bool
	windows   int           // windows 0 … windows-1 of the record are the measurement
	sending   time.Duration // 0: nothing was measured
	receiving time.Duration
}

// spanOf returns the span of a cell. Normally it is the configured duration. With a message count, sending ends with
// the last confirm, or the last send in unconfirmed modes. Receiving ends with the last delivery. Without publishers,
// the measurement ends with the last delivery. Rates refer to the overlap of the agents, not to the span.
func spanOf(w plan.Workload, m *record.Merged) span {
	s := span{windows: seconds(w.Measure.D()), sending: w.Measure.D(), receiving: w.Measure.D()}
	if w.Publishers.Nodes == 0 && len(w.Groups) == 0 {
		s.receiving = min(s.receiving, max(0, time.Duration(m.Last().Delivery)))
		s.windows, s.sending = seconds(s.receiving), s.receiving
		return s
	}
	if w.Publishers.Count == 0 {
		return s
	}
	s.byCount = true
	last := m.Last().Send
	if w.Publishers.Confirmed() {
		last = max(last, m.Last().Confirm)
	}
	s.sending = max(0, time.Duration(last))
	s.receiving = max(0, time.Duration(m.Last().Delivery))
	s.windows = seconds(s.sending)
	return s
}

// length returns the duration of the measurement including deliveries.
func (s span) length() time.Duration { return max(s.sending, s.receiving) }

// seconds returns the number of one-second windows in d; the last one may be shorter.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// overlap is the part of the measurement in which all agents ran: windows from … to-1.
type overlap struct {
	from, to int
	length   time.Duration // 0: there was none
}

// overlapOf returns the overlap in whole windows. It begins when the last agent has started, if that is later than
// warm-up by more than the permitted skew. It ends when the first agent was lost, or last reported in an aborted task.
// The last window of a lost agent may be incomplete and is left out. Agents are those of the whole cell, because rates
// of groups are added up and must cover the same time.
//
// With a message count, an agent ends when it has sent its messages, and in confirmed modes when they are confirmed. If
// all end within 2 % of the measurement, the overlap is the whole measurement. Otherwise it ends with the first agent.
func (in *input) overlapOf() overlap {
	o := overlap{to: in.span.windows}
	if in.span.byCount {
		for _, l := range in.record.LastOfEach() {
			ends := time.Duration(l.Send)
			if in.workload.Publishers.Confirmed() {
				ends = max(ends, time.Duration(l.Confirm))
			}
			if l.Send != 0 && float64(ends) < (1-Tolerance)*float64(in.span.sending) {
				o.to = min(o.to, int(ends/time.Second))
			}
		}
	}
	o.from = MeasuredFrom(in.workload, in.cut, in.cell.record)
	reportedUntil := in.cell.record.ReportedUntil()
	for _, a := range in.cell.facts.Agents {
		at, reported := reportedUntil[a.Agent]
		whole := int(max(0, at) / int64(time.Second))
		switch {
		case a.Lost && reported:
			o.to = min(o.to, whole-1)
		case a.Lost:
			o.to = 0
		case reported && (in.facts.Failure != "" || in.facts.Cancelled):
			o.to = min(o.to, whole)
		}
	}
	o.length = time.Duration(o.to-o.from) * time.Second
	if o.to == in.span.windows { // the last window may be shorter
		o.length = in.span.sending - time.Duration(o.from)*time.Second
	}
	o.length = max(0, o.length)
	return o
}

// warmup returns how long the load ran before the measurement.
func (in *input) warmup() time.Duration { return in.workload.Warmup.D() + in.cut }

// MeasuredFrom returns the second in which Outcome.Measured begins: when all agents run. cut is Outcome.Cut.
func MeasuredFrom(w plan.Workload, cut time.Duration, m *record.Merged) (from int) {
	for _, skew := range m.Skews() {
		if late := skew - w.Warmup.D() - cut; late > w.Skew.D() {
			from = max(from, seconds(late))
		}
	}
	return from
}

// counted returns a counter over the measurement. With a message count it includes later events of the measurement's
// messages.
func (in *input) counted(c record.Counter) float64 {
	if !in.span.byCount {
		return float64(in.record.Sum(c, 0, in.span.windows))
	}
	var n int64
	in.record.Range(func(w *record.Window) {
		if w.Measured {
			n += w.Counts[c]
		}
	})
	return float64(n)
}

// total returns a counter over the whole task.
func (in *input) total(c record.Counter) float64 { return float64(in.record.Total(c)) }

// drainCut reports whether the drain ended before it was idle.
func (in *input) drainCut() bool {
	return in.facts.DrainCut || in.facts.Failure != "" || in.facts.Cancelled
}

// degraded reports whether an agent was lost.
func (in *input) degraded() bool {
	return slices.ContainsFunc(in.facts.Agents, func(a plan.AgentPart) bool { return a.Lost })
}

// roles returns the agents that publish and those that consume, by index, as plan.Assign distributes them.
func (in *input) roles() (publishers, consumers []plan.AgentPart) {
	first := in.workload.Publishers.Nodes
	if in.workload.Consumers.Colocate {
		first = 0
	}
	for _, a := range in.facts.Agents {
		if a.Index < in.workload.Publishers.Nodes {
			publishers = append(publishers, a)
		}
		if a.Index >= first && a.Index < first+in.workload.Consumers.Nodes {
			consumers = append(consumers, a)
		}
	}
	return publishers, consumers
}

// inFlight returns how many messages are normally undelivered while consumers keep up. These are the messages of 50 ms
// plus the simulated round trip, and those that publishers send in one burst.
func (in *input) inFlight() float64 {
	p := in.workload.Publishers
	publishers := float64(p.Nodes * p.Threads)
	each := 1.0
	switch {
	case p.Mode == "confirm-batch":
		each += float64(p.Batch.Max)
	case p.Mode == "confirm-window" && p.OnFull == "pause":
		each += float64(p.MaxInFlight)
	}
	away := edge + in.workload.Network.Latency.D() + in.workload.Network.Jitter.D()
	return float64(in.subscriptions) * (in.load*away.Seconds()/in.span.sending.Seconds() + publishers*each)
}

// publishes reports whether the cell has publishers.
func (in *input) publishes() bool {
	return in.workload.Publishers.Nodes > 0 || len(in.workload.Groups) > 0
}

// A simulated latency is as configured if its median exceeds the configured one by at most one of these.
const (
	latencyPart = 0.05 // fraction of the configured latency
	latencyOff  = 100 * time.Microsecond
)

// latencyOff reports whether the simulated network added more latency than configured.
func (in *input) latencyOff() bool {
	configured := in.workload.Network.Latency.D()
	off := in.addedLatency(0.5) - configured
	return off > latencyOff && float64(off) > math.Round(latencyPart*float64(configured))
}

// intervals merges the windows of the measurement's messages into full intervals. Intervals without samples are left
// out. A sample belongs to the interval in which it ended. Samples that ended in the drain belong to the last interval,
// so that a stall until then is not hidden. Undrained messages belong to it, too. If the measurement ends within an
// interval, these samples are left out: they may belong to the incomplete interval.
func (in *input) intervals(s record.Series) []distribution {
	size := max(1, seconds(in.workload.Interval.D()))
	full := int(in.span.sending / (time.Duration(size) * time.Second))
	byInterval := make([][]record.Window, full)
	whole := full*size == in.span.windows
	for _, w := range in.record.Windows() {
		i := w.Index / size
		if whole && full > 0 {
			i = min(i, full-1)
		}
		if w.Measured && w.Index >= 0 && i < full {
			byInterval[i] = append(byInterval[i], w)
		}
	}
	var some []distribution
	for i, windows := range byInterval {
		var undrained Undrained
		if whole && i == full-1 {
			undrained = in.undrained()
		}
		hist := func(of record.Series) *record.Hist { return record.HistOf(of, windows) }
		if all, answered := WithUnanswered(s, hist, in.subscriptions, undrained); all.Count() > 0 {
			some = append(some, distribution{all, answered})
		}
	}
	return some
}

// limit returns the time that may be added to the first of these latencies that has samples. known is false if none
// has.
func (in *input) limit(latencies ...record.Series) (limit time.Duration, known bool) {
	for _, s := range latencies {
		if of := in.hists[s]; of.Count() > 0 {
			return max(minLate, time.Duration(lateShare*float64(of.Quantile(0.99)))), true
		}
	}
	return minLate, false
}

// absent returns why a task cannot have a value of these traits; empty if it can.
func (in *input) absent(t plan.Traits) string {
	switch {
	case t.Has(plan.NeedsChurn) && in.workload.Topology.Churn.Rate <= 0:
		return NANoChurn
	case t&plan.AnyPublishers != 0 && !in.publishes():
		return NANoPublishers
	case t.Has(plan.NeedsRate) && !in.workload.Publishers.Open():
		return NAClosedLoop
	case t.Has(plan.NeedsConfirms) && !in.workload.Publishers.Confirmed():
		if in.workload.Publishers.Mode == "fire-and-forget" {
			return NAFireAndForget
		}
		return NANoConfirms
	case t.Has(plan.NeedsConsumers) && in.subscriptions == 0:
		return NANoConsumers
	}
	return ""
}

// addedLatency returns the configured latency plus twice the measured one-way delay.
func (in *input) addedLatency(q float64) time.Duration {
	return in.workload.Network.Latency.D() + 2*time.Duration(in.hists[record.NetworkDelay].Quantile(q))
}

// unmarkedRedeliveries reports whether reordered messages may be redeliveries that the broker does not mark. When a
// consumer disconnects, its unacknowledged messages go to other consumers of the queue.
func (in *input) unmarkedRedeliveries() bool {
	c := in.workload.Consumers
	return c.Lifetime != plan.Lifetime{} && c.Nodes*c.Threads > in.workload.Topology.Queues &&
		in.record.Total(record.Redelivered) == 0
}

// republished reports whether messages were published again after a failure. They may be delivered twice, or after
// later ones. The declared guarantees already include what the retries of client libraries can do.
func (in *input) republished() bool { return in.record.Total(record.Republished) > 0 }
