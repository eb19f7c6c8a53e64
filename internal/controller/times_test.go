package controller

import (
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runview"
	"example.org/lockstep/lockstep/internal/wire"
)

// The start and the end of a run are computed from its record, because a controller that takes over may have no other
// information, and may start long after the end.
func TestDurationOfARunFromItsRecord(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	event := func(kind wire.EventKind, after time.Duration, submission uint64) wire.Entry {
		e := &wire.RunEvent{At: begin.Add(after), Kind: kind}
		if kind == wire.RunEnded {
			e.End = &wire.End{Submission: submission}
		}
		return wire.Entry{Event: e}
	}
	earlier := []wire.Entry{event(wire.RunAccepted, -2*time.Hour, 0), event(wire.RunEnded, -time.Hour, 3)}
	accepted := append(earlier, event(wire.RunAccepted, 0, 0), event(wire.TakenOver, time.Minute, 0))
	for name, x := range map[string]struct {
		record         []wire.Entry
		storedStart    time.Time
		started, ended time.Time
	}{
		"taken over":                     {accepted, time.Time{}, begin, time.Time{}},
		"taken over, later start stored": {accepted, begin.Add(time.Hour), begin, time.Time{}},
		"ended, nothing stored": {append(accepted, event(wire.RunEnded, time.Hour, 4)), time.Time{}, begin,
			begin.Add(time.Hour)},
		"submitted again": {earlier, time.Time{}, time.Time{}, time.Time{}},
	} {
		h := runview.New(plan.Run{})
		for _, e := range x.record {
			h.Apply(e, begin)
		}
		s := wire.RunState{Started: x.storedStart}
		setTimes(&s, h, 4)
		if !s.Started.Equal(x.started) || !s.Ended.Equal(x.ended) {
			t.Errorf("%s: got from %v to %v, want %v to %v", name, s.Started, s.Ended, x.started, x.ended)
		}
	}
}
