package engine

import (
	"testing"

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
		t.Errorf("events %+v, want one at 0", events)
	}
	if windows, _ := c.Take(); len(windows) != 1 || windows[0].Counts[record.Reconnects] != 1 {
		t.Errorf("windows %+v, want one reconnect: that after the start", windows)
	}
}
