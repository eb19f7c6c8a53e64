package loopback

import (
	"fmt"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// options is the Go form of #Options in schema.cue, which documents the fields.
type options struct {
	Name          string       `json:"name"`
	Lose          int64        `json:"lose"`
	Duplicate     int64        `json:"duplicate"`
	Reject        int64        `json:"reject"`
	Swap          []int64      `json:"swap"`
	Delay         spread       `json:"delay"`
	ConfirmDelay  spread       `json:"confirmDelay"`
	Seed          uint64       `json:"seed"`
	Stalls        []stall      `json:"stalls"`
	SlowStart     slow         `json:"slowStart"`
	BindDelay     kit.Duration `json:"bindDelay"`
	BindSpread    kit.Duration `json:"bindSpread"`
	Rate          int64        `json:"rate"`
	Burst         int64        `json:"burst"`
	Capacity      int          `json:"capacity"`
	CapacityBytes int          `json:"capacityBytes"`
	Resilience    string       `json:"resilience"`
}

// stall is a period in which nothing is confirmed or delivered. At counts from the first message.
type stall struct {
	At  kit.Duration `json:"at"`
	For kit.Duration `json:"for"`
}

// slow makes delays longer by Extra at the first message. The extra delay decreases linearly to 0 after For.
type slow struct {
	For   kit.Duration `json:"for"`
	Extra kit.Duration `json:"extra"`
}

// Check validates what the schema cannot.
func (o *options) Check() error {
	if o.SlowStart.For < o.SlowStart.Extra {
		return fmt.Errorf("slowStart takes %v more at first, for %v: extra may be at most for, or later messages would overtake",
			o.SlowStart.Extra, o.SlowStart.For)
	}
	for i, s := range o.Stalls {
		if i > 0 && s.At < o.Stalls[i-1].At+o.Stalls[i-1].For {
			return fmt.Errorf("stall %d at %v for %v: stalls must ascend and may not overlap", i, s.At, s.For)
		}
	}
	last := int64(-2)
	for _, at := range o.Swap {
		if at < last+2 {
			return fmt.Errorf("swap %v: positions must ascend and lie at least 2 apart, for each moves its next neighbour too", o.Swap)
		}
		last = at
	}
	return nil
}

// label describes in a few words what a confirm means under these options.
func (o options) label() string {
	parts := []string{"in process memory"}
	add := func(on bool, format string, a ...any) {
		if on {
			parts = append(parts, fmt.Sprintf(format, a...))
		}
	}
	add(o.Lose > 0, "loses 1 in %d", o.Lose)
	add(o.Duplicate > 0, "duplicates 1 in %d", o.Duplicate)
	add(o.Reject > 0, "rejects 1 in %d", o.Reject)
	add(len(o.Swap) > 0, "swaps %d pairs", len(o.Swap))
	add(!o.Delay.none(), "delivers after %v", o.Delay)
	add(!o.ConfirmDelay.none(), "confirms after %v", o.ConfirmDelay)
	for _, s := range o.Stalls {
		add(true, "stalls at %v for %v", s.At, s.For)
	}
	add(o.SlowStart.Extra > 0, "takes up to %v longer in the first %v", o.SlowStart.Extra,
		o.SlowStart.For)
	add(o.BindDelay > 0, "binds after %v", o.BindDelay)
	add(o.BindSpread > 0, "bindings work %v later", o.BindSpread)
	add(o.Rate > 0, "takes %d/s", o.Rate)
	return strings.Join(parts, ", ")
}

// plain reports whether the options change nothing: messages go straight into the queue, without delay, limit or fault.
func (o options) plain() bool {
	return o.Lose == 0 && o.Duplicate == 0 && o.Reject == 0 && len(o.Swap) == 0 && o.Delay.none() && o.Rate == 0 &&
		!o.confirmsLater() && !o.shifts()
}

// confirmsLater reports whether confirms are delayed.
func (o options) confirmsLater() bool { return !o.ConfirmDelay.none() || o.shifts() }

// shifts reports whether delays depend on the time since the first message.
func (o options) shifts() bool { return len(o.Stalls) > 0 || o.SlowStart.Extra > 0 }

// due returns the time of an event that would happen delay after now, moved by SlowStart and Stalls. All times are of
// the broker's clock. first is the time of the first message.
func (o options) due(first, now, delay int64) int64 {
	at := now + delay - first
	if left := int64(o.SlowStart.For) - (now - first); left > 0 && o.SlowStart.Extra > 0 {
		at += int64(float64(o.SlowStart.Extra) * float64(left) / float64(o.SlowStart.For))
	}
	for _, s := range o.Stalls {
		if at >= int64(s.At) && at < int64(s.At+s.For) {
			at = int64(s.At + s.For)
		}
	}
	return first + at
}
