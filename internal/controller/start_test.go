package controller

import (
	"testing"
	"time"

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
