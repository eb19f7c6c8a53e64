package judge

import (
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// Why there is no time to drain a backlog.
const (
	NANoBuild    = "no backlog is built (consumers.presence.from)"
	NAComing     = "consumers come and go"
	NANotDrained = "not drained"
	NADrainLost  = "messages were lost, and until the end those cannot be told from what waits"
	NAFastDrain  = "drained faster than seconds can show; build a larger backlog"
)

// builds tells whether the cell means a backlog to be there: consumers join when messages wait already.
func builds(c plan.Consumers) bool { return c.Nodes > 0 && c.Presence.From > 0 }

// backlog is how many messages wait to be received, over all subscriptions, at the end of each second. What the broker returned or refused
// does not wait.
type backlog struct {
	first           int       // index of the first second
	level, received []float64 // of each second; level at its end
}

func (j *judge) levels() backlog {
	every := j.perSecond()
	b := backlog{first: every.first}
	level := 0.0
	for i := b.first; i < j.span.windows; i++ {
		s := every.at(i)
		sent := float64(j.subs) * (s.sent - s.returned - s.rejected)
		level += sent - s.unique
		b.level, b.received = append(b.level, level), append(b.received, s.unique)
	}
	return b
}

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

// earlier is how much earlier than the longest warm-up a window may be: clocks differ. What is still earlier no agent measured, and there is no room for it.
const earlier = time.Minute

// perSecond walks the record once for all that look at single seconds: a walk for each second would take hours' records minutes.
func (j *judge) perSecond() everySecond {
	if j.every.of != nil {
		return j.every
	}
	e := &j.every
	least := -int((j.w.LongestWarmup() + earlier) / time.Second)
	j.m.Range(func(w *record.Window) { e.first = max(least, min(e.first, w.Index)) })
	e.of = make([]second, max(0, j.span.windows-e.first))
	j.m.Range(func(w *record.Window) {
		if w.Index >= j.span.windows || w.Index < e.first {
			return
		}
		s := &e.of[w.Index-e.first]
		s.sent += float64(w.Counts[record.Sent])
		s.returned += float64(w.Counts[record.Returned])
		s.rejected += float64(w.Counts[record.Rejected])
		s.unique += float64(w.Counts[record.Unique])
		s.published, s.delivered = sums(s.published, w.Published), sums(s.delivered, w.Delivered)
	})
	return *e
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

// backlogs sets the values of a backlog: how large it was and, where it was built on purpose, how it went away.
func (j *judge) backlogs() {
	names := []string{"backlog.most", "backlog.drain", "catchup.rate"}
	why := ""
	switch {
	case j.subs == 0:
		why = NANoConsumers
	case j.counted(record.Sent) == 0:
		why = NANotMeasured
	}
	if why != "" {
		for _, name := range names {
			j.na(name, why)
		}
		return
	}
	b := j.levels()
	j.number("backlog.most", b.most())
	c := j.w.Consumers
	switch {
	case !builds(c):
		why = NANoBuild
	case c.Presence.Stay > 0 || c.Presence.To > 0:
		why = NAComing
	}
	if why != "" {
		j.na("backlog.drain", why)
		j.na("catchup.rate", why)
		return
	}
	from, to, normal := c.Presence.From.D().Seconds(), j.span.sending.Seconds(), j.inFlight()
	d := b.drain(from, to, normal)
	switch {
	case !d.gone && b.drain(from, to, normal+float64(j.out.Ledger.Lost)).gone:
		j.na("backlog.drain", NADrainLost)
		j.na("catchup.rate", NADrainLost)
		return
	case !d.gone:
		j.na("backlog.drain", NANotDrained, plan.Backlog)
		d.last = 0
	default: // it was gone at any time in the last second
		j.out.Values["backlog.drain"] = plan.Value{Number: d.took - d.last/2, Bound: d.last / 2}
	}
	switch {
	case d.took > d.last:
		j.number("catchup.rate", d.received/(d.took-d.last))
	case d.gone:
		j.na("catchup.rate", NAFastDrain)
	default:
		j.na("catchup.rate", NANoSamples)
	}
}

// edge is how long one side may stand still without that being a backlog.
const edge = 50 * time.Millisecond

// inFlight is how many messages are on their way while consumers keep up: what is published in 50 ms and the simulated round trip, and what publishers send
// at once and then wait.
func (j *judge) inFlight() float64 {
	p := j.w.Publishers
	publishers := float64(p.Nodes * p.Threads)
	each := 1.0
	switch {
	case p.Mode == "confirm-batch":
		each += float64(p.Batch.Most)
	case p.Mode == "confirm-window" && p.OnFull == "pause":
		each += float64(p.Window)
	}
	away := edge + j.w.Network.Latency.D() + j.w.Network.Jitter.D()
	return float64(j.subs) * (j.counted(record.Sent)*away.Seconds()/j.span.sending.Seconds() + publishers*each)
}

// failures sets how often sending failed, by kind, and what consumers refused.
func (j *judge) failures() {
	all, closed, timeouts := j.m.Total(record.PublishErrors), j.m.Total(record.ClosedErrors), j.m.Total(record.Timeouts)
	j.number("errors.closed", float64(closed))
	j.number("errors.timeout", float64(timeouts))
	j.number("errors.other", float64(all-closed-timeouts))
	if j.subs == 0 {
		j.na("nacked", NANoConsumers)
	} else {
		j.number("nacked", float64(j.m.Total(record.Nacked)))
	}
	j.number("joins", float64(j.m.Total(record.Joins)))
	j.number("leaves", float64(j.m.Total(record.Leaves)))
}

// bytesRates sets what was sent and received in bytes.
func (j *judge) bytesRates() {
	j.rate("send.bytes", record.SentBytes)
	if j.subs == 0 {
		j.na("receive.bytes", NANoConsumers)
		return
	}
	j.rate("receive.bytes", record.ReceivedBytes)
}
