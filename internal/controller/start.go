package controller

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
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
func (c *conduct) start(ctx context.Context) (r wire.Release, ahead time.Duration, err error) {
	rtt, err := c.conn.RTT(ctx)
	if err != nil {
		return r, 0, fmt.Errorf("measure the way to the control plane: %w", err)
	}
	ahead = max(leastAhead, 3*rtt)
	now, wall := clock.Now(), time.Now().UnixNano()
	begin := now + ahead.Nanoseconds()
	r = wire.Release{Step: wire.StepStart, Clock: clock.ID(), Start: map[string]int64{clock.ID(): begin}}
	best := map[string]Offset{}
	for _, p := range slices.Concat(c.parts, c.observers) {
		if !p.at[wire.StepOpen] { // an observer that failed
			continue
		}
		o := offset(p.arrival, clock.ID(), now, wall)
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

// hear notes when messages last moved. A snapshot tells how long ago that was when it was taken, whatever clock it was read from; the time
// that it took to come makes it seem later, never earlier.
func (c *conduct) hear(p *part, s *record.Snapshot) {
	now := clock.Now()
	note := func(last *int64, at int64) {
		if at != 0 {
			*last = max(*last, now-max(0, s.At-at))
		}
	}
	note(&c.moved, s.LastSend)
	note(&c.moved, s.LastReceipt)
	note(&c.confirmed, s.LastConfirm)
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
	return c.wait(ctx, func() (time.Duration, error) {
		if err := c.trouble(); err != nil {
			return 0, err
		}
		now, until, allIn := clock.Now(), c.redelivered, c.allIn()
		switch {
		case allIn:
		case c.apart():
			until = math.MaxInt64
		default:
			until = max(c.moved, c.confirmed, c.redelivered) + silence
		}
		if now >= limit && now < until {
			c.facts.DrainCut = !allIn && (c.apart() || now < max(c.moved, c.redelivered)+silence)
		}
		return time.Duration(min(until, limit) - now), nil
	})
}

// consumes tells whether any group has consumers.
func (c *conduct) consumes() bool {
	return slices.ContainsFunc(c.groups, func(t plan.Task) bool { return t.Cell.Workload.Consumers.Nodes > 0 })
}

// redeliverAfter is that of a group of the cell, ns; "" is the cell without groups.
func (c *conduct) redeliverAfter(group string) int64 {
	i := slices.IndexFunc(c.groups, func(t plan.Task) bool { return t.Group == group })
	return c.groups[max(0, i)].Cell.RedeliverAfter.D().Nanoseconds()
}

// allIn tells whether all that was sent has arrived, in every group.
func (c *conduct) allIn() bool {
	return !slices.ContainsFunc(c.groups, func(t plan.Task) bool {
		w := t.Cell.Workload
		return w.Consumers.Nodes > 0 && !c.merge.Group(t.Group).AllIn(w.Topology.Subscriptions)
	})
}
