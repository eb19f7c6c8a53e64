package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// The broker stalls during the measurement and does not recover. The task ends within the drain timeout, and the gap
// lasts until the end.
func TestStallBeyondTheMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Mode, w.Publishers.Rate = "confirm-each", 100
		})
		s.options = `{"stalls":[{"at":"500ms","for":"1h"}]}` // the first message is at -200 ms
		begin := time.Now()
		m := s.run(t.Context())
		if elapsed := time.Since(begin); elapsed > 20*time.Second {
			t.Errorf("duration of the run: got %v, want at most 20 s (drain timeout 5 s)", elapsed)
		}
		accounting := m.Accounting(1)
		if accounting.Unconfirmed != 1 || accounting.Missing != 1 {
			t.Errorf("accounting: got %+v, want 1 unconfirmed, 1 missing: the message in flight", accounting)
		}
		if n := m.Total(record.Unsent); n != 69 { // due from 0.31 s to 0.99 s, behind the unconfirmed message
			t.Errorf("got %d unsent messages, want 69", n)
		}
		var longest int64
		for _, g := range m.Gaps() {
			if g.Kind == record.GapConfirm {
				longest = max(longest, min(g.To, int64(time.Second))-g.From)
			}
		}
		if want := int64(700 * time.Millisecond); longest < want-int64(20*time.Millisecond) ||
			longest > want+int64(20*time.Millisecond) {
			t.Errorf("longest gap without a confirm: got %v, want about 700 ms", time.Duration(longest))
		}
	})
}
