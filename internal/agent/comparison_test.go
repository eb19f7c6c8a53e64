package agent

import (
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
)

// ask is an exchange without delay, with a clock that is behind this one by ahead.
func ask(ahead time.Duration) clock.Exchange {
	now := clock.Now()
	slew, bound := clock.Slew()
	return clock.Exchange{Sent: now, Heard: now - int64(ahead), Answered: now - int64(ahead), Received: now,
		Slew: slew, OtherSlew: slew, SlewBound: 2 * bound}
}

func TestComparison(t *testing.T) {
	var c comparison
	if o := c.now(); o != nil {
		t.Errorf("before anybody answered: %+v", o)
	}
	c.add(clock.ID(), ask(time.Hour))
	if o := c.now(); o == nil || o.Offset != 0 || o.Bound != 0 {
		t.Errorf("against the clock itself: %+v, want exactly nothing", o)
	}
	c.add("controller", ask(250*time.Millisecond))
	if o := c.now(); o == nil || o.Reference != "controller" ||
		(time.Duration(o.Offset)-250*time.Millisecond).Abs() > time.Duration(o.Bound) {
		t.Errorf("against another: %+v, want 250ms within the bound", o)
	}
	c.add("controller", ask(350*time.Millisecond))
	if steps := c.takeSteps(); len(steps) != 1 ||
		(time.Duration(steps[0])-100*time.Millisecond).Abs() > time.Millisecond {
		t.Errorf("stepped by %v, want once by 100ms", steps)
	}
	if c.add("another controller", ask(-time.Hour)); len(c.takeSteps()) > 0 {
		t.Error("another controller's clock was taken for a step")
	}
}
