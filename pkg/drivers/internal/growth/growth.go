// Package growth makes rates of counters that brokers tell of again and again.
package growth

import (
	"sync"
	"time"
)

// Counters remembers what counters said last. The zero value is ready; it is safe for concurrent use.
type Counters struct {
	mu   sync.Mutex
	last map[string]reading
}

type reading struct {
	at    time.Time
	value float64
}

// PerSecond notes what a counter says now, and by how much it has grown a second since the last time. That is not known
// of the first time, and of a counter that fell, as it does when its server starts again.
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
