package hostile

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// TestTasksAreCountedBeforeTheyAreMade submits a run of one cell with two million repetitions in less than 2 KB. It is
// rejected once. Nothing of it stays in the queue, where the next controller would find it.
func TestTasksAreCountedBeforeTheyAreMade(t *testing.T) {
	f := startFleet(t)
	r := aRun("many")
	r.Repeat = 2_000_000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
	end := f.follow("many", func(wire.Entry) {})
	runtime.ReadMemStats(&after)
	if end.Reason != wire.EndRefused || !strings.Contains(end.Detail, "1 cells × 2000000 repetitions") {
		t.Errorf("it ended with %+v", end)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 256<<20 {
		t.Errorf("%d MiB were allocated to refuse it", grown>>20)
	}
	queued, err := f.queued("many")
	for begun := time.Now(); err == nil && queued && time.Since(begun) < within; time.Sleep(20 * time.Millisecond) {
		queued, err = f.queued("many")
	}
	if err != nil || queued {
		t.Errorf("its submission is still in the queue: %v", err)
	}
	f.alive("after the refusal")
}

// queued reports whether the queue contains a submission of a run.
func (f *fleet) queued(run string) (bool, error) {
	kept, err := wiretest.Stored(f.t.Context(), f.js)
	return kept["lockstep.queue.submit."+run] > 0, err
}
