package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// A measurement that is started during the load begins exactly at that time, and has the usual duration.
func TestMeasureLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Warmup, w.Steady.Auto = 0, true
			w.Measure = plan.Duration(2500 * time.Millisecond)
			w.Publishers.Rate, w.Publishers.Threads = 100, 4
		})
		var failed []error
		s.onNew = func(e *Engine) {
			if _, known := e.timeline.warmupEnds(); known || e.Measure(time.Second) == nil {
				t.Error("Measure before the start of the load: got no error, or a known end of the warm-up")
			}
			go func() {
				<-e.started
				time.Sleep(3300 * time.Millisecond)
				for _, at := range []time.Duration{0, 3500 * time.Millisecond, 3 * time.Second} {
					failed = append(failed, e.Measure(at))
				}
				if err := e.Measure(5 * time.Second); err != nil {
					t.Error(err)
				}
				failed = append(failed, e.Measure(6*time.Second))
				if at, known := e.timeline.warmupEnds(); at != 5*time.Second || !known {
					t.Errorf("start of the measurement: got %v, %v, want 5 s, true", at, known)
				}
			}()
		}
		m := s.run(t.Context())
		for i, err := range failed {
			if err == nil {
				t.Errorf("call %d of Measure with an invalid time: got no error", i)
			}
		}
		sent := map[[2]int]int64{}
		for _, w := range m.Windows() {
			measured := 0
			if w.Measured {
				measured = 1
			}
			sent[[2]int{w.Index, measured}] += w.Counts[record.Sent]
			if w.Index == 7 && w.Length != int64(500*time.Millisecond) {
				t.Errorf("length of the last window: got %v, want 500 ms", time.Duration(w.Length))
			}
		}
		for i := range 8 {
			want, measured := int64(100), 0
			if i >= 5 {
				measured = 1
			}
			if i == 7 {
				want = 50
			}
			if sent[[2]int{i, measured}] != want || sent[[2]int{i, 1 - measured}] != 0 {
				t.Errorf("second %d, measured %d: got %d sent, %d with the other value of measured, want %d, 0", i,
					measured, sent[[2]int{i, measured}], sent[[2]int{i, 1 - measured}], want)
			}
		}
		if n := m.Total(record.Sent); n != 750 {
			t.Errorf("got %d sent, want 750", n)
		}
		if n := m.Total(record.Unsent); n != 0 {
			t.Errorf("got %d unsent, want 0", n)
		}
		if n := m.Hist(record.PublishIntended).Count(); n != 250 {
			t.Errorf("got %d publish latencies, want 250", n)
		}
	})
}

// Messages that are due at the end and unsent count, independent of when the end was announced. A cancelled load counts
// nothing.
func TestMeasureLateCountsUnsent(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newTestTask(t, func(w *plan.Workload) {
				w.Warmup, w.Steady.Auto = 0, true
				w.Measure, w.Drain.Timeout = plan.Duration(2*time.Second), plan.Duration(time.Second)
				w.Publishers.Mode, w.Publishers.Rate = "confirm-each", 100
			})
			if !cancelled {
				s.options = `{"confirmDelay": "20ms"}`
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s.onNew = func(e *Engine) {
				go func() {
					<-e.started
					time.Sleep(time.Second)
					if err := e.Measure(3 * time.Second); err != nil {
						t.Error(err)
					}
					if cancelled {
						time.Sleep(2500 * time.Millisecond)
						cancel()
					}
				}()
			}
			m := s.run(ctx)
			if n := m.Total(record.Unsent); (n > 50) == cancelled {
				t.Errorf("cancelled %v: got %d unsent, want more than 50 only if not cancelled", cancelled, n)
			}
		})
	}
}

// A rate profile stays in its first stage until the measurement begins.
func TestProfileBeginsWithMeasurement(t *testing.T) {
	p := plan.Publishers{Arrivals: plan.ArrivalsEven, Profile: []plan.Stage{
		{For: plan.Duration(time.Second), Rate: 10}, {For: plan.Duration(time.Second), Rate: 100}}}
	s := newSchedule(p, 0, 1, 0, 1)
	begins, known := time.Duration(0), false
	s.deferStages(func() (time.Duration, bool) { return begins, known })
	perSecond := map[int]int{}
	last := time.Duration(-1)
	for {
		due := s.Next()
		if due >= 9*time.Second {
			break
		}
		if due <= last {
			t.Fatalf("got intended send time %v after %v, want ascending times", due, last)
		}
		last = due
		perSecond[int(due/time.Second)]++
		if due >= 3*time.Second && !known {
			begins, known = 5*time.Second, true
		}
	}
	for second, want := range []int{10, 10, 10, 10, 10, 10, 100, 10, 100} {
		if perSecond[second] != want {
			t.Errorf("second %d: got %d messages, want %d", second, perSecond[second], want)
		}
	}
}

// If the end is announced late, a context for it ends with the same cause as if it is known from the beginning.
func TestContextsOfALateEnd(t *testing.T) {
	for _, reported := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newTestTask(t, func(w *plan.Workload) {
				w.Warmup, w.Steady.Auto, w.Measure = 0, true,
					plan.Duration(time.Second)
			})
			e, err := New(Config{Assignment: s.assignment()})
			if err != nil {
				t.Fatal(err)
			}
			e.begin(clock.Now())
			defer e.stopSupervision()
			ctx, cancel := e.timeline.until(t.Context(), time.Second)
			derived, stop := context.WithTimeout(ctx, time.Hour)
			defer stop()
			want := context.Canceled
			if reported {
				want = context.DeadlineExceeded
				if err := e.Measure(time.Second); err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(5*time.Second, cancel) // too late
			} else {
				cancel()
			}
			<-derived.Done()
			if ctx.Err() != want || derived.Err() != want || context.Cause(derived) != want {
				t.Errorf("got error %v, error of the derived context %v with cause %v, want %v", ctx.Err(),
					derived.Err(), context.Cause(derived), want)
			}
			cancel()
		})
	}
}
