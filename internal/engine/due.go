package engine

import (
	"context"
	"errors"
	"math"

	"lockstep/internal/record"
)

// owed is how many messages of the measurement are left to be sent, if they are counted.
func (p *publisher) owed() uint64 {
	if p.work.Count == 0 {
		return math.MaxUint64
	}
	return p.work.Count - min(p.measured, p.work.Count)
}

// countUnsent accounts for what was due inside the measurement and is unsent when the drain ends.
func (p *publisher) countUnsent() {
	if p.schedule == nil || errors.Is(p.soft.Err(), context.Canceled) {
		return
	}
	p.skip(p.e.ends(), min(p.e.now(), p.e.drainEnds()), true)
}

// skip goes on to the first message that is due at a time or later. Those before it that were due while the publisher was there, inside the
// measurement, are unsent. Each counts with its age at a time; 0: at the end of the stay in which it was due. Of a count that has been reached nothing
// is due. It stops short where there are too many of them, at the last or when the measurement ends.
func (p *publisher) skip(to, now int64, last bool) {
	most := mostUnsent / int64(len(p.e.publishers))
	owed := p.owed()
	for n := int64(0); p.schedule != nil && p.due < to; {
		there, until := true, to
		if p.turns != nil {
			there, until = p.e.turn(p.turns, p.due)
			until = min(until, to)
		}
		w := p.sends.Window(until-1, true)
		for ; p.due < until; p.advance() {
			if n++; n > most && (last || p.e.over.Load()) {
				return
			}
			if there && p.unsent < most && p.e.counts(p.due) {
				if owed == 0 {
					return
				}
				owed--
				p.unsent++
				w.Counts[record.Unsent]++
				age := max(now, until) - p.due
				w.Record(record.UnsentAge, age)
				p.attribute(w, age)
			}
		}
	}
}

// mostUnsent bounds the time that counting takes, over all publishers of the agent, where a rate was asked for that nothing could reach.
const mostUnsent = 10_000_000

// attribute splits the delay of a message that is behind its due time: the time that the publisher waited for the broker since it was last on
// time is blocked, the rest is the generator's own lateness.
func (p *publisher) attribute(w *record.Window, delay int64) {
	blocked := min(delay, p.held)
	w.Record(record.Lateness, delay-blocked)
	w.Record(record.Blocked, blocked)
}

// pacing is what the error between two sends needs to know of the first: whether what delayed it was not the broker, and how much after its
// due time it was sent.
type pacing struct {
	own   bool
	delay int64
}

// pace records by how much the time since the message before is off the one that the schedule has between them, which is how much their
// delays differ. It leaves out messages that the broker held for most of their delay: those say nothing of the generator.
func (p *publisher) pace(w *record.Window, delay int64) {
	own := min(delay, p.held) <= delay/2
	if own && p.pacing.own {
		w.Record(record.Pacing, max(delay-p.pacing.delay, p.pacing.delay-delay))
	}
	p.pacing = pacing{own, delay}
	w.Counts[record.SpinNanos] += p.waiter.TakeSpun()
}

// advance goes on to the next message of the schedule.
func (p *publisher) advance() {
	due := p.e.due(p.schedule)
	gap := due - p.due
	if p.gap == 0 {
		p.gap = gap
	}
	p.gap += (gap - p.gap) / 16
	p.due = due
}

// waited notes that the publisher waited for the broker, and paused that it waited for something else, in ns since T0. What the driver
// reports of blocked writes until then is in that time.
func (p *publisher) waited(from, to int64) {
	p.held += max(0, to-from)
	p.times.Waited += p.e.within(from, to)
	p.blocked = p.spec.Waiting.Nanos()
}

func (p *publisher) paused(from, to int64) {
	p.times.Paused += p.e.within(from, to)
	p.blocked = p.spec.Waiting.Nanos()
}

// within is how much of a time lies inside the measurement, as far as it is known when that is.
func (e *Engine) within(from, to int64) int64 {
	return max(0, min(to, e.ends())-max(from, e.measured.from.Load()))
}
