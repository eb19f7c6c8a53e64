package engine

import (
	"context"
	"fmt"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// forever is a time that does not come.
const forever = int64(1) << 62

// turns says when one thread of a role is there, in ns since the measurement began (which with warmup "auto" is not T0). The cycles of a role's threads are spread evenly.
type turns struct {
	from, to   int64
	stay, away int64 // 0: no cycles
	shift      int64 // of this thread's cycles
	always     int64 // from then on it is there: consumers, for the drain
}

// newTurns is nil for a thread that is always there.
func newTurns(p plan.Presence, i, total int, always int64) *turns {
	if p == (plan.Presence{}) {
		return nil
	}
	t := &turns{from: int64(p.From), to: forever, stay: int64(p.Stay), away: int64(p.Away), always: always}
	if p.To > 0 {
		t.to = int64(p.To)
	}
	t.shift = int64(float64(t.stay+t.away) * float64(i) / float64(max(1, total)))
	return t
}

// at tells whether the thread is there, and until when nothing changes. Warm-up has those that are there at the beginning of the measurement.
func (t *turns) at(now int64) (there bool, until int64) {
	now = max(now, 0)
	switch {
	case now >= t.always:
		return true, forever
	case now < t.from:
		return false, min(t.from, t.always)
	case now >= t.to:
		return false, t.always
	case t.stay == 0:
		return true, min(t.to, t.always)
	}
	period := t.stay + t.away
	at := (now - t.from + t.shift) % period
	if at < t.stay {
		return true, min(now+t.stay-at, t.to, t.always)
	}
	return false, min(now+period-at, t.always)
}

// began is when the stay began that the thread is in: long ago, where it was there in warm-up.
func (t *turns) began(now int64) int64 {
	at := t.from
	switch {
	case now >= t.always:
		at = t.always
	case now <= 0:
		return -forever
	case t.stay > 0:
		at = max(at, now-(now-t.from+t.shift)%(t.stay+t.away))
	}
	if at <= 0 {
		return -forever
	}
	return at
}

// atStart tells whether the thread is there when the load starts.
func (t *turns) atStart() bool {
	if t == nil {
		return true
	}
	there, _ := t.at(0)
	return there
}

// mostComings bounds the events of an agent's joins and leaves; all of them are in the counters.
const mostComings = 1000

// came tells that a thread joined or left.
func (e *Engine) came(role string, index int, kind string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.comings++; e.comings > mostComings {
		return
	}
	detail := fmt.Sprintf("%s %d", role, index)
	if e.comings == mostComings {
		detail += "; those of this agent that follow are only counted"
	}
	e.events = append(e.events, record.Event{At: e.eventTime(), Kind: kind, Detail: detail})
}

// The kinds of these events.
const (
	eventJoined = "joined"
	eventLeft   = "left"
)

// turn tells whether a thread is there at a time, and until when, in ns since T0: untold is for good, or as long as it is not known when the
// measurement begins.
func (e *Engine) turn(t *turns, now int64) (there bool, until int64) {
	from := e.measured.from.Load()
	if from == untold {
		there, _ = t.at(0)
		return there, untold
	}
	if there, until = t.at(now - from); until == forever {
		return there, untold
	}
	return there, until + from
}

// stayBegan is when the stay began that a thread is in, in ns since T0.
func (e *Engine) stayBegan(t *turns, now int64) int64 {
	from := e.measured.from.Load()
	if from == untold {
		return -forever
	}
	if at := t.began(now - from); at > 0 {
		return at + from
	}
	return -forever
}

// wakeAt is when to look again at what was to be until a time: soon, as long as it is not known when the measurement begins.
func (e *Engine) wakeAt(until int64) int64 {
	if e.measured.from.Load() == untold {
		return clock.Now() + int64(room/2)
	}
	return min(until, forever) + e.origin.Load()
}

// attend has the publisher leave and join as its turns say, late where the broker held it, and passes over what was due before this stay.
// False: it sends nothing any more.
func (p *publisher) attend() bool {
	for !p.e.over.Load() {
		now := p.e.now()
		if now >= p.e.ends() {
			break
		}
		there, until := p.e.turn(p.turns, now)
		began := p.e.stayBegan(p.turns, now)
		switch {
		case !p.gone && (!there || began > p.attended): // it may have been held for all the time that it was to be away
			p.leave()
			continue // leaving took its time
		case there && p.gone:
			if !p.join() {
				return false
			}
			continue // joining took its time
		case there:
			p.stays, p.attended = until, now
			p.skip(began, 0, false)
			if p.schedule == nil || p.due < until || until >= p.e.ends() {
				return true
			}
		default:
			to := min(until, p.e.ends())
			if to == untold {
				to = now
			}
			p.skip(to, 0, false)
		}
		err := p.waiter.Until(p.soft, p.e.wakeAt(until))
		p.paused(now, p.e.now())
		if err != nil {
			return false
		}
		if p.gone {
			p.held = 0
		}
	}
	return !p.gone && p.stays >= p.e.ends() && p.behind() // what was due in its last stay
}

// stayed tells whether the publisher has something to do after its stay.
func (p *publisher) stayed() bool { return p.turns != nil && p.stays < p.e.ends() && !p.e.over.Load() }

// leave ends the publisher's link in an orderly way: what is in flight is settled.
func (p *publisher) leave() {
	if !p.perMessage() {
		if p.flight != nil {
			p.settle()
		}
		begin := p.e.now()
		p.link.disconnect()
		p.waited(begin, p.e.now())
	}
	p.gone = true
	w := p.sends.Window(p.e.now(), false)
	w.Counts[record.Leaves]++
	p.e.came("publisher", p.index, eventLeft)
}

// join opens the link again. What it takes is the broker's.
func (p *publisher) join() bool {
	begin := p.e.now()
	if !p.perMessage() && !p.e.retry(p.soft, p.link.open) {
		return false
	}
	now := p.e.now()
	p.waited(begin, now)
	p.gone, p.attended = false, now
	p.sends.Window(p.e.now(), false).Counts[record.Joins]++
	p.e.came("publisher", p.index, eventJoined)
	return true
}

// withdraw ends the links of those that are not there at the start. Everybody connects before, so that a broker that cannot be reached fails
// the task at once.
func (p *publisher) withdraw() {
	if p.turns.atStart() {
		return
	}
	p.gone = true
	p.link.disconnect()
}

func (c *consumer) withdraw() {
	if !c.turns.atStart() {
		c.end()
	}
}

// end closes the link in an orderly way: what was handled is acknowledged, and the rest is there for others.
func (c *consumer) end() {
	c.gone = true
	c.link.disconnect()
}

// waits is since when the consumer waits for the next message, as far as it was there. The caller holds mu.
func (c *consumer) waits() int64 {
	if c.turns == nil {
		return c.wait.last
	}
	return max(c.wait.last, c.there)
}

// attend has the consumer leave and join as its turns say and sets the alarm for the next time. False: it could not join any more.
func (c *consumer) attend(ctx context.Context, alarm *clock.Alarm) bool {
	there, until := c.e.turn(c.turns, c.e.now())
	switch {
	case there && c.gone:
		c.opening.Store(true)
		joined := c.e.retry(ctx, c.link.open)
		c.opening.Store(false)
		if !joined {
			return false
		}
		c.gone = false
		c.mu.Lock()
		c.there = c.e.now()
		c.mu.Unlock()
		c.e.countOwn(record.Joins)
		c.e.came("consumer", c.index, eventJoined)
	case !there && !c.gone:
		c.end()
		c.e.countOwn(record.Leaves)
		c.e.came("consumer", c.index, eventLeft)
	}
	alarm.Set(c.e.wakeAt(until))
	return true
}
