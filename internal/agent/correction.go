package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/engine"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// correctEvery is the interval at which the engine gets a new correction: at 100 ppm a clock drifts by 25 µs in it.
const correctEvery = 250 * time.Millisecond

// minCalendarStep is the minimum step of the host's wall clock against its monotonic clock that is an event.
const minCalendarStep = 50 * time.Millisecond

// correction gives the engine of an attempt the correction of this agent's clock to the reference clock. It records
// samples that show its accuracy. Safe for concurrent use.
type correction struct {
	comparison *comparison
	timeline   *timeline
	host       string

	mu      sync.Mutex
	begun   bool
	applied int64
	samples []record.ClockSample // not yet taken
}

// run corrects the engine until ctx ends.
func (c *correction) run(ctx context.Context, e *engine.Engine) {
	c.comparison.takeSteps() // drop steps from before
	tick := time.NewTicker(correctEvery)
	defer tick.Stop()
	calendar := time.Now().UnixNano() - clock.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		c.apply(e)
		for _, step := range c.comparison.takeSteps() {
			e.Event(drivers.EventKind(record.EventClockStep),
				fmt.Sprintf("the clock of host %s stepped by %v relative to the controller's",
					c.host, time.Duration(step).Round(time.Microsecond)))
		}
		if moved := time.Now().UnixNano() - clock.Now() - calendar; time.Duration(moved).Abs() > minCalendarStep {
			calendar += moved
			e.Event(drivers.EventKind(record.EventCalendarStep),
				fmt.Sprintf("the wall clock of host %s stepped by %v relative to its monotonic clock",
					c.host, time.Duration(moved).Round(time.Millisecond)))
		}
	}
}

// apply applies the current offset, and records it with the correction that was applied until now.
func (c *correction) apply(e *engine.Engine) {
	start, begin, ahead, reference := c.timeline.agreed()
	o := c.comparison.now()
	if o == nil || o.Reference != reference { // another controller took over, and its clock is not the agreed reference
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun && o.At < start { // before the start, no message has used another correction
		c.applied = ahead - o.Offset
	} else if c.begun && reference == clock.ID() {
		return // the correction never changes
	}
	c.begun = true
	s := record.ClockSample{At: o.At - begin, Reference: reference, Offset: o.Offset - ahead, Bound: o.Bound,
		Drift: o.Drift, Slew: o.Slew, SlewBound: o.SlewBound, Applied: c.applied}
	c.samples = append(c.samples, s)
	c.applied = -s.Offset
	e.Correct(c.applied)
}

// take returns the samples since the last call.
func (c *correction) take() []record.ClockSample {
	c.mu.Lock()
	defer c.mu.Unlock()
	samples := c.samples
	c.samples = nil
	return samples
}
