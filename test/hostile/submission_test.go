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
// rejected once, and removed from the queue. Otherwise the next controller would read it again.
func TestTasksAreCountedBeforeTheyAreMade(t *testing.T) {
	f := startFleet(t)
	r := newRun("many")
	r.Repeat = 2_000_000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
	end := f.readRun("many", func(wire.Entry) {})
	runtime.ReadMemStats(&after)
	if end.Reason != wire.EndRefused || !strings.Contains(end.Detail, "1 cells × 2000000 repetitions") {
		t.Errorf("end of the run: got %+v, want reason %s with the number of tasks", end, wire.EndRefused)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 256<<20 {
		t.Errorf("memory allocated to reject the run: got %d MiB, want at most 256", grown>>20)
	}
	queued, err := f.isQueued("many")
	for start := time.Now(); err == nil && queued && time.Since(start) < timeLimit; time.Sleep(20 * time.Millisecond) {
		queued, err = f.isQueued("many")
	}
	if err != nil || queued {
		t.Errorf("submission in the queue after the rejection: got %v, error %v, want false", queued, err)
	}
	f.checkController("the rejection")
}

// isQueued reports whether the queue contains a submission of a run.
func (f *fleet) isQueued(run string) (bool, error) {
	messages, err := wiretest.Stored(f.t.Context(), f.js)
	return messages["lockstep.queue.submit."+run] > 0, err
}
