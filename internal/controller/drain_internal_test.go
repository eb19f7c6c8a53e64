package controller

import (
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// An agent whose process did not run for a while reports one second after it: its idle time is not proven by the time
// that has passed, but by the seconds that it reports.
func TestIdleTimeIsReportedByAgents(t *testing.T) {
	a := &attempt{parts: []*part{{}}}
	a.work.Drain.Idle = plan.Duration(5 * time.Second)
	second := func(n int64) int64 { return n * int64(time.Second) }
	report := func(at, delivery int64) bool {
		a.traffic.add(a.parts[0], &record.Snapshot{At: second(at), LastSend: second(2), LastDelivery: second(delivery)}, 0)
		return a.uncertain()
	}
	for _, x := range []struct {
		at, delivery int64
		uncertain    bool
	}{
		{3, 3, true},
		{20, 3, true}, // it did not run from 3 s to 20 s, and has not received what is waiting for it
		{21, 20, true},
		{22, 20, true}, {23, 20, true}, {24, 20, true},
		{25, 20, false},
		{26, 26, true},
	} {
		if got := report(x.at, x.delivery); got != x.uncertain {
			t.Errorf("snapshot of second %d with the last delivery in second %d: uncertain is %v, want %v", x.at, x.delivery, got,
				x.uncertain)
		}
	}
	a.parts[0].dropped = true
	if a.uncertain() {
		t.Error("uncertain because of a lost agent")
	}
}
