package wire

import (
	"fmt"
	"strings"
	"testing"

	"lockstep/internal/plan"
)

// TestRoomIsMadeOfWhatWasCopiedAlone fills a small record with runs that have ended.
func TestRoomIsMadeOfWhatWasCopiedAlone(t *testing.T) {
	t.Parallel()
	c := link(t, plane(t, ServerConfig{}))
	lease := campaign(t, c, "test")
	s, err := c.js.Stream(t.Context(), streamRecord)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxBytes = 100_000
	if _, err := c.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for i, state := range []RunState{
		{Run: "copied", State: string(EndDone), Copied: true},
		{Run: "uncopied", State: string(EndDone)},
		{Run: "again", State: string(EndDone), Copied: true},
		{Run: "running", State: StateRunning, Copied: true},
	} {
		r, err := lease.TakeUp(t.Context(), state.Run)
		if err != nil {
			t.Fatal(err)
		}
		state.Seq = uint64(i) + 1
		if err := r.Outcome(t.Context(), plan.Outcome{Task: "t", Run: state.Run, Reasons: []string{fill(23_500)}}); err != nil {
			t.Fatal(err)
		}
		if err := lease.PutRun(t.Context(), state); err != nil {
			t.Fatal(err)
		}
	}
	needed := func(run string) bool { return run == "again" }
	if used, err := lease.used(t.Context()); err != nil || used < 0.9 {
		t.Fatalf("the record is %v full, %v: the test is to begin with more", used, err)
	}
	if full, err := lease.MakeRoom(t.Context(), false, needed); err != nil || full {
		t.Errorf("full: %v, %v", full, err)
	}
	kept, err := c.Stored(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for run, want := range map[string]bool{"copied": false, "uncopied": true, "again": true, "running": true} {
		found := false
		for subject := range kept {
			found = found || strings.HasPrefix(subject, strings.TrimSuffix(recordAll(run), ">"))
		}
		if found != want {
			t.Errorf("the record of run %s is there: %v, want %v", run, found, want)
		}
	}
}

// fill is text that does not become smaller.
func fill(n int) string {
	var b strings.Builder
	for i := uint64(1); b.Len() < n; i++ {
		fmt.Fprintf(&b, "%x", i*0x9E3779B97F4A7C15)
	}
	return b.String()[:n]
}
