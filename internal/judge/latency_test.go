package judge

import (
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// A measurement of 10 s has two full intervals of 4 s. The last 2 s do not count.
func TestHighestOfFullIntervals(t *testing.T) {
	x := newWorld(func(w *plan.Workload) { w.Interval = plan.Duration(4 * time.Second) })
	x.steady(100, atOnce)
	later := x.log.Recorder()
	at := func(second int, latency time.Duration, n int) {
		w := later.Window(int64(time.Duration(second)*time.Second), true)
		for range n {
			w.Record(record.Publish, int64(latency))
		}
	}
	at(1, 20*time.Millisecond, 50) // of 1150 samples in 0–4 s: 4.3 %
	at(5, 70*time.Millisecond, 10) // the only samples in 4–8 s
	at(9, time.Second, 1000)       // after the last full interval
	later.Flush()
	o := x.judge()
	near(t, o, "publish.p95.highest", 0.07)
	near(t, o, "publish.p50.highest", 0.07)
	if whole := o.Values["publish.p95"].Number; whole < 0.9 {
		t.Errorf("publish.p95 of the whole is %v, want the second of the tail", whole)
	}
}

// Messages of a stall that lasts into the drain belong to the measurement, and to its worst interval.
func TestHighestOfAStallAtTheEnd(t *testing.T) {
	x := newWorld(func(w *plan.Workload) { w.Interval = plan.Duration(5 * time.Second) })
	x.steady(100, atOnce)
	late := x.log.Recorder()
	w := late.Window(int64(13*time.Second), true)
	for range 500 {
		w.Record(record.Publish, int64(4*time.Second))
	}
	late.Flush()
	o := x.judge()
	near(t, o, "publish.p95.highest", 4)
	if whole := o.Values["publish.p95"].Number; o.Values["publish.p95.highest"].Number < whole*0.999 {
		t.Errorf("the highest p95 of intervals that are all of the measurement is below %v, that of the whole", whole)
	}
}

func TestNoFullInterval(t *testing.T) {
	x := newWorld(nil) // one minute
	x.steady(100, atOnce)
	o := x.judge()
	na(t, o, "publish.p95.highest", naNoInterval)
	x = newWorld(func(w *plan.Workload) {
		w.Publishers.Mode, w.Interval = "fire-and-forget",
			plan.Duration(time.Second)
	})
	x.steady(100, atOnce)
	na(t, x.judge(), "publish.p95.highest", NAFireAndForget)
}

// Flags of a latency also apply to its worst interval, which may be the only value in a table.
func TestHighestCarryTheFlags(t *testing.T) {
	x := newWorld(func(w *plan.Workload) { w.Interval = plan.Duration(4 * time.Second) })
	x.steady(100, atOnce)
	x.count(time.Second, record.PortsExhausted, 1)
	flagged(t, x.judge(), plan.ClientBound, true, "publish.p95", "publish.p95.highest", "e2e.p95.highest")
}
