package loopback

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// options is the Go form of #Options in schema.cue, which documents the fields.
type options struct {
	Name          string   `json:"name"`
	Lose          int64    `json:"lose"`
	Duplicate     int64    `json:"duplicate"`
	Reject        int64    `json:"reject"`
	Swap          []int64  `json:"swap"`
	Delay         spread   `json:"delay"`
	ConfirmDelay  spread   `json:"confirmDelay"`
	Seed          uint64   `json:"seed"`
	Stalls        []stall  `json:"stalls"`
	SlowStart     slow     `json:"slowStart"`
	BindDelay     duration `json:"bindDelay"`
	BindSpread    duration `json:"bindSpread"`
	Rate          int64    `json:"rate"`
	Burst         int64    `json:"burst"`
	Capacity      int      `json:"capacity"`
	CapacityBytes int      `json:"capacityBytes"`
	Resilience    string   `json:"resilience"`
}

// stall is a period in which nothing is confirmed or delivered. At counts from the first message.
type stall struct {
	At  duration `json:"at"`
	For duration `json:"for"`
}

// slow makes delays longer by Extra at the first message. The extra delay decreases linearly to 0 after For.
type slow struct {
	For   duration `json:"for"`
	Extra duration `json:"extra"`
}

// duration is a time.Duration that is written as text.
type duration time.Duration

// UnmarshalText parses a duration like "5ms".
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

// parse parses options and fills in defaults. An unknown field is an error.
func parse(raw json.RawMessage) (options, error) {
	o := options{Name: "default", Capacity: 1_000_000, CapacityBytes: 256 << 20}
	if len(raw) > 0 {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&o); err != nil {
			return o, fmt.Errorf("read options of loopback: %w", err)
		}
		if dec.More() {
			return o, errors.New("read options of loopback: text after the options")
		}
	}
	if o.Burst == 0 {
		o.Burst = max(1, o.Rate/100)
	}
	return o, o.check()
}

func (o options) check() error {
	if o.Name == "" {
		return errors.New("read options of loopback: name is empty")
	}
	if o.Lose < 0 || o.Duplicate < 0 || o.Reject < 0 || o.Rate < 0 || o.Burst < 0 || o.Delay.negative() ||
		o.ConfirmDelay.negative() || o.BindDelay < 0 || o.BindSpread < 0 {
		return errors.New("read options of loopback: a negative count or duration; 0 turns a fault off")
	}
	if o.Capacity < 1 || o.CapacityBytes < 1 {
		return errors.New("read options of loopback: capacity and capacityBytes must be 1 or more")
	}
	if o.SlowStart.Extra < 0 || o.SlowStart.For < o.SlowStart.Extra {
		return fmt.Errorf("read options of loopback: slowStart takes %v more at first, for %v: extra may be at most for, or later messages would overtake",
			time.Duration(o.SlowStart.Extra), time.Duration(o.SlowStart.For))
	}
	for i, s := range o.Stalls {
		if s.At < 0 || s.For < 0 || i > 0 && s.At < o.Stalls[i-1].At+o.Stalls[i-1].For {
			return fmt.Errorf("read options of loopback: stall %d at %v for %v: stalls must ascend and may not overlap",
				i, time.Duration(s.At), time.Duration(s.For))
		}
	}
	last := int64(-2)
	for _, at := range o.Swap {
		if at < 0 || at < last+2 {
			return fmt.Errorf("read options of loopback: swap %v: positions must ascend and lie at least 2 apart, for each moves its next neighbour too", o.Swap)
		}
		last = at
	}
	return nil
}

// label describes in a few words what a confirm means under these options.
func (o options) label() string {
	words := []string{"in process memory"}
	add := func(on bool, format string, a ...any) {
		if on {
			words = append(words, fmt.Sprintf(format, a...))
		}
	}
	add(o.Lose > 0, "loses 1 in %d", o.Lose)
	add(o.Duplicate > 0, "duplicates 1 in %d", o.Duplicate)
	add(o.Reject > 0, "rejects 1 in %d", o.Reject)
	add(len(o.Swap) > 0, "swaps %d pairs", len(o.Swap))
	add(!o.Delay.none(), "delivers after %v", o.Delay)
	add(!o.ConfirmDelay.none(), "confirms after %v", o.ConfirmDelay)
	for _, s := range o.Stalls {
		add(true, "stalls at %v for %v", time.Duration(s.At), time.Duration(s.For))
	}
	add(o.SlowStart.Extra > 0, "takes up to %v longer in the first %v", time.Duration(o.SlowStart.Extra),
		time.Duration(o.SlowStart.For))
	add(o.BindDelay > 0, "binds after %v", time.Duration(o.BindDelay))
	add(o.BindSpread > 0, "bindings work %v later", time.Duration(o.BindSpread))
	add(o.Rate > 0, "takes %d/s", o.Rate)
	return strings.Join(words, ", ")
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
