package netsim

import (
	"sync"

	"lockstep/internal/record"
)

// Delays collect by how much simulated connections hand over pieces later than latency, jitter and bandwidth ask for,
// in ns: each way by itself, and one sample for each piece, unless a fault holds it. A piece that arrives before the
// reader asks for it is in time. Connections share no lock for it. The zero value is ready. Safe for concurrent use.
type Delays struct {
	mu    sync.Mutex
	conns map[*conn]bool
	past  record.Hist // of connections that have ended
}

// Take returns the delays since it was called last.
func (d *Delays) Take() *record.Hist {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.past.Clone()
	d.past.Reset()
	for c := range d.conns {
		c.takeDelays(all)
	}
	return all
}

// adopt begins to record a connection. d may be nil.
func (d *Delays) adopt(c *conn) {
	if d == nil {
		return
	}
	c.in.delays, c.out.delays = record.NewHist(), record.NewHist()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conns == nil {
		d.conns = map[*conn]bool{}
	}
	d.conns[c] = true
}

// leave keeps the delays of a connection that ends. d may be nil.
func (d *Delays) leave(c *conn) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
	c.takeDelays(&d.past)
}

func (c *conn) takeDelays(into *record.Hist) {
	for _, l := range []*line{c.in, c.out} {
		l.mu.Lock()
		into.Merge(l.delays)
		l.delays.Reset()
		l.mu.Unlock()
	}
}
