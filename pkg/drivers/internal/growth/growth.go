// Package growth computes rates from counters that are read repeatedly.
package growth

import (
	"sync"
	"time"
)

// Counters stores the last values of counters by name. The zero value is ready to use. It is safe for concurrent use.
type Counters struct {
	mu   sync.Mutex
	last map[string]reading
}

type reading struct {
	at    time.Time
	value float64
}

// PerSecond stores a counter's value, and returns its growth per second since the last call. known is false for the
// first value, and after a decrease, which happens when the server restarts.
func (c *Counters) PerSecond(counter string, value float64) (rate float64, known bool) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	before, noted := c.last[counter]
	if c.last == nil {
		c.last = map[string]reading{}
	}
	c.last[counter] = reading{at: now, value: value}
	passed := now.Sub(before.at).Seconds()
	if !noted || passed <= 0 || value < before.value {
		return 0, false
	}
	return (value - before.value) / passed, true
}
