package judge

import (
	"math"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/stats"
)

// Why there is no time to drain a backlog.
const (
	NANoBuild    = "no backlog is built (consumers.lifetime.connectAt)"
	NAComing     = "consumers come and go"
	NANotDrained = "not drained"
	NADrainLost  = "messages were lost, and until the end those cannot be told from what waits"
	NAFastDrain  = "drained faster than seconds can show; build a larger backlog"
)

const (
	// Tolerance is the part of the publish rate by which the consume rate may differ where tables show one rate, and by
	// which a backlog may grow.
	Tolerance = 0.02
	// falseFlags is the probability that a flag is raised on a stationary load.
	falseFlags = 0.01
	// minLevels is how many levels of a backlog are tested, where there are seconds of warm-up to take them from. Three
	// are tested at least: the error of a slope through two is not known.
	minLevels = 5
	// shortTolerance is the part of the published messages that may be undelivered at the end of a measurement too
	// short for a slope.
	shortTolerance = 0.25
	// edge is how long one side may stand still without that being a backlog.
	edge = 50 * time.Millisecond
	// earlier is how much earlier than the longest warm-up a window may be: clocks differ. What is still earlier no
	// agent measured, and there is no room for it.
	earlier = time.Minute
)

// builds reports whether the cell means a backlog to be there: consumers join when messages wait already.
func builds(c plan.Consumers) bool { return c.Nodes > 0 && c.Lifetime.ConnectAt > 0 }

// second is what was counted in one second, whether it was measured or not.
type second struct {
	sent, returned, rejected, unique float64
	published, delivered             []int64 // see record.Window
}

// everySecond are those from the first of the record to the end of the measurement.
type everySecond struct {
	first int // index
	of    []second
}

func (e everySecond) at(index int) second { return e.of[index-e.first] }

// perSecond walks the record once for all that look at single seconds: a walk for each second would take hours' records
// minutes.
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

// sums adds counts to what they are so far, at each index.
func sums(sum, counts []int64) []int64 {
	if more := len(counts) - len(sum); more > 0 {
		sum = append(sum, make([]int64, more)...)
	}
	for i, n := range counts {
		sum[i] += n
	}
	return sum
}

// flowSecond is what was published and delivered in one second of a flow.
type flowSecond struct{ published, delivered float64 }

// whole is what was published to, and delivered by, so many subscriptions.
func (e everySecond) whole(subscriptions int) []flowSecond {
	all := make([]flowSecond, len(e.of))
	for i, s := range e.of {
		all[i] = flowSecond{float64(subscriptions) * (s.sent - s.returned), s.unique}
	}
	return all
}

// flow is the same of one flow, to whose number so many belong.
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

// keepsUp reports whether consumers kept up with publishers: something was delivered, and no backlog grew. Backlogs are
// the messages that were published and not yet delivered: of the cell, and of each of its flows, the messages to one
// queue of one subscription. What was lost or refused counts as not delivered; what the broker returned as unroutable,
// which no consumer can receive, was not published.
//
// A backlog grows if the interval of the slope of its levels, at the ends of seconds, lies above 2 % of the publish
// rate. The one-sided confidence is 99 % for all backlogs of the cell together (Bonferroni). The levels are those of
// the seconds in which all agents ran, with the last seconds of warm-up where those are fewer than five. A slope
// through fewer than five levels is hardly known, and its error through two not at all: then the backlog of the cell
// also grows if a quarter less was delivered than published.
func keepsUp(in *input, every everySecond) bool {
	from, to := in.overlap.from, in.overlap.to
	if in.span.byCount { // when it ended within a second, how much was delivered by then is not known
		to = min(to, int(in.span.sending/time.Second))
	}
	delivered := 0.0
	for i := max(from, every.first); i < to; i++ {
		delivered += every.at(i).unique
	}
	if to > from && delivered == 0 {
		return false
	}
	whole := every.whole(in.subscriptions)
	first := max(every.first, min(from, to-minLevels))
	if to-first < minLevels {
		var all flowSecond
		for i := max(from, every.first); i < min(to, every.first+len(whole)); i++ {
			s := whole[i-every.first]
			all.published, all.delivered = all.published+s.published, all.delivered+s.delivered
		}
		if short := all.delivered < (1-shortTolerance)*all.published; short || to-first < 3 {
			return !short
		}
	}
	from = first
	backlogs := [][]flowSecond{whole}
	if flows := record.FlowsOf(in.subscriptions, in.workload.Topology.Queues); flows.Subscriptions*flows.Queues > 1 {
		for subscription := range flows.Subscriptions {
			alike := (in.subscriptions-1-subscription)/flows.Subscriptions + 1
			for queue := range flows.Queues {
				backlogs = append(backlogs, every.flow(flows, subscription, queue, float64(alike)))
			}
		}
	}
	for _, b := range backlogs {
		if grows(b[:to-every.first], from-every.first, in.span.sending.Seconds()-float64(every.first),
			falseFlags/float64(len(backlogs))) {
			return false
		}
	}
	return true
}

// grows reports whether a backlog grows over its seconds from one on, the last of which ends at an end, with a
// probability of error.
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
	// Messages on their way vary at least as a Poisson process does.
	counting := stats.NormalQuantile(falsely) * math.Sqrt(max(1, l.level)/l.xx)
	rate := published / (x[len(x)-1] - float64(from))
	return l.slope-max(l.uncertainty(falsely), counting) > Tolerance*rate
}

// backlog is how many messages wait to be received, over all subscriptions, at the end of each second. What the broker
// returned or refused does not wait.
type backlog struct {
	first           int       // index of the first second
	level, received []float64 // of each second; level at its end
}

func backlogOf(in *input, every everySecond) backlog {
	b := backlog{first: every.first}
	level := 0.0
	for i := b.first; i < in.span.windows; i++ {
		s := every.at(i)
		level += float64(in.subscriptions)*(s.sent-s.returned-s.rejected) - s.unique
		b.level, b.received = append(b.level, level), append(b.received, s.unique)
	}
	return b
}

// most is the highest level, 0 if it was never above.
func (b backlog) most() (most float64) {
	for _, l := range b.level {
		most = max(most, l)
	}
	return most
}

// drained is how a backlog went away, or did not.
type drained struct {
	took, last float64 // seconds, to the end of the last one, and the length of that
	received   float64 // messages in the seconds before the last
	gone       bool
	goneOrLost bool // it would be gone without the messages that were lost
}

// drain follows the backlog from a time (seconds) on, to the end of the first second in which it is at most what is
// normally in flight, or to the end of the measurement.
func (b backlog) drain(join, end, normal float64) (d drained) {
	for i := max(0, int(join)-b.first); i < len(b.level) && !d.gone; i++ {
		begins, ends := max(join, float64(b.first+i)), min(end, float64(b.first+i+1))
		d.took, d.last, d.gone = ends-join, ends-begins, b.level[i] <= normal
		if !d.gone {
			d.received += b.received[i]
		}
	}
	return d
}

// drainOf is the drain of the backlog from when consumers joined.
func (b backlog) drainOf(in *input, lost uint64) drained {
	from, to, normal := in.workload.Consumers.Lifetime.ConnectAt.D().Seconds(), in.span.sending.Seconds(), in.inFlight()
	d := b.drain(from, to, normal)
	d.goneOrLost = b.drain(from, to, normal+float64(lost)).gone
	return d
}

// noDrain is why it is not known how a backlog went away; empty if it is.
func noDrain(m *measurements) string {
	c := m.in.workload.Consumers
	switch {
	case m.in.sent == 0:
		return NANotMeasured
	case !builds(c):
		return NANoBuild
	case c.Lifetime.Stay > 0 || c.Lifetime.DisconnectAt > 0:
		return NAComing
	case !m.drain.gone && m.drain.goneOrLost:
		return NADrainLost
	}
	return ""
}

// backlogDrain is when a backlog was gone: at any time in the last second.
func backlogDrain(m *measurements) plan.Value {
	d := m.drain
	switch why := noDrain(m); {
	case why != "":
		return plan.Value{NA: why}
	case !d.gone:
		return plan.Value{NA: NANotDrained}
	}
	return plan.Value{Number: d.took - d.last/2, Bound: d.last / 2}
}

// catchUpRate is the rate in the whole seconds before the last one, or until the end where the backlog was not gone.
func catchUpRate(m *measurements) plan.Value {
	d := m.drain
	if !d.gone {
		d.last = 0
	}
	switch why := noDrain(m); {
	case why != "":
		return plan.Value{NA: why}
	case d.took > d.last:
		return plan.Value{Number: d.received / (d.took - d.last)}
	case d.gone:
		return plan.Value{NA: NAFastDrain}
	}
	return plan.Value{NA: NANoSamples}
}

// inFlight is how many messages are on their way while consumers keep up: what is published in 50 ms and the simulated
// round trip, and what publishers send at once and then wait.
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
	return float64(in.subscriptions) * (in.sent*away.Seconds()/in.span.sending.Seconds() + publishers*each)
}
