package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// Links can break and recover before the start time is known.
func TestJournalBeforeTheStart(t *testing.T) {
	j := newJournal(newTimeline(plan.Default()))
	j.count(record.Reconnects, 1)
	j.observe(0, record.EndToEnd, 1, 1)
	j.event(drivers.EventBlocked, "x")
	c := record.NewCollector(0)
	j.begin(c)
	j.count(record.Reconnects, 1)
	if events := j.take(false); len(events) != 1 || events[0].At != 0 {
		t.Errorf("events: got %+v, want one at time 0", events)
	}
	if windows, _ := c.Take(); len(windows) != 1 || windows[0].Counts[record.Reconnects] != 1 {
		t.Errorf("windows: got %+v, want one with 1 reconnect: that after the start", windows)
	}
}

// The time for which a connection is blocked counts from the beginning of the load, here 2 s before T0.
func TestBlockedBeforeTheLoad(t *testing.T) {
	for unblocked, want := range map[time.Duration]time.Duration{-3 * time.Second: 0, -time.Second: time.Second,
		3 * time.Second: 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := plan.Default()
			w.Warmup = plan.Duration(2 * time.Second)
			j := newJournal(newTimeline(w))
			j.event(drivers.EventBlocked, "before the start time is known")
			c := record.NewCollector(0)
			j.timeline.origin.Store(clock.Now() + int64(10*time.Second))
			j.begin(c)
			time.Sleep(5 * time.Second)
			j.event(drivers.EventBlocked, "before the load")
			time.Sleep(5*time.Second + unblocked)
			j.event(drivers.EventUnblocked, "before the start time is known")
			j.event(drivers.EventUnblocked, "before the load")
			j.take(true)
			m := record.NewMerged()
			windows, _ := c.Take()
			m.Add(record.Snapshot{Agent: "a", Windows: windows})
			if got := time.Duration(m.Total(record.ConnBlockedNanos)); got != 2*want {
				t.Errorf("unblocked at %v: got blocked for %v, want %v", unblocked, got, 2*want)
			}
		})
	}
}
