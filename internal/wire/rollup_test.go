package wire

import (
	"testing"

	"lockstep/internal/schedule"
)

var aDefinition = schedule.Definition{Name: "x", Cron: "@daily", Zone: "UTC", Missed: schedule.MissedSkip, Overlap: schedule.OverlapSkip,
	Matrix: schedule.Matrix{File: "x.cue", Text: "package matrix"}}

// Streams of an earlier release, which allowed it, are changed.
func TestBucketsOfAnEarlierReleaseLoseRollups(t *testing.T) {
	c := link(t, plane(t, ServerConfig{}))
	for _, name := range []string{stateStream, scheduleStream} {
		s, err := c.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		cfg.AllowRollup = true
		if _, err := c.js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{stateStream, scheduleStream} {
		if s, err := c.js.Stream(t.Context(), name); err != nil || s.CachedInfo().Config.AllowRollup {
			t.Errorf("%s still allows rollups (%v)", name, err)
		}
	}
}
