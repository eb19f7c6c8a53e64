package agent

import (
	"math"
	"runtime/metrics"
	"sync/atomic"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/engine"
	"example.org/lockstep/lockstep/internal/netsim"
	"example.org/lockstep/lockstep/internal/record"
)

// runtimeHistograms reads metrics of Go's runtime for this process: pauses of the garbage collector, and how long
// runnable goroutines waited for a processor. The runtime samples one goroutine in eight. The zero value counts from
// the start of the process. It must be used by one goroutine at a time.
//
// The runtime provides histograms of counts per bucket. A bucket is at most a quarter of a power of two wide. Every
// sample counts as the upper end of its bucket. So durations are never too small, and at most a quarter too large.
type runtimeHistograms struct {
	samples []metrics.Sample
	before  [][]uint64
}

// runtimeSeries maps series of the record to metrics of the runtime.
var runtimeSeries = []struct {
	series record.Series
	metric string
}{
	{record.GCPause, "/sched/pauses/total/gc:seconds"},
	{record.Scheduling, "/sched/latencies:seconds"},
}

// read calls f with each duration since the last call of read, and its number of samples. f may be nil.
func (r *runtimeHistograms) read(f func(s record.Series, ns int64, n uint64)) {
	if r.samples == nil {
		for _, s := range runtimeSeries {
			r.samples = append(r.samples, metrics.Sample{Name: s.metric})
		}
		r.before = make([][]uint64, len(runtimeSeries))
	}
	metrics.Read(r.samples)
	for i, s := range r.samples {
		if s.Value.Kind() != metrics.KindFloat64Histogram { // a later release of Go may not provide it
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

// upper returns the end of a bucket in nanoseconds, or its start if the end is infinite.
func upper(from, to float64) int64 {
	if math.IsInf(to, 1) {
		to = max(0, from)
	}
	return int64(math.Round(to * 1e9))
}

// runtimeReporter is the attempt that reports the runtime of this process. Agents of a local run share a process, and
// would otherwise report it several times.
var runtimeReporter atomic.Pointer[runtimeMetrics]

// runtimeMetrics passes metrics of the runtime and of the simulated network to an engine. It must be used by one
// goroutine at a time.
type runtimeMetrics struct {
	delays     *netsim.Delays // nil: no network is simulated
	histograms runtimeHistograms
	at         int64 // clock.Now() of the last reading
	simulated  bool  // the runtime is not measured
}

// newRuntimeMetrics starts to measure. With the path of a simulated proc file system, it does not measure the runtime.
// The caller must close it, so that another attempt can report the runtime.
func newRuntimeMetrics(delays *netsim.Delays, proc string) *runtimeMetrics {
	r := &runtimeMetrics{delays: delays, at: clock.Now(), simulated: proc != defaultProc}
	r.histograms.read(nil)
	return r
}

// observe passes the metrics since its last call to the engine. Only the first attempt that calls it reports the
// runtime, until that attempt is closed.
func (r *runtimeMetrics) observe(e *engine.Engine) {
	now := clock.Now()
	middle := r.at + (now-r.at)/2
	r.at = now
	if r.delays != nil {
		r.delays.Take().Each(func(ns int64, n uint64) { e.Observe(middle, record.NetworkDelay, ns, n) })
	}
	if r.simulated {
		return
	}
	if !runtimeReporter.CompareAndSwap(nil, r) && runtimeReporter.Load() != r {
		r.histograms.read(nil) // the same metrics must not be reported again later
		return
	}
	r.histograms.read(func(s record.Series, ns int64, n uint64) { e.Observe(middle, s, ns, n) })
}

func (r *runtimeMetrics) close() { runtimeReporter.CompareAndSwap(r, nil) }
