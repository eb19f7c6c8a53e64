package netsim

import (
	"sync"

	"example.org/lockstep/lockstep/internal/record"
)

// Delays records by how much simulated connections deliver pieces later than latency, jitter and bandwidth require, in
// ns. There is one sample per piece and direction, except for pieces delayed by a fault. A piece that arrives before
// the reader reads is on time. Connections share no lock for it. The zero value is ready to use. It is safe for
// concurrent use.
type Delays struct {
	mu    sync.Mutex
	conns map[*conn]bool
	past  record.Hist // of connections that have ended
}

// Take returns the delays since the last call.
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

// adopt starts recording of a connection. d may be nil.
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

// leave keeps the delays of a connection that has ended. d may be nil.
func (d *Delays) leave(c *conn) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
	c.takeDelays(&d.past)
}
