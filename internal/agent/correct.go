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

// calendarStep is by how much the host's calendar must have moved against its monotonic clock to be worth an event.
const calendarStep = 50 * time.Millisecond

// correction keeps a task's engine told what leads from this agent's times to the reference's, and the record how right that was.
type correction struct {
	mu      sync.Mutex
	begun   bool
	applied int64
	samples []record.ClockSample // not yet taken
}

// correct goes on until ctx ends.
func (t *task) correct(ctx context.Context, e *engine.Engine) {
	t.compared.takeSteps() // of before
	tick := time.NewTicker(correctEvery)
	defer tick.Stop()
	calendar := time.Now().UnixNano() - clock.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		t.correctNow(e)
		for _, step := range t.compared.takeSteps() {
			e.Event(drivers.EventKind(record.EventClockStep), fmt.Sprintf("the clock of host %s moved by %v against the controller's, at once or nearly so",
				t.server.host, time.Duration(step).Round(time.Microsecond)))
		}
		if moved := time.Now().UnixNano() - clock.Now() - calendar; time.Duration(moved).Abs() > calendarStep {
			calendar += moved
			e.Event(drivers.EventKind(record.EventCalendarStep), fmt.Sprintf("the calendar of host %s moved by %v against its monotonic clock",
				t.server.host, time.Duration(moved).Round(time.Millisecond)))
		}
	}
}

// correctNow applies what is known now, and notes it beside what was applied until now.
func (t *task) correctNow(e *engine.Engine) {
	begin, base, reference := t.agreed()
	o := t.compared.now()
	if o == nil || o.Reference != reference { // another controller took over: its clock says nothing of what was agreed
		return
	}
	c := &t.correction
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun && o.At < begin-t.work.Warmup.D().Nanoseconds() { // nothing was compared by another yet
		c.applied = base - o.Offset
	} else if c.begun && reference == clock.ID() {
		return // nor will it change
	}
	c.begun = true
	s := record.ClockSample{At: o.At - begin, Reference: reference, Offset: o.Offset - base, Bound: o.Bound, Drift: o.Drift,
		Slew: o.Slew, SlewBound: o.SlewBound, Applied: c.applied}
	c.samples = append(c.samples, s)
	c.applied = -s.Offset
	e.Correct(c.applied)
}

// take returns what was noted since it was called last.
func (c *correction) take() []record.ClockSample {
	c.mu.Lock()
	defer c.mu.Unlock()
	samples := c.samples
	c.samples = nil
	return samples
}
