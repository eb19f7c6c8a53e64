package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/engine"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// correctEvery is how often the engine gets a new correction: at 100 ppm a clock drifts by 25 µs meanwhile.
const correctEvery = 250 * time.Millisecond

// minCalendarStep is by how much the host's calendar must have moved against its monotonic clock to be an event.
const minCalendarStep = 50 * time.Millisecond

// correction gives an attempt's engine the difference from this agent's clock to the reference, and keeps for the
// record how right that was. Safe for concurrent use.
type correction struct {
	compared *comparison
	timeline *timeline
	host     string

	mu      sync.Mutex
	begun   bool
	applied int64
	samples []record.ClockSample // not yet taken
}

// run corrects the engine until ctx ends.
func (c *correction) run(ctx context.Context, e *engine.Engine) {
	c.compared.takeSteps() // of before
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
		for _, step := range c.compared.takeSteps() {
			e.Event(drivers.EventKind(record.EventClockStep),
				fmt.Sprintf("the clock of host %s moved by %v against the controller's, at once or nearly so",
					c.host, time.Duration(step).Round(time.Microsecond)))
		}
		if moved := time.Now().UnixNano() - clock.Now() - calendar; time.Duration(moved).Abs() > minCalendarStep {
			calendar += moved
			e.Event(drivers.EventKind(record.EventCalendarStep),
				fmt.Sprintf("the calendar of host %s moved by %v against its monotonic clock",
					c.host, time.Duration(moved).Round(time.Millisecond)))
		}
	}
}

// apply applies the offset of now, and keeps it beside what was applied until now.
func (c *correction) apply(e *engine.Engine) {
	start, begin, ahead, reference := c.timeline.agreed()
	o := c.compared.now()
	if o == nil || o.Reference != reference { // another controller took over, with another clock than was agreed on
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun && o.At < start { // nothing was compared by another yet
		c.applied = ahead - o.Offset
	} else if c.begun && reference == clock.ID() {
		return // nor will it change
	}
	c.begun = true
	s := record.ClockSample{At: o.At - begin, Reference: reference, Offset: o.Offset - ahead, Bound: o.Bound,
		Drift: o.Drift, Slew: o.Slew, SlewBound: o.SlewBound, Applied: c.applied}
	c.samples = append(c.samples, s)
	c.applied = -s.Offset
	e.Correct(c.applied)
}

// take returns the samples since it was called last.
func (c *correction) take() []record.ClockSample {
	c.mu.Lock()
	defer c.mu.Unlock()
	samples := c.samples
	c.samples = nil
	return samples
}
