package engine

import (
	"context"
	"math"

	"lockstep/internal/clock"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// forever is a time that does not come.
const forever = int64(1) << 62

// maxUnsent bounds the time that counting unsent messages takes, over all publishers of the agent, at a rate that
// nothing could reach.
const maxUnsent = 10_000_000

// pacer decides when a publisher sends its next message, and attributes each delay to the broker or to the load
// generator. The publisher's goroutine owns it.
type pacer struct {
	timeline  *timeline
	schedule  Schedule         // nil: closed loop
	lifetime  *lifetime        // nil: always active
	waiting   *drivers.Waiting // the time that the driver waited for the broker
	sends     *record.Recorder
	count     uint64 // messages of the measurement; 0: time ends it
	maxUnsent int64

	waiter      clock.Waiter
	intended    int64  // send time of the next message, open loop
	gap         int64  // between intended send times, a moving mean of about the last 16
	activeUntil int64  // at most the end of the measurement
	measured    uint64 // sent that belong to the measurement
	unsent      int64

	held        int64                 // how long the broker held the publisher since it was last on time
	seenWaiting int64                 // waiting as it was read last
	previous    delayedMessage        // the message before
	times       record.PublisherTimes // of the measurement so far
}

// delayedMessage is the part of a message that the pacing error of the next one needs.
type delayedMessage struct {
	own   bool // most of the delay was not the broker's
	delay int64
}

// start is called when the load starts.
func (p *pacer) start() {
	p.activeUntil = notYetKnown
	if p.schedule != nil {
		p.intended = p.timeline.next(p.schedule)
	}
}

// remaining is the number of messages of the measurement that are left to be sent.
func (p *pacer) remaining() uint64 {
	if p.count == 0 {
		return math.MaxUint64
	}
	return p.count - min(p.measured, p.count)
}

// behind reports whether messages that were due in the measurement are yet to be sent.
func (p *pacer) behind() bool {
	return p.schedule != nil && p.intended < min(p.timeline.ends(), p.activeUntil) && p.remaining() > 0
}

// wait waits for the intended send time of the next message. It returns that and the actual send time, which is now.
// False: there is nothing more to send, or ctx ended.
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
		if p.waiter.Paced(ctx, intended+p.timeline.origin.Load(), p.gap) != nil {
			return 0, 0, false
		}
		began := send
		send = p.timeline.now()
		p.paused(began, send)
		if send >= p.activeUntil && p.activeUntil < p.timeline.ends() {
			return 0, 0, false
		}
	}
	return intended, send, true
}

// sent accounts for the delay of a message with an intended send time, and continues with the next one of the schedule.
func (p *pacer) sent(w *record.Window, delay int64) {
	p.attribute(w, delay)
	p.recordPacing(w, delay)
	p.advance()
}

// attribute splits the delay of a message that is behind its intended send time: the time that the broker held the
// publisher since it was last on time is back-pressure, the rest is the send delay of the generator.
func (p *pacer) attribute(w *record.Window, delay int64) {
	held := min(delay, p.held)
	w.Record(record.SendDelay, delay-held)
	w.Record(record.Backpressure, held)
}

// recordPacing records by how much the time since the message before differs from the one in the schedule, which is how
// much their delays differ. Messages that the broker held for most of their delay are left out: they say nothing about
// the generator.
func (p *pacer) recordPacing(w *record.Window, delay int64) {
	own := min(delay, p.held) <= delay/2
	if own && p.previous.own {
		w.Record(record.Pacing, max(delay-p.previous.delay, p.previous.delay-delay))
	}
	p.previous = delayedMessage{own, delay}
	w.Counts[record.SpinNanos] += p.waiter.TakeSpun()
}

// advance continues with the next message of the schedule.
func (p *pacer) advance() {
	next := p.timeline.next(p.schedule)
	gap := next - p.intended
	if p.gap == 0 {
		p.gap = gap
	}
	p.gap += (gap - p.gap) / 16
	p.intended = next
}

// countUnsent counts what was due in the measurement and is unsent at a time, when the drain has ended. Messages that
// were due but never sent count as unsent; otherwise a stalled broker would look unaffected (coordinated omission).
func (p *pacer) countUnsent(now int64) {
	p.skip(p.timeline.ends(), min(now, p.timeline.drainEnds()), true)
}

// skip continues with the first message with an intended send time of to or later. Those before it that were due while
// the publisher was active, inside the measurement, are unsent. Each counts with its age at now; 0: at the end of the
// active period in which it was due. Nothing is due beyond a count. Skip stops early where there are too many messages,
// if last or when the measurement has ended.
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
				return
			}
			if active && p.unsent < p.maxUnsent && p.timeline.contains(p.intended) {
				if remaining == 0 {
					return
				}
				remaining--
				p.unsent++
				w.Counts[record.Unsent]++
				age := max(now, until) - p.intended
				w.Record(record.UnsentAge, age)
				p.attribute(w, age)
			}
		}
	}
}

// published notes that the driver waited for the broker in a call that began at a time; n is waiting, which grew. On a
// shared connection the wait may be of another publisher's write: what was before the call does not count.
func (p *pacer) published(began, n int64) {
	p.waited(began, min(began+n-p.seenWaiting, p.timeline.now()))
}

// flushed notes the time that a flush waited for the broker; before is waiting when it began.
func (p *pacer) flushed(before int64) {
	p.seenWaiting = before
	if n := p.waiting.Nanos() - before; n > 0 {
		now := p.timeline.now()
		p.waited(now-n, now)
	}
}

// connected notes the time that opening a connection for one message took. It holds the messages that follow, not this
// one.
func (p *pacer) connected(from, to int64) {
	p.times.Waited += p.timeline.within(from, to)
	p.seenWaiting = p.waiting.Nanos()
}

// waited notes that the publisher waited for the broker, and paused that it waited for something else, in ns since T0.
// What the driver reported as waited until now is in that time.
func (p *pacer) waited(from, to int64) {
	p.held += max(0, to-from)
	p.times.Waited += p.timeline.within(from, to)
	p.seenWaiting = p.waiting.Nanos()
}

func (p *pacer) paused(from, to int64) {
	p.times.Paused += p.timeline.within(from, to)
	p.seenWaiting = p.waiting.Nanos()
}
