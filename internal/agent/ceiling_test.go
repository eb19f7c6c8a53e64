package agent

import (
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/pkg/drivers"
	_ "example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// An agent measures its own limits in each publish mode, with the threads and the message size of the assignment,
// without a broker.
func TestCeiling(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	ceiling := func(id string, change func(*plan.Workload)) wire.Arrival {
		ref := b.assign(id, &probe{}, func(a *plan.Assignment) {
			a.Ceiling, a.Deadline = true, plan.Duration(time.Minute)
			a.Task.Cell.Broker = plan.Broker{}
			change(&a.Task.Cell.Workload)
		})
		return b.awaitArrival(ref, wire.StepOpen)
	}
	for _, mode := range []string{"fire-and-forget", "confirm-window", "connection-per-message-confirm"} {
		got := ceiling(mode, func(w *plan.Workload) { w.Publishers.Mode, w.Publishers.Threads = mode, 2 })
		switch {
		case got.Error != "" || got.Limits == nil:
			t.Errorf("%s: got %+v, want limits and no error", mode, got)
		case got.Limits.Rate <= 0 || got.Limits.EndToEnd <= 0 || (got.Limits.Publish > 0) != drivers.Mode(mode).Confirmed():
			t.Errorf("%s: got %+v, want a rate, an end-to-end latency, and a publish latency only with confirms", mode,
				got.Limits)
		}
	}
	got := ceiling("invalid", func(w *plan.Workload) { w.Message.Size = 1 })
	if want := "measure the load generator on agent a1: assignment has 1 bytes of a message"; !strings.HasPrefix(got.Error, want) {
		t.Errorf("invalid load: got error %q, want %q", got.Error, want)
	}
}
