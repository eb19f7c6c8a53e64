package engine

import (
	"context"
	"math"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// forever is a time that is never reached.
const forever = int64(1) << 62

// maxUnsent limits the unsent messages that are counted one by one, over all publishers of the agent. The others are
// counted from the rate. It bounds the time that counting takes at a rate far beyond the broker's capacity.
const maxUnsent = 10_000_000

// pacer determines when a publisher sends its next message. It attributes each delay to the broker or to the load
// generator. The publisher's goroutine owns it.
type pacer struct {
	timeline  *timeline
	schedule  *schedule        // nil: closed loop
	lifetime  *lifetime        // nil: always active
	waiting   *drivers.Waiting // time that the driver waited for the broker
	sends     *record.Recorder
	count     uint64 // messages of the measurement; 0: time ends the measurement
	maxUnsent int64
	// due returns the mean number of messages that are due until a time after the beginning of the measurement
	due func(time.Duration) float64

	waiter      clock.Waiter
	intended    int64  // intended send time of the next message, in open loop
	gap         int64  // between intended send times; moving mean over about 16
	activeUntil int64  // end of the current active period
	measured    uint64 // accepted messages that belong to the measurement

	held        int64                 // how much of the publisher's present delay the broker caused
	seenWaiting int64                 // value of waiting when it was last read
	previous    delayedMessage        // the previous message
	times       record.PublisherTimes // of the measurement so far
}

// delayedMessage is the part of the previous message from which the pacing error of the next one is computed.
type delayedMessage struct {
	own   bool // at least half of the delay was caused by the generator
	delay int64
}

// start initialises the pacer. It is called when the load starts.
func (p *pacer) start() {
	p.activeUntil = notYetKnown
	if p.schedule != nil {
		p.intended = p.timeline.next(p.schedule)
	}
}

// remaining returns the number of messages of the measurement that are still to be sent.
func (p *pacer) remaining() uint64 {
	if p.count == 0 {
		return math.MaxUint64
	}
	return p.count - min(p.measured, p.count)
}

// behind reports whether messages that were due in the measurement are still unsent.
func (p *pacer) behind() bool {
	return p.schedule != nil && p.intended < min(p.timeline.ends(), p.activeUntil) && p.remaining() > 0
}

// wait waits for the intended send time of the next message. It returns the intended and the actual send time. more is
// false if there is nothing left to send, or if ctx ended.
func (p *pacer) wait(ctx context.Context) (intended, send int64, more bool) {
	if p.remaining() == 0 {
		return 0, 0, false
	}
	send = p.timeline.now()
	measurementEnds := p.timeline.ends()
	end := min(measurementEnds, p.activeUntil)
	if p.schedule == nil {
		return send, send, send < end
	}
	intended = p.intended
	if intended >= end || send >= p.activeUntil && p.activeUntil < measurementEnds {
		return 0, 0, false
	}
	if send < intended {
		p.held = 0
		err := p.waiter.Paced(ctx, intended+p.timeline.origin.Load(), p.gap)
		began := send
		send = p.timeline.now()
		p.paused(began, send)
		if err != nil {
			return 0, 0, false
		}
		if send >= p.activeUntil && p.activeUntil < p.timeline.ends() {
			return 0, 0, false
		}
	}
	return intended, send, true
}

// sent records the delay of a message with an intended send time, and advances the schedule. A delay that the publisher
// has made up for no longer counts as caused by the broker.
func (p *pacer) sent(w *record.Window, delay int64) {
	p.held = min(delay, p.held)
	p.attribute(w, delay)
	p.recordPacing(w, delay)
	p.advance()
}

// attribute splits the delay of a message behind its intended send time. The part that the broker caused is
// back-pressure. The rest is the send delay of the generator.
func (p *pacer) attribute(w *record.Window, delay int64) {
	held := min(delay, p.held)
	w.Record(record.SendDelay, delay-held)
	w.Record(record.Backpressure, held)
}

// recordPacing records the pacing error: the difference between the actual and the scheduled time since the previous
// message. It equals the difference of their delays. Messages that the broker delayed for more than half of their delay
// are left out, because they do not measure the generator.
func (p *pacer) recordPacing(w *record.Window, delay int64) {
	own := min(delay, p.held) <= delay/2
	if own && p.previous.own {
		w.Record(record.Pacing, max(delay-p.previous.delay, p.previous.delay-delay))
	}
	p.previous = delayedMessage{own, delay}
	w.Counts[record.SpinNanos] += p.waiter.TakeSpun()
}

// advance moves to the next message of the schedule.
func (p *pacer) advance() {
	next := p.timeline.next(p.schedule)
	gap := next - p.intended
	if p.gap == 0 {
		p.gap = gap
	}
	p.gap += (gap - p.gap) / 16
	p.intended = next
}

// countUnsent counts the messages that were due in the measurement and are unsent when the drain has ended. Without
// them a stalled broker would look unaffected (coordinated omission).
func (p *pacer) countUnsent(now int64) {
	p.skip(p.timeline.ends(), min(now, p.timeline.drainEnds()), true)
}

// skip advances to the first message with an intended send time of to or later. Skipped messages count as unsent if
// they were due during the measurement while the publisher was active. Each is counted with its age at now, or at the
// end of its active period if now is earlier. With a message count, no more than the remaining messages count. skip
// stops early after maxUnsent messages if the measurement has ended: a last skip follows. If last is set, it counts the
// others from the rate.
func (p *pacer) skip(to, now int64, last bool) {
	remaining := p.remaining()
	for n := int64(0); p.schedule != nil && p.intended < to; {
		active, until := true, to
		if p.lifetime != nil {
			active, until = p.lifetime.activeAt(p.intended)
			until = min(until, to)
		}
		w := p.sends.Window(until-1, true)
		for ; p.intended < until; p.advance() {
			if n++; n > p.maxUnsent && (last || p.timeline.over.Load()) {
				if last {
					p.countRest(to, now, remaining)
				}
				return
			}
			if active && p.timeline.contains(p.intended) {
				if remaining == 0 {
					return
				}
				remaining--
				w.Counts[record.Unsent]++
				age := max(now, until) - p.intended
				w.Record(record.UnsentAge, age)
				p.attribute(w, age)
			}
		}
	}
}

// countRest counts the unsent messages that are due from p.intended until to, in steps of a thousandth of this time.
// The messages of a step have the same age.
func (p *pacer) countRest(to, now int64, remaining uint64) {
	const steps = 1000
	begin, w := p.timeline.from.Load(), p.sends.Window(to-1, true)
	step, exact := (to-p.intended)/steps+1, 0.0
	maxStep := uint64(p.maxUnsent) << 10 // a histogram has at most 2⁴⁸ samples
	for from := max(p.intended, begin); from < to; {
		active, until := true, to
		if p.lifetime != nil {
			active, until = p.lifetime.activeAt(from)
		}
		until = min(until, to, from+step)
		if active {
			exact += p.due(time.Duration(until-begin)) - p.due(time.Duration(from-begin))
			n := min(uint64(exact), remaining, maxStep)
			exact, remaining = exact-math.Floor(exact), remaining-n
			age := max(now, until) - (from+until)/2
			held := min(age, p.held)
			w.Counts[record.Unsent] += int64(n)
			w.RecordN(record.UnsentAge, age, n)
			w.RecordN(record.SendDelay, age-held, n)
			w.RecordN(record.Backpressure, held, n)
		}
		from = until
	}
}

// published records that the driver waited for the broker in a call that began at began. n is the current value of
// waiting. On a shared connection the wait may belong to another publisher's write. Only the part since began counts.
func (p *pacer) published(began, n int64) {
	p.waited(began, min(began+n-p.seenWaiting, p.timeline.now()))
}

// flushed records the time that a flush waited for the broker. before is the value of waiting when the flush began.
func (p *pacer) flushed(before int64) {
	p.seenWaiting = before
	if n := p.waiting.Nanos() - before; n > 0 {
		now := p.timeline.now()
		p.waited(now-n, now)
	}
}

// connected records the time that opening a connection for one message took. It does not count as a delay of this
// message; the caller adds it to held afterwards.
func (p *pacer) connected(from, to int64) {
	p.times.Waited += p.timeline.within(from, to)
	p.seenWaiting = p.waiting.Nanos()
}

// waited records a wait for the broker, and paused a wait for anything else. Times are ns since T0. Both mark the waits
// reported by the driver until now as accounted for.
func (p *pacer) waited(from, to int64) {
	p.held += max(0, to-from)
	p.times.Waited += p.timeline.within(from, to)
	p.seenWaiting = p.waiting.Nanos()
}

func (p *pacer) paused(from, to int64) {
	p.times.Paused += p.timeline.within(from, to)
	p.seenWaiting = p.waiting.Nanos()
}
