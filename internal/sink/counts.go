package sink

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// Counters add up the points of the sinks that share them. The zero value is ready to use. Safe for concurrent use.
type Counters struct{ written, dropped, left atomic.Int64 }

// Points returns the numbers of points that were written, were dropped during runs, and were left by replays. The
// receiver may be nil.
func (c *Counters) Points() (written, dropped, left int64) {
	if c == nil {
		return 0, 0, 0
	}
	return c.written.Load(), c.dropped.Load(), c.left.Load()
}

// counts are the counts of one sink. Safe for concurrent use.
type counts struct {
	mu      sync.Mutex
	d       plan.Delivery
	into    *Counters     // not nil after begin
	changed chan struct{} // capacity 1: has a value after points left the queue or were counted
}

func (c *counts) begin(to Target) {
	c.changed, c.into = make(chan struct{}, 1), &Counters{}
	c.d = plan.Delivery{URL: to.scrub.Scrub(to.url), Org: to.org, Bucket: to.bucket, Began: time.Now().UTC(),
		Why: map[string]int64{}}
}

func (c *counts) change(f func(*plan.Delivery)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.d)
}

func (c *counts) wrote(n int) {
	c.change(func(d *plan.Delivery) { d.Written += int64(n) })
	c.into.written.Add(int64(n))
	signal(c.changed)
}

func (c *counts) drop(why string, n int) {
	if n == 0 {
		return
	}
	c.change(func(d *plan.Delivery) {
		if d.Replayed {
			d.Left += int64(n)
			c.into.left.Add(int64(n))
		} else {
			d.Dropped += int64(n)
			c.into.dropped.Add(int64(n))
		}
		d.Why[why] += int64(n)
	})
	signal(c.changed)
}

// refuse counts points that InfluxDB permanently refuses.
func (c *counts) refuse(status int, why string, n int) {
	c.change(func(d *plan.Delivery) { d.Refused = status })
	c.drop(why, n)
}

func (c *counts) delivery() plan.Delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.d
	if d.Ended.IsZero() {
		d.Ended = time.Now().UTC()
	}
	d.Why = maps.Clone(d.Why)
	return d
}
