package agent

import (
	"math"
	"runtime/metrics"
	"sync/atomic"

	"lockstep/internal/clock"
	"lockstep/internal/record"
)

// runtimeFigures reads what Go's runtime knows of this process: its pauses for garbage collection, and how long goroutines that could run
// waited for a processor (of which it samples one in eight). The zero value counts from the start of the process. One goroutine at a time.
//
// The runtime keeps histograms of which only the counts of buckets are known, each a quarter of a power of two wide or less. Every sample is
// taken for the upper end of its bucket: figures are never too small, and at most a quarter too large.
type runtimeFigures struct {
	samples []metrics.Sample
	before  [][]uint64
}

// runtimeSeries are the runtime's names of what is read.
var runtimeSeries = []struct {
	series record.Series
	metric string
}{
	{record.GCPause, "/sched/pauses/total/gc:seconds"},
	{record.Scheduling, "/sched/latencies:seconds"},
}

// read calls f with what has happened since it was called last, each duration with its number; f may be nil.
func (r *runtimeFigures) read(f func(s record.Series, ns int64, n uint64)) {
	if r.samples == nil {
		for _, s := range runtimeSeries {
			r.samples = append(r.samples, metrics.Sample{Name: s.metric})
		}
		r.before = make([][]uint64, len(runtimeSeries))
	}
	metrics.Read(r.samples)
	for i, s := range r.samples {
		if s.Value.Kind() != metrics.KindFloat64Histogram { // a later release of Go may not have it
			continue
		}
		h := s.Value.Float64Histogram()
		for j, n := range h.Counts {
			if j < len(r.before[i]) {
				n -= r.before[i][j]
			}
			if n > 0 && f != nil {
				f(runtimeSeries[i].series, upper(h.Buckets[j], h.Buckets[j+1]), n)
			}
		}
		r.before[i] = append(r.before[i][:0], h.Counts...)
	}
}

// upper is the end of a bucket in nanoseconds, or its beginning where it has none.
func upper(least, most float64) int64 {
	if math.IsInf(most, 1) {
		most = max(0, least)
	}
	return int64(math.Round(most * 1e9))
}

// observer is the task whose agent reports the figures of this process: agents may share one (local runs), and would count them several times.
var observer atomic.Pointer[task]

// observes tells whether the task is that one; the first that asks is, until it closes.
func (t *task) observes() bool { return observer.CompareAndSwap(nil, t) || observer.Load() == t }

// observe gives the engine what the simulated network and, if this agent is the one that reports it, the runtime
// measured since they were asked last. The caller holds sending.
func (t *task) observe() {
	e, now := t.theEngine(), clock.Now()
	middle := t.observed + (now-t.observed)/2
	t.observed = now
	if t.delays != nil {
		t.delays.Take().Each(func(ns int64, n uint64) { e.Observe(middle, record.NetworkDelay, ns, n) })
	}
	if !t.observes() {
		return
	}
	t.runtime.read(func(s record.Series, ns int64, n uint64) { e.Observe(middle, s, ns, n) })
}
