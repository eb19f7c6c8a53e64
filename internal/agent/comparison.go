package agent

import (
	"context"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/wire"
)

// Intervals of clock requests to the controller: a burst for a new controller, then askEvery.
const (
	askFirst = 20 * time.Millisecond
	askBurst = 8
	askEvery = 500 * time.Millisecond
	maxSteps = 100 // kept for a later task
)

// comparison compares this host's clock with the controller's. Safe for concurrent use.
type comparison struct {
	mu        sync.Mutex
	reference string // id of the controller's clock; empty: no answer yet
	offsets   clock.Offsets
	exchanges int
	steps     []int64 // ns, in order of time
}

// run requests the controller's time until ctx ends. A missing answer is no failure: the bound of the last offset
// grows.
func (c *comparison) run(ctx context.Context, conn *wire.Agent, agent string) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		pause := askEvery
		if reference, x, err := conn.AskClock(ctx, agent); err == nil && c.add(reference, x) < askBurst {
			pause = askFirst
		}
		t.Reset(pause)
	}
}

// add adds an exchange and returns the number of exchanges with this reference.
func (c *comparison) add(reference string, x clock.Exchange) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reference != c.reference {
		c.reference, c.offsets, c.exchanges = reference, clock.Offsets{}, 0
	}
	c.exchanges++
	if reference == clock.ID() {
		return c.exchanges
	}
	if step := c.offsets.Add(x); step != 0 && len(c.steps) < maxSteps {
		c.steps = append(c.steps, step)
	}
	return c.exchanges
}

// now returns the current offset; nil: not known yet. The offset of a clock to itself is exactly 0.
func (c *comparison) now() *wire.Offset {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := clock.Now()
	if c.reference == clock.ID() {
		return &wire.Offset{Reference: c.reference, At: now}
	}
	slew, bound := clock.Slew()
	o, ok := c.offsets.At(now, slew, bound)
	if !ok {
		return nil
	}
	return &wire.Offset{Reference: c.reference, At: now, Offset: o.Offset, Bound: o.Bound,
		Drift: o.Drift * 1e6, Slew: o.Slew, SlewBound: o.SlewBound}
}

// takeSteps returns the steps of the clock since the last call.
func (c *comparison) takeSteps() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	steps := c.steps
	c.steps = nil
	return steps
}
