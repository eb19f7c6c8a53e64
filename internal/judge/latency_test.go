package judge

import (
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// A measurement of 10 s has two full intervals of 4 s. The last 2 s do not count.
func TestHighestOfFullIntervals(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Interval = plan.Duration(4 * time.Second) })
	x.steadyLoad(100, deliverAtOnce)
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
	checkValue(t, o, "publish.p95.highest", 0.07)
	checkValue(t, o, "publish.p50.highest", 0.07)
	if whole := o.Values["publish.p95"].Number; whole < 0.9 {
		t.Errorf("publish.p95 of the whole measurement: got %v, want at least 0.9 s", whole)
	}
}

// Messages of a stall that lasts into the drain belong to the measurement, and to its worst interval.
func TestHighestOfAStallAtTheEnd(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Interval = plan.Duration(5 * time.Second) })
	x.steadyLoad(100, deliverAtOnce)
	late := x.log.Recorder()
	w := late.Window(int64(13*time.Second), true)
	for range 500 {
		w.Record(record.Publish, int64(4*time.Second))
	}
	late.Flush()
	o := x.judge()
	checkValue(t, o, "publish.p95.highest", 4)
	if whole := o.Values["publish.p95"].Number; o.Values["publish.p95.highest"].Number < whole*0.999 {
		t.Errorf("publish.p95.highest: got %v, want at least %v: publish.p95 of the whole measurement",
			o.Values["publish.p95.highest"].Number, whole)
	}
}

func TestNoFullInterval(t *testing.T) {
	x := newTaskBuilder(nil) // one minute
	x.steadyLoad(100, deliverAtOnce)
	o := x.judge()
	checkNA(t, o, "publish.p95.highest", naNoInterval)
	x = newTaskBuilder(func(w *plan.Workload) {
		w.Publishers.Mode, w.Interval = "fire-and-forget",
			plan.Duration(time.Second)
	})
	x.steadyLoad(100, deliverAtOnce)
	checkNA(t, x.judge(), "publish.p95.highest", NAFireAndForget)
}

// Flags of a latency also apply to its worst interval, which may be the only value in a table.
func TestHighestQuantilesHaveTheFlags(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Interval = plan.Duration(4 * time.Second) })
	x.steadyLoad(100, deliverAtOnce)
	x.count(time.Second, record.PortsExhausted, 1)
	checkFlag(t, x.judge(), plan.ClientBound, true, "publish.p95", "publish.p95.highest", "e2e.p95.highest")
}
