package loopback

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// options mirror #Options in schema.cue, which documents them.
type options struct {
	Name          string   `json:"name"`
	Lose          int64    `json:"lose"`
	Duplicate     int64    `json:"duplicate"`
	Reject        int64    `json:"reject"`
	Swap          []int64  `json:"swap"`
	Delay         duration `json:"delay"`
	ConfirmDelay  duration `json:"confirmDelay"`
	BindDelay     duration `json:"bindDelay"`
	BindSpread    duration `json:"bindSpread"`
	Rate          int64    `json:"rate"`
	Capacity      int      `json:"capacity"`
	CapacityBytes int      `json:"capacityBytes"`
}

// duration is a time.Duration written the way people write it.
type duration time.Duration

// UnmarshalText reads "5ms".
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

// parse reads options strictly: an unknown field is an error.
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
	return o, o.check()
}

func (o options) check() error {
	if o.Name == "" {
		return errors.New("read options of loopback: name is empty")
	}
	if o.Lose < 0 || o.Duplicate < 0 || o.Reject < 0 || o.Rate < 0 || o.Delay < 0 || o.ConfirmDelay < 0 || o.BindDelay < 0 || o.BindSpread < 0 {
		return errors.New("read options of loopback: a negative count or duration; 0 turns a fault off")
	}
	if o.Capacity < 1 || o.CapacityBytes < 1 {
		return errors.New("read options of loopback: capacity and capacityBytes must be 1 or more")
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

// label says in words what a confirm means under these options.
func (o options) label() string {
	words := []string{"in process memory"}
	say := func(on bool, format string, a ...any) {
		if on {
			words = append(words, fmt.Sprintf(format, a...))
		}
	}
	say(o.Lose > 0, "loses 1 in %d", o.Lose)
	say(o.Duplicate > 0, "duplicates 1 in %d", o.Duplicate)
	say(o.Reject > 0, "rejects 1 in %d", o.Reject)
	say(len(o.Swap) > 0, "swaps %d pairs", len(o.Swap))
	say(o.Delay > 0, "delivers after %v", time.Duration(o.Delay))
	say(o.ConfirmDelay > 0, "confirms after %v", time.Duration(o.ConfirmDelay))
	say(o.BindDelay > 0, "binds after %v", time.Duration(o.BindDelay))
	say(o.BindSpread > 0, "bindings work %v later", time.Duration(o.BindSpread))
	say(o.Rate > 0, "takes %d/s", o.Rate)
	return strings.Join(words, ", ")
}

// plain tells whether nothing but the queue stands between publish and delivery.
func (o options) plain() bool {
	return o.Lose == 0 && o.Duplicate == 0 && o.Reject == 0 && len(o.Swap) == 0 && o.Delay == 0 && o.ConfirmDelay == 0 && o.Rate == 0
}
