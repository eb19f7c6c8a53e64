package controller

import (
	"context"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/wire"
)

// Clock comparisons of the agents are used, with their drift. Wall clocks are used only without comparisons.
func TestStartTimeForEachClock(t *testing.T) {
	const now, wall = int64(1000 * time.Second), int64(5_000_000 * time.Second)
	ahead := int64(250 * time.Millisecond)
	for name, c := range map[string]struct {
		arrival wire.Arrival
		want    Offset
	}{
		"same clock": {wire.Arrival{Clock: "c", Now: now, Wall: wall}, Offset{Clock: "c"}},
		"offset measured 10 s ago": {wire.Arrival{Clock: "a", Now: 1, Wall: 2,
			Offset: &wire.Offset{Reference: "c", At: now + ahead - int64(10*time.Second),
				Offset: ahead, Bound: 77, Drift: 100}},
			Offset{Clock: "a", Add: ahead + int64(time.Millisecond), Bound: 77}},
		"offset to another controller": {wire.Arrival{Clock: "a", Now: now + ahead, Wall: wall,
			Offset: &wire.Offset{Reference: "d", Offset: 3}},
			Offset{Clock: "a", Add: ahead, Bound: unknown}},
		"wall clocks": {wire.Arrival{Clock: "a", Now: now + ahead, Wall: wall + 5},
			Offset{Clock: "a", Add: ahead - 5, Bound: unknown}},
	} {
		if got := offset(c.arrival, "c", now, wall); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// An observer with a smaller bound does not set the start for the clock of an agent with load. It does for its own.
func TestObserversDoNotSetTheStartOfOthers(t *testing.T) {
	of := func(id string, offset, bound int64) *part {
		return &part{at: map[wire.Step]bool{wire.StepOpen: true}, arrival: wire.Arrival{Clock: id,
			Offset: &wire.Offset{Reference: clock.ID(), Offset: offset, Bound: bound}}}
	}
	a := &attempt{parts: []*part{of("load", 5, 1000), of("load", 3, 100)},
		observers: []*part{of("load", int64(time.Hour), -1), of("broker", 9, 1000), of("broker", 7, 100)},
		rtt:       func(context.Context) (time.Duration, error) { return time.Millisecond, nil }}
	r, _, err := a.start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]int64{"load": 3, "broker": 7} {
		if got := r.Start[id] - r.Start[clock.ID()]; got != want {
			t.Errorf("start by clock %s: got %d ns after that by the controller's clock, want %d", id, got, want)
		}
	}
}
