package agent

import (
	"math"
	"runtime/metrics"
	"sync/atomic"

	"lockstep/internal/clock"
	"lockstep/internal/engine"
	"lockstep/internal/netsim"
	"lockstep/internal/record"
)

// runtimeHistograms reads what Go's runtime measures of this process: its pauses for garbage collection, and how long
// goroutines that could run waited for a processor (of which it samples one in eight). The zero value counts from the
// start of the process. One goroutine at a time.
//
// The runtime keeps histograms of which only the counts of buckets are known, each a quarter of a power of two wide or
// less. Every sample is taken for the upper end of its bucket: durations are never too small, and at most a quarter
// too large.
type runtimeHistograms struct {
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
func (r *runtimeHistograms) read(f func(s record.Series, ns int64, n uint64)) {
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
func upper(from, to float64) int64 {
	if math.IsInf(to, 1) {
		to = max(0, from)
	}
	return int64(math.Round(to * 1e9))
}

// runtimeReporter is the attempt that reports the runtime of this process: agents may share one (local runs), and would
// count it several times.
var runtimeReporter atomic.Pointer[runtimeMetrics]

// runtimeMetrics gives an engine what the runtime and the simulated network measured. One goroutine at a time.
type runtimeMetrics struct {
	delays     *netsim.Delays // nil: no network is simulated
	histograms runtimeHistograms
	at         int64 // clock.Now() when they were read
}

// newRuntimeMetrics begins to measure. The caller closes it, so that another attempt reports the runtime.
func newRuntimeMetrics(delays *netsim.Delays) *runtimeMetrics {
	r := &runtimeMetrics{delays: delays, at: clock.Now()}
	r.histograms.read(nil)
	return r
}

// observe gives the engine what was measured since the last time. The runtime is reported by the first attempt that
// comes, until that is closed.
func (r *runtimeMetrics) observe(e *engine.Engine) {
	now := clock.Now()
	middle := r.at + (now-r.at)/2
	r.at = now
	if r.delays != nil {
		r.delays.Take().Each(func(ns int64, n uint64) { e.Observe(middle, record.NetworkDelay, ns, n) })
	}
	if !runtimeReporter.CompareAndSwap(nil, r) && runtimeReporter.Load() != r {
		r.histograms.read(nil) // so that what another attempt reports is not reported again
		return
	}
	r.histograms.read(func(s record.Series, ns int64, n uint64) { e.Observe(middle, s, ns, n) })
}

func (r *runtimeMetrics) close() { runtimeReporter.CompareAndSwap(r, nil) }
