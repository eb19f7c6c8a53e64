package agent

import (
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
)

// exchangeWith returns an exchange without delay, with a clock that is behind this one by ahead.
func exchangeWith(ahead time.Duration) clock.Exchange {
	now := clock.Now()
	slew, bound := clock.Slew()
	return clock.Exchange{Sent: now, Arrived: now - int64(ahead), Answered: now - int64(ahead), Received: now,
		Slew: slew, OtherSlew: slew, SlewBound: 2 * bound}
}

func TestComparison(t *testing.T) {
	var c comparison
	if o := c.now(); o != nil {
		t.Errorf("without an exchange: got %+v, want nil", o)
	}
	c.add(clock.ID(), exchangeWith(time.Hour))
	if o := c.now(); o == nil || o.Offset != 0 || o.Bound != 0 {
		t.Errorf("compared with the same clock: got %+v, want offset 0, bound 0", o)
	}
	c.add("controller", exchangeWith(250*time.Millisecond))
	if o := c.now(); o == nil || o.Reference != "controller" ||
		(time.Duration(o.Offset)-250*time.Millisecond).Abs() > time.Duration(o.Bound) {
		t.Errorf("compared with another clock: got %+v, want 250 ms within the bound", o)
	}
	c.add("controller", exchangeWith(350*time.Millisecond))
	if steps := c.takeSteps(); len(steps) != 1 ||
		(time.Duration(steps[0])-100*time.Millisecond).Abs() > time.Millisecond {
		t.Errorf("steps: got %v, want one of 100 ms", steps)
	}
	if c.add("another controller", exchangeWith(-time.Hour)); len(c.takeSteps()) > 0 {
		t.Error("a different reference clock was counted as a step")
	}
}
