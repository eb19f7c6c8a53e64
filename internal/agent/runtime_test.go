package agent

import (
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// Each read covers the time since the previous one. It contains at least the known events: the pauses of forced
// collections, and the waits of goroutines for the only processor.
func TestRuntimeMetricsCoverTheTimeBetweenReads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var r runtimeHistograms
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
		t.Errorf("pauses of ten garbage collections: got %d, want at least 10", pauses)
	}
	if pauses, _ := read(); pauses > 2 {
		t.Errorf("pauses in a second read at once: got %d, want at most 2", pauses)
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
		t.Errorf("longest wait of a goroutine: got %v, want at least %v", time.Duration(longest), hog)
	}
}

func TestUpperEndOfABucket(t *testing.T) {
	for _, x := range []struct {
		from, to float64
		want     int64
	}{{1e-6, 1.25e-6, 1250}, {math.Inf(-1), 0, 0}, {0, 1e-9, 1}, {2, math.Inf(1), 2_000_000_000}} {
		if got := upper(x.from, x.to); got != x.want {
			t.Errorf("upper(%v, %v): got %d, want %d", x.from, x.to, got, x.want)
		}
	}
}

// TestOneAgentOfAProcessReportsItsRuntime proves that only the first of two concurrent tasks of an agent reports the
// metrics of the runtime. After its end the other one reports them, without the earlier ones.
func TestOneAgentOfAProcessReportsItsRuntime(t *testing.T) {
	wiretest.AloneInVirtualTime(t, func(t *testing.T) {
		b, d := newHarness(t, func(c *Config) { c.Slots = 2 }), &probe{}
		instances := b.instancesOf("a1", "a1.2")
		var refs []wire.Ref
		pauses, samples := map[wire.Ref]uint64{}, map[wire.Ref]int{}
		until := func(enough func() bool) {
			t.Helper()
			for timeout := time.After(30 * time.Second); !enough(); {
				select {
				case e := <-b.reports:
					if e.Snapshot == nil {
						continue
					}
					if e.Snapshot.Host.PID != 0 {
						samples[e.Ref]++
					}
					for _, w := range e.Snapshot.Windows {
						if h := w.Hists[record.GCPause]; h != nil {
							pauses[e.Ref] += h.Count()
						}
					}
				case <-timeout:
					t.Fatalf("tasks %v: got %v pauses in %v samples, want more", refs, pauses, samples)
				}
			}
		}
		for _, name := range []string{"a1", "a1.2"} {
			b.instance = instances[name]
			ref := b.assign("t"+name, d, func(a *plan.Assignment) {
				loadFor(0, time.Minute)(a)
				a.Agent, a.Deadline = name, plan.Duration(5*time.Minute)
			})
			b.startTask(ref)
			refs = append(refs, ref)
			until(func() bool { return samples[ref] > 0 }) // its session has sampled the runtime
		}
		collect := func(n int) {
			for range n {
				runtime.GC() // two pauses
			}
		}
		collect(100)
		until(func() bool { return pauses[refs[0]] >= 200 && samples[refs[1]] > 3 })
		if n := pauses[refs[1]]; n != 0 {
			t.Errorf("pauses reported by the second task: got %d, want 0", n)
		}
		b.release(refs[0], wire.Release{Step: wire.StepFinish})
		b.release(refs[0], wire.Release{Step: wire.StepDone})
		ended := samples[refs[1]] + 2
		until(func() bool { return samples[refs[1]] >= ended })
		collect(50)
		until(func() bool { return pauses[refs[1]] >= 100 })
		if pauses[refs[1]] >= 200 {
			t.Errorf("pauses reported by the second task after the end of the first: got %d, want about 100",
				pauses[refs[1]])
		}
	})
}

// Metrics of the runtime are in the windows, and those of clock polling are with the metrics of the host.
func TestMetricsOfTheProcessAreReported(t *testing.T) {
	b, d := newHarness(t), &probe{}
	ref := b.assign("t1", d, func(a *plan.Assignment) {
		loadFor(0, 700*time.Millisecond)(a)
		a.Task.Cell.Workload.Publishers.Rate = 20_000
	})
	b.startTask(ref)
	var waits uint64
	var spin float64
	until := func(step wire.Step) {
		for e := range b.reports {
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
		t.Errorf("got %d waits of goroutines, %v cores of clock polling, want more than 0 of each", waits, spin)
	}
	b.finishTask(ref)
}
