package judge

import (
	"math"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/stats"
)

// Reasons for no drain time of a backlog.
const (
	NANoBuild    = "no backlog is built (consumers.lifetime.connectAt)"
	NALifetimes  = "consumers connect and disconnect repeatedly"
	NANotDrained = "not drained"
	NADrainLost  = "lost messages cannot be distinguished from waiting messages before the end"
	NAFastDrain  = "drained within one or two seconds; build a larger backlog"
)

const (
	// Tolerance is the fraction of the publish rate by which the consume rate may differ before tables show both. It is
	// also the fraction of the publish rate by which a backlog may grow.
	Tolerance = 0.02
	// falseFlags is the probability of a flag on a stationary load.
	falseFlags = 0.01
	// minLevels is the number of levels of a backlog that are tested. Seconds of warm-up complete a shorter
	// measurement. The minimum is three, because the error of a slope through two points is not defined.
	minLevels = 5
	// shortTolerance is the fraction of published messages that may be undelivered at the end of a measurement too
	// short for a slope.
	shortTolerance = 0.25
	// utilisation is that of a queue whose waiting messages are no backlog: n or more messages wait with the
	// probability utilisation^n (M/M/1). A flow of a short measurement may have that many more undelivered messages.
	utilisation = 0.8
	// edge is the time for which publishers or consumers may pause without a backlog.
	edge = 50 * time.Millisecond
	// earlier extends the longest warm-up backwards, because clocks differ. Windows before that are ignored: they are
	// not plausible, and would use memory.
	earlier = time.Minute
)

// builds reports whether the cell builds a backlog on purpose: consumers connect when messages already wait.
func builds(c plan.Consumers) bool { return c.Nodes > 0 && c.Lifetime.ConnectAt > 0 }

// second holds the counts of one second, of measured and other messages.
type second struct {
	sent, returned, rejected, unique float64
	published, delivered             []int64 // see record.Window
}

// everySecond holds the seconds from the beginning of the record to the end of the measurement.
type everySecond struct {
	first int // index
	of    []second
}

// perSecond sums the windows of all agents per second, in one pass. A pass per second would take minutes for a record
// of hours.
func perSecond(in *input) (e everySecond) {
	first := -int((in.workload.LongestWarmup() + earlier) / time.Second)
	in.record.Range(func(w *record.Window) { e.first = max(first, min(e.first, w.Index)) })
	e.of = make([]second, max(0, in.span.windows-e.first))
	in.record.Range(func(w *record.Window) {
		if w.Index >= in.span.windows || w.Index < e.first {
			return
		}
		s := &e.of[w.Index-e.first]
		s.sent += float64(w.Counts[record.Sent])
		s.returned += float64(w.Counts[record.Returned])
		s.rejected += float64(w.Counts[record.Rejected])
		s.unique += float64(w.Counts[record.Unique])
		s.published, s.delivered = sums(s.published, w.Published), sums(s.delivered, w.Delivered)
	})
	return e
}

// sums adds counts to sum, index by index.
func sums(sum, counts []int64) []int64 {
	if more := len(counts) - len(sum); more > 0 {
		sum = append(sum, make([]int64, more)...)
	}
	for i, n := range counts {
		sum[i] += n
	}
	return sum
}

// flowSecond holds the messages published to and delivered from a flow in one second.
type flowSecond struct{ published, delivered float64 }

// whole returns the seconds of all flows together.
func (e everySecond) whole(subscriptions int) []flowSecond {
	all := make([]flowSecond, len(e.of))
	for i, s := range e.of {
		all[i] = flowSecond{float64(subscriptions) * (s.sent - s.returned), s.unique}
	}
	return all
}

// flow returns the seconds of one flow. alike is the number of subscriptions that share the flow's number.
func (e everySecond) flow(flows record.Flows, subscription, queue int, alike float64) []flowSecond {
	of := func(counts []int64, i int) float64 {
		if i >= len(counts) {
			return 0
		}
		return float64(counts[i])
	}
	all := make([]flowSecond, len(e.of))
	for i, s := range e.of {
		all[i] = flowSecond{alike * of(s.published, flows.Of(0, queue)), of(s.delivered, flows.Of(subscription, queue))}
	}
	return all
}

// keepsUp reports whether consumers kept up with publishers: something was delivered, and no backlog grew. A backlog is
// the number of messages published and not yet delivered. There is one for the cell, and one for each flow: the
// messages to one queue of one subscription. Lost and rejected messages count as not delivered. Messages that the
// broker returned as unroutable count as not published.
//
// A backlog grows if the confidence interval of the slope of its levels lies above 2 % of the publish rate. Levels are
// taken at the ends of seconds. The one-sided confidence is 99 % for all backlogs of the cell together (Bonferroni).
// The levels are those of the seconds in which all agents ran. If these are fewer than five, the last seconds of
// warm-up are added. With fewer than five levels, a backlog also grows if a quarter less was delivered than published.
// With fewer than three levels, only this second rule applies.
func keepsUp(in *input, every everySecond) bool {
	from, to := in.overlap.from, in.overlap.to
	if in.span.byCount { // by count, the deliveries of an incomplete last second are not known
		to = min(to, int(in.span.sending/time.Second))
	}
	whole := every.whole(in.subscriptions)
	measured := func(b []flowSecond) []flowSecond {
		begin := min(max(0, from-every.first), len(b))
		return b[begin:max(begin, to-every.first)]
	}
	if to > from && sumOf(measured(whole)).delivered == 0 {
		return false
	}
	backlogs := [][]flowSecond{whole}
	if flows := record.FlowsOf(in.subscriptions, in.workload.Topology.Queues); flows.Subscriptions*flows.Queues > 1 {
		for subscription := range flows.Subscriptions {
			alike := (in.subscriptions-1-subscription)/flows.Subscriptions + 1
			for queue := range flows.Queues {
				backlogs = append(backlogs, every.flow(flows, subscription, queue, float64(alike)))
			}
		}
	}
	falsely := falseFlags / float64(len(backlogs))
	first := max(every.first, min(from, to-minLevels))
	if to-first < minLevels {
		waiting := 0.0 // of the whole cell, a quarter is more than what waits in a queue
		for _, b := range backlogs {
			if sum := sumOf(measured(b)); sum.published-sum.delivered > shortTolerance*sum.published+waiting {
				return false
			}
			waiting = math.Log(falsely) / math.Log(utilisation)
		}
	}
	if to-first < 3 {
		return true
	}
	for _, b := range backlogs {
		if grows(b[:to-every.first], first-every.first, in.span.sending.Seconds()-float64(every.first), falsely) {
			return false
		}
	}
	return true
}

// sumOf returns the sum of seconds.
func sumOf(seconds []flowSecond) (sum flowSecond) {
	for _, s := range seconds {
		sum.published, sum.delivered = sum.published+s.published, sum.delivered+s.delivered
	}
	return sum
}

// grows reports whether a backlog grows from second from on. The last second ends at end. falsely is the one-sided
// error probability.
func grows(seconds []flowSecond, from int, end, falsely float64) bool {
	var x, levels []float64
	level, published := 0.0, 0.0
	for i, s := range seconds {
		level += s.published - s.delivered
		if i >= from {
			x, levels = append(x, min(float64(i+1), end)), append(levels, level)
			published += s.published
		}
	}
	l := fit(x, levels)
	// The number of messages in transit varies at least like a Poisson process.
	counting := stats.NormalQuantile(falsely) * math.Sqrt(max(1, l.level)/l.xx)
	rate := published / (x[len(x)-1] - float64(from))
	return l.slope-max(l.uncertainty(falsely), counting) > Tolerance*rate
}

// backlog is the number of messages that wait for delivery, over all subscriptions, at the end of each second. Messages
// that the broker returned or rejected do not wait.
type backlog struct {
	first           int       // index of the first second
	level, received []float64 // per second; level is that at its end
}

func backlogOf(in *input, every everySecond) backlog {
	b := backlog{first: every.first}
	level := 0.0
	for _, s := range every.of {
		level += float64(in.subscriptions)*(s.sent-s.returned-s.rejected) - s.unique
		b.level, b.received = append(b.level, level), append(b.received, s.unique)
	}
	return b
}

// maxBacklog returns the highest level, or 0 if no level is positive.
func maxBacklog(m *measurements) plan.Value {
	if m.in.load == 0 {
		return plan.Value{NA: NANotMeasured}
	}
	highest := 0.0
	for _, l := range m.backlog.level {
		highest = max(highest, l)
	}
	return plan.Value{Number: highest}
}

// drained describes how a backlog was drained.
type drained struct {
	took, last    float64 // seconds until the end of the last one, and the length of the last one
	received      float64 // messages in the seconds before the last one
	emptied       bool
	emptiedOrLost bool // it would be gone if lost messages did not count
}

// drain follows the backlog from the time join on. It ends with the first second at whose end no more than normal
// messages wait, or with the measurement. Times are in seconds.
func (b backlog) drain(join, end, normal float64) (d drained) {
	for i := max(0, int(join)-b.first); i < len(b.level) && !d.emptied; i++ {
		begins, ends := max(join, float64(b.first+i)), min(end, float64(b.first+i+1))
		d.took, d.last, d.emptied = ends-join, ends-begins, b.level[i] <= normal
		if !d.emptied {
			d.received += b.received[i]
		}
	}
	return d
}

// noDrain returns why the drain time is not known; empty if it is.
func noDrain(m *measurements) string {
	c := m.in.workload.Consumers
	switch {
	case m.in.load == 0:
		return NANotMeasured
	case !builds(c):
		return NANoBuild
	case c.Lifetime.Stay > 0 || c.Lifetime.DisconnectAt > 0:
		return NALifetimes
	case !m.drain.emptied && m.drain.emptiedOrLost:
		return NADrainLost
	}
	return ""
}

// backlogDrain returns the time to drain the backlog. It ended at an unknown time within the last second.
func backlogDrain(m *measurements) plan.Value {
	d := m.drain
	switch why := noDrain(m); {
	case why != "":
		return plan.Value{NA: why}
	case !d.emptied:
		return plan.Value{NA: NANotDrained}
	}
	return plan.Value{Number: d.took - d.last/2, Bound: d.last / 2}
}

// catchUpRate returns the consume rate in the seconds before the last one, or until the end if the backlog did not
// drain.
func catchUpRate(m *measurements) plan.Value {
	d := m.drain
	if !d.emptied {
		d.last = 0
	}
	switch why := noDrain(m); {
	case why != "":
		return plan.Value{NA: why}
	case d.took > d.last:
		return plan.Value{Number: d.received / (d.took - d.last)}
	case d.emptied:
		return plan.Value{NA: NAFastDrain}
	}
	return plan.Value{NA: NANoSamples}
}

// distinct returns the seconds without the deliveries of messages that another consumer had received before. They would
// hide a backlog if as many messages are missing. Only their total is known, so that each second loses the same share.
// Nothing is subtracted unless more messages are missing than a backlog may grow by. If none are missing, nothing is
// hidden, and a burst of redeliveries must not appear as a backlog before it.
func distinct(in *input, l plan.Ledger, every everySecond) everySecond {
	unique := in.total(record.Unique)
	share := 1 - float64(l.Received)/max(1, unique)
	if share <= 0 || float64(l.Lost+l.Undrained) <= Tolerance*float64(l.Sent)*float64(in.subscriptions) {
		return every
	}
	of := make([]second, len(every.of))
	for i, s := range every.of {
		s.unique *= 1 - share
		of[i] = s
	}
	return everySecond{every.first, of}
}
