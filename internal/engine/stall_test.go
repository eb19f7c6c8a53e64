package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// The broker stalls for ever during the measurement. The task ends within the limit of the drain, and there is a gap
// until the end.
func TestAStallBeyondTheEndEndsTheTaskAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Mode, w.Publishers.Rate = "confirm-each", 100
		})
		s.options = `{"stalls":[{"at":"500ms","for":"1h"}]}` // the first message is at -200 ms
		begin := time.Now()
		m := s.play(t.Context())
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("took %v, want the drain's limit of 5 s and a little", took)
		}
		accounting := m.Accounting(1)
		if accounting.Unconfirmed != 1 || accounting.Missing != 1 {
			t.Errorf("%+v; want the one message that was in flight unconfirmed and missing", accounting)
		}
		if n := m.Total(record.Unsent); n != 69 { // due from 0.31 s to 0.99 s, behind the unconfirmed message
			t.Errorf("%d messages counted as due and not sent, want 69", n)
		}
		var longest int64
		for _, g := range m.Gaps() {
			if g.Kind == record.GapConfirm {
				longest = max(longest, min(g.To, int64(time.Second))-g.From)
			}
		}
		if want := int64(700 * time.Millisecond); longest < want-int64(20*time.Millisecond) ||
			longest > want+int64(20*time.Millisecond) {
			t.Errorf("longest time without a confirm %v, want about 700 ms", time.Duration(longest))
		}
	})
}
