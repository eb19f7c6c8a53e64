package controller

import (
	"testing"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/wire"
)

// What agents measured counts, carried on by the drift; calendars count only where nobody has compared the clocks.
func TestStartIsSaidInEveryClock(t *testing.T) {
	const now, wall = int64(1000 * time.Second), int64(5_000_000 * time.Second)
	ahead := int64(250 * time.Millisecond)
	for name, c := range map[string]struct {
		arrival wire.Arrival
		want    Offset
	}{
		"its own clock": {wire.Arrival{Clock: "c", Now: now, Wall: wall}, Offset{Clock: "c"}},
		"a measured one, 10 s ago": {wire.Arrival{Clock: "a", Now: 1, Wall: 2, Offset: &wire.Offset{Reference: "c", At: now + ahead - int64(10*time.Second),
			Offset: ahead, Bound: 77, Drift: 100}}, Offset{Clock: "a", Add: ahead + int64(time.Millisecond), Bound: 77}},
		"one measured against another controller": {wire.Arrival{Clock: "a", Now: now + ahead, Wall: wall, Offset: &wire.Offset{Reference: "d", Offset: 3}},
			Offset{Clock: "a", Add: ahead, Bound: unknown}},
		"calendars": {wire.Arrival{Clock: "a", Now: now + ahead, Wall: wall + 5}, Offset{Clock: "a", Add: ahead - 5, Bound: unknown}},
	} {
		if got := offset(c.arrival, "c", now, wall); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Whoever takes a task over on another host learns when its load began from the agents that are compared with him, or from how long ago the release was stored;
// from calendars never.
func TestWhenTheLoadBeganIsNotReadFromCalendars(t *testing.T) {
	day := 24 * time.Hour
	now := clock.Now()
	began := now - int64(10*time.Second)
	r := wire.Release{Step: wire.StepStart, Clock: "dead", Start: map[string]int64{"dead": 5, "a": began + int64(day)}, Age: 10*time.Second + leastAhead}
	arrival := wire.Arrival{Clock: "a", Now: now + int64(day), Wall: time.Now().Add(time.Hour).UnixNano()} // by a calendar that is an hour off
	for name, x := range map[string]struct {
		offset *wire.Offset
		age    time.Duration
		known  bool
	}{
		"compared with the dead leader":  {&wire.Offset{Reference: "dead", At: 1, Offset: 1, Bound: 1}, r.Age, true},
		"never compared":                 {nil, r.Age, true},
		"nor is the release's age known": {nil, 0, false},
		"compared with this one":         {&wire.Offset{Reference: clock.ID(), At: now + int64(day), Offset: int64(day), Bound: 1}, day, true},
	} {
		r.Age = x.age
		c := &conduct{parts: []*part{{arrival: arrival, agent: wire.AgentInfo{Heartbeat: wire.Heartbeat{Offset: x.offset}}}}}
		at, known := c.startOf(r)
		if known != x.known || known && (at < began-int64(time.Millisecond) || at > began+int64(time.Minute)) { // late by what this test takes
			t.Errorf("%s: %v before it was asked, %v", name, time.Duration(now-at), known)
		}
	}
}
