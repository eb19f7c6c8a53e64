package controller

import (
	"context"
	"fmt"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/wire"
)

// leastAhead is how far ahead the start lies at least, so that every agent is waiting for it when it comes.
const leastAhead = 20 * time.Millisecond

// Offset leads from the controller's clock to another.
type Offset struct {
	Clock string // id of the other
	Add   int64  // ns to add to a time of the controller's clock
	// Safe tells that Add is exact: it is the same clock. Otherwise it was read from the hosts' calendars, which agree as well as their
	// administrators see to.
	Safe bool
}

// offset finds the way from this clock to that of an arrival.
func offset(a wire.Arrival, id string, now, wall int64) Offset {
	if a.Clock == id {
		return Offset{Clock: id, Safe: true}
	}
	return Offset{Clock: a.Clock, Add: (a.Now - now) - (a.Wall - wall)}
}

// start agrees on the beginning of warm-up, a little ahead, and says it in every agent's clock.
func (c *conduct) start() (start map[string]int64, ahead time.Duration, err error) {
	rtt, err := c.conn.RTT()
	if err != nil {
		return nil, 0, fmt.Errorf("measure the way to the control plane: %w", err)
	}
	ahead = max(leastAhead, 3*rtt)
	now, wall := clock.Now(), time.Now().UnixNano()
	begin := now + ahead.Nanoseconds()
	start = map[string]int64{}
	for _, p := range c.parts {
		o := offset(p.arrival, clock.ID(), now, wall)
		if _, known := start[o.Clock]; !known { // agents of one host start at one time
			start[o.Clock] = begin + o.Add
		}
	}
	c.origin = begin + c.work.Warmup.D().Nanoseconds()
	return start, ahead, nil
}

// now is nanoseconds since the measurement began, or false while that is not agreed.
func (c *conduct) now() (int64, bool) {
	if c.origin == 0 {
		return 0, false
	}
	return clock.Now() - c.origin, true
}

// drain waits for the last messages: until all are in, nothing came for the time of silence, or the drain's limit.
func (c *conduct) drain(ctx context.Context) error {
	stopped := time.Now()
	most := stopped.Add(c.work.Drain.Most.D())
	if now, _ := c.now(); c.work.Publishers.Count == 0 { // the wait for confirms was part of it
		end := stopped.Add(time.Duration(c.work.Measure.D().Nanoseconds() - now))
		most = end.Add(c.work.Drain.Most.D())
	}
	heard, last := stopped, c.merge.LastReceipt()
	if err := c.step(ctx, wire.Release{Step: wire.StepDrain}, stepMargin); err != nil {
		return err
	}
	subscriptions := c.work.Topology.Subscriptions
	for !c.merge.AllIn(subscriptions) {
		if receipt := c.merge.LastReceipt(); receipt != last {
			last, heard = receipt, time.Now()
		}
		silent := heard.Add(c.work.Drain.Silence.D())
		now := time.Now()
		if !now.Before(silent) {
			return nil
		}
		if !now.Before(most) {
			c.facts.DrainCut = true
			return nil
		}
		if err := c.someEntry(ctx, min(silent.Sub(now), most.Sub(now))); err != nil {
			return err
		}
	}
	return nil
}

// someEntry takes the next message of an agent, or lets limit pass.
func (c *conduct) someEntry(ctx context.Context, limit time.Duration) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	changed := c.agents.watch()
	c.lookForLost(ctx)
	if err := c.trouble(); err != nil {
		return err
	}
	select {
	case e := <-c.entries:
		c.take(e)
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return c.trouble()
}
