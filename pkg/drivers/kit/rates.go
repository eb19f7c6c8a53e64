package kit

import (
	"sync"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Rates computes rates from counters that are read repeatedly. It stores their last values by name. The zero value is
// ready to use. It is safe for concurrent use.
type Rates struct {
	mu   sync.Mutex
	last map[string]reading
}

type reading struct {
	at    time.Time
	value float64
}

// PerSecond stores a counter's value, and returns its growth per second since the last call. known is false for the
// first value, and after a decrease, which happens when the server restarts.
func (r *Rates) PerSecond(counter string, value float64) (rate float64, known bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	before, noted := r.last[counter]
	if r.last == nil {
		r.last = map[string]reading{}
	}
	r.last[counter] = reading{at: now, value: value}
	passed := now.Sub(before.at).Seconds()
	if !noted || passed <= 0 || value < before.value {
		return 0, false
	}
	return (value - before.value) / passed, true
}

// AppendMetric appends the rate of a counter of a broker as a metric, if it is known.
func (r *Rates) AppendMetric(metrics []drivers.Metric, name, broker string, value float64) []drivers.Metric {
	if rate, known := r.PerSecond(name+" "+broker, value); known {
		metrics = append(metrics, drivers.Metric{Name: name, Value: rate})
	}
	return metrics
}
