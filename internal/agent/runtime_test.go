package agent

import (
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire"
)

// Each read has what happened since the one before, and at least so much: the pauses of collections that are asked for, and waits that
// goroutines on a single processor have to have for one that does not let go.
func TestRuntimeFiguresAreOfTheTimeBetweenReads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var r runtimeFigures
	read := func() (pauses uint64, longest int64) {
		r.read(func(s record.Series, ns int64, n uint64) {
			if s == record.GCPause {
				pauses += n
			} else {
				longest = max(longest, ns)
			}
		})
		return pauses, longest
	}
	r.read(nil)
	for range 10 {
		runtime.GC()
	}
	if pauses, _ := read(); pauses < 10 {
		t.Errorf("%d pauses in ten collections", pauses)
	}
	if pauses, _ := read(); pauses > 2 {
		t.Errorf("%d pauses in no time at all", pauses)
	}
	const hog = 3 * time.Millisecond
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			for begin := time.Now(); time.Since(begin) < hog; {
			}
		})
	}
	wg.Wait()
	if _, longest := read(); longest < int64(hog) {
		t.Errorf("goroutines waited for others of %v each, for %v at most", hog, time.Duration(longest))
	}
}

func TestUpperEndOfABucket(t *testing.T) {
	for _, x := range []struct {
		least, most float64
		want        int64
	}{{1e-6, 1.25e-6, 1250}, {math.Inf(-1), 0, 0}, {0, 1e-9, 1}, {2, math.Inf(1), 2_000_000_000}} {
		if got := upper(x.least, x.most); got != x.want {
			t.Errorf("%v to %v: %d, want %d", x.least, x.most, got, x.want)
		}
	}
}

// Agents that share a process report its figures once.
func TestOneAgentOfAProcessReportsItsRuntime(t *testing.T) {
	first, second := new(task), new(task)
	defer observer.Store(nil)
	if !first.observes() || second.observes() || !first.observes() {
		t.Error("two tasks report the same process")
	}
	first.close()
	if !second.observes() {
		t.Error("nobody reports once the first task is over")
	}
	second.close()
}

// What the runtime measured travels in the windows, and the polling of the clock with the figures of the host.
func TestFiguresOfTheProcessAreReported(t *testing.T) {
	b, d := newBench(t), &probe{}
	ref := b.assign("t1", d, func(a *plan.Assignment) {
		brief(0, 700*time.Millisecond)(a)
		a.Task.Cell.Workload.Publishers.Rate = 20_000
	})
	b.begin(ref)
	var waits uint64
	var spin float64
	until := func(step wire.Step) {
		for e := range b.entries {
			if s := e.Snapshot; s != nil {
				spin += s.Host.AgentSpin
				for _, w := range s.Windows {
					if h := w.Hists[record.Scheduling]; h != nil && w.Measured {
						waits += h.Count()
					}
				}
			}
			if e.Arrival != nil && e.Arrival.Step == step {
				return
			}
		}
	}
	until(wire.StepStart)
	b.release(ref, wire.Release{Step: wire.StepDrain})
	until(wire.StepDrain)
	if waits == 0 || spin == 0 {
		t.Errorf("%d waits for a processor and %v cores of polling were reported", waits, spin)
	}
	b.end(ref)
}
