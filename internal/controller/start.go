package controller

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/record"
	"lockstep/internal/wire"
)

// leastAhead is how far ahead the start lies at least, so that every agent is waiting for it when it comes.
const leastAhead = 50 * time.Millisecond

// Offset leads from the controller's clock to another.
type Offset struct {
	Clock string // id of the other
	Add   int64  // ns to add to a time of the controller's clock
	// Bound is how far Add may be off, in ns: nothing where it is the same clock. unknown: nobody has compared the clocks, and Add was read
	// from the hosts' calendars, which agree as well as their administrators see to.
	Bound int64
}

const unknown = math.MaxInt64

// offset finds the way from this clock to that of an arrival. What the agent measured is carried on to now.
func offset(a wire.Arrival, id string, now, wall int64) Offset {
	o := a.Offset
	switch {
	case a.Clock == id:
		return Offset{Clock: id}
	case o != nil && o.Reference == id:
		age := float64(now + o.Offset - o.At)
		return Offset{Clock: a.Clock, Add: o.Offset + int64(o.Drift/1e6*age), Bound: o.Bound}
	}
	return Offset{Clock: a.Clock, Add: (a.Now - now) - (a.Wall - wall), Bound: unknown}
}

// start agrees on the beginning of warm-up, a little ahead, and says it in every agent's clock and in this one, to which agents compare
// theirs. Agents of one host start at one time, by the offset that the best informed of them knows.
func (c *conduct) start() (r wire.Release, ahead time.Duration, err error) {
	rtt, err := c.conn.RTT()
	if err != nil {
		return r, 0, fmt.Errorf("measure the way to the control plane: %w", err)
	}
	ahead = max(leastAhead, 3*rtt)
	now, wall := clock.Now(), time.Now().UnixNano()
	begin := now + ahead.Nanoseconds()
	r = wire.Release{Step: wire.StepStart, Clock: clock.ID(), Start: map[string]int64{clock.ID(): begin}}
	best := map[string]Offset{}
	for _, a := range c.arrivals() {
		o := offset(a, clock.ID(), now, wall)
		if b, known := best[o.Clock]; !known || o.Bound < b.Bound {
			best[o.Clock] = o
		}
	}
	for id, o := range best {
		r.Start[id] = begin + o.Add
	}
	c.zero = begin + c.work.Warmup.D().Nanoseconds()
	c.origin, c.measuring = c.zero, !c.work.Steady.Auto
	return r, ahead, nil
}

// arrivals are the last ones of all that wait for the start.
func (c *conduct) arrivals() (all []wire.Arrival) {
	for _, p := range c.parts {
		all = append(all, p.arrival)
	}
	for _, o := range c.observers {
		if o.at[wire.StepOpen] {
			all = append(all, o.arrival)
		}
	}
	return all
}

// now is nanoseconds since the measurement began, or false while that is not agreed.
func (c *conduct) now() (int64, bool) {
	if c.origin == 0 {
		return 0, false
	}
	return clock.Now() - c.origin, true
}

// hear notes when messages last moved. A snapshot tells how long ago that was when it was taken, whatever clock it was read from; the time
// that it took to come makes it seem later, never earlier.
func (c *conduct) hear(s *record.Snapshot) {
	now := clock.Now()
	note := func(last *int64, at int64) {
		if at != 0 {
			*last = max(*last, now-max(0, s.At-at))
		}
	}
	note(&c.moved, s.LastSend)
	note(&c.moved, s.LastReceipt)
	note(&c.confirmed, s.LastConfirm)
	p := c.byName[s.Agent]
	if p == nil {
		return
	}
	if p.apart && s.Apart == 0 { // what waits at the broker begins to come only now
		c.moved = now
	}
	p.apart = s.Apart > 0
	if s.LastInterrupted != 0 {
		at := now - max(0, s.At-s.LastInterrupted)
		c.redelivered = max(c.redelivered, at+c.redeliverAfter(p.Group))
	}
}

// apart tells whether an agent has a consumer without its link: its silence says nothing.
func (c *conduct) apart() bool {
	return slices.ContainsFunc(c.parts, func(p *part) bool { return p.apart && !p.dropped })
}

// drain waits for the last messages: until all are in, nothing came for the time of silence, or the drain's limit, which begins when publishers have
// stopped. A confirm shows that the broker is alive and begins the silence again, but it is not a receipt: at the limit it does not count. As long as
// a consumer has no link there is no silence, nor while the broker may keep back what was delivered and not acknowledged: that may come, also a second time.
func (c *conduct) drain(ctx context.Context) error {
	stopped := clock.Now()
	limit := stopped + c.work.Drain.Most.D().Nanoseconds()
	silence := c.work.Drain.Silence.D().Nanoseconds()
	if err := c.step(ctx, wire.Release{Step: wire.StepDrain}, stepMargin); err != nil {
		return err
	}
	if c.moved == 0 {
		c.moved = stopped
	}
	for {
		now, until, allIn := clock.Now(), c.redelivered, c.allIn()
		switch {
		case allIn:
		case c.apart():
			until = math.MaxInt64
		default:
			until = max(c.moved, c.confirmed, c.redelivered) + silence
		}
		if now >= until {
			return nil
		}
		if now >= limit {
			c.facts.DrainCut = !allIn && (c.apart() || now < max(c.moved, c.redelivered)+silence)
			return nil
		}
		if err := c.someEntry(ctx, time.Duration(min(until, limit)-now)); err != nil {
			return err
		}
	}
}

// someEntry takes the next message of an agent, or lets limit pass.
func (c *conduct) someEntry(ctx context.Context, limit time.Duration) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	changed := c.agents.watch(ctx)
	c.lookForLost(ctx)
	if err := c.trouble(); err != nil {
		return err
	}
	select {
	case r := <-c.reports:
		c.take(r)
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return c.trouble()
}
