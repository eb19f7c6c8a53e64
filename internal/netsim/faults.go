package netsim

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
)

// Faults injects faults into the connections of dialers that were created with it, and undoes them. One fault at a time
// is active, until Hit.End. It is safe for concurrent use. A dialer with Faults creates simulated connections even if
// all other conditions are zero.
type Faults struct {
	mu     sync.Mutex
	random *rand.Rand
	conns  []*conn // open, in the order of their creation
	now    *trouble
}

// trouble is the active fault.
type trouble struct {
	kind      troubleKind
	latency   int64 // ns of a round trip
	bandwidth int64
	hit       map[*conn]bool
	spared    int           // number of open connections that are not affected; new ones beyond this number are
	over      chan struct{} // closed by end
}

type troubleKind uint8

const (
	cut troubleKind = iota
	stall
	slowed
)

// NewFaults returns a Faults without an active fault. The seed determines which connections are selected for a share.
func NewFaults(seed uint64) *Faults { return &Faults{random: rand.New(rand.NewPCG(seed, 1))} }

// Hit is the number of connections that a fault affects, of all open ones.
type Hit struct {
	Of, All int
	faults  *Faults
	fault   *trouble
}

// End undoes the fault. It has no effect if another fault has begun since, which ended this one.
func (h Hit) End() {
	h.faults.mu.Lock()
	defer h.faults.mu.Unlock()
	if h.faults.now == h.fault {
		h.faults.end()
	}
}

// Cut resets a share (0 … 1) of the connections at both ends. It refuses new ones until its end, except while fewer
// are open than were spared.
func (f *Faults) Cut(share float64) Hit { return f.begin(&trouble{kind: cut}, share) }

// Stall holds back all bytes on a share of the connections, in both directions, and dials, until its end. Then
// everything arrives. Bytes written in the meantime wait in the connection's buffer.
func (f *Faults) Stall(share float64) Hit { return f.begin(&trouble{kind: stall}, share) }

// Slow adds latency to the round trip of a share of the connections until its end. It limits their bandwidth in bytes
// per second and direction; 0 is no limit. Bytes keep their order.
func (f *Faults) Slow(share float64, latency time.Duration, bandwidth int64) Hit {
	return f.begin(&trouble{kind: slowed, latency: int64(latency), bandwidth: bandwidth}, share)
}

// begin ends the active fault and starts the next.
func (f *Faults) begin(t *trouble, share float64) Hit {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end()
	t.over, t.hit = make(chan struct{}), map[*conn]bool{}
	all := slices.Clone(f.conns)
	n := int(share*float64(len(all)) + 0.5)
	if share > 0 && len(all) > 0 {
		n = max(n, 1)
	}
	t.spared = len(all) - n
	f.random.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	f.now = t
	for _, c := range all[:n] {
		t.hit[c] = true
		t.do(c)
	}
	if t.kind == cut {
		f.conns = slices.DeleteFunc(f.conns, func(c *conn) bool { return t.hit[c] })
	}
	return Hit{n, len(all), f, t}
}

// end undoes the active fault, if any. The caller holds mu.
func (f *Faults) end() {
	t := f.now
	if t == nil {
		return
	}
	f.now = nil
	for c := range t.hit {
		t.undo(c)
	}
	close(t.over)
}

func (t *trouble) do(c *conn) {
	switch t.kind {
	case cut:
		c.reset()
	case stall:
		c.in.hold(true)
		c.out.hold(true)
	case slowed:
		c.in.change(t.latency, t.bandwidth)
		c.out.change(t.latency, t.bandwidth)
	}
}

func (t *trouble) undo(c *conn) {
	switch t.kind {
	case stall:
		c.in.hold(false)
		c.out.hold(false)
	case slowed:
		c.in.change(-t.latency, 0)
		c.out.change(-t.latency, 0)
	}
}

// meets reports whether the active fault affects a new connection. The caller holds mu.
func (f *Faults) meets() bool { return f.now != nil && f.open() >= f.now.spared }

// open returns the number of open connections that are not affected. The caller holds mu.
func (f *Faults) open() (n int) {
	for _, c := range f.conns {
		if !f.now.hit[c] {
			n++
		}
	}
	return n
}

// admit applies the active fault to a dial: it is refused, waits, or takes longer.
func (f *Faults) admit(ctx context.Context) error {
	for {
		f.mu.Lock()
		t, hit := f.now, f.meets()
		f.mu.Unlock()
		if !hit {
			return nil
		}
		switch t.kind {
		case cut:
			return syscall.ECONNREFUSED
		case slowed:
			return clock.Until(ctx, clock.Now()+t.latency)
		}
		select {
		case <-t.over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// dialer returns a dial function that calls admit before base.
func (f *Faults) dialer(base DialFunc) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := f.admit(ctx); err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Addr: target{network, address}, Err: err}
		}
		return base(ctx, network, address)
	}
}

// adopt adds a new connection, and applies the active fault to it.
func (f *Faults) adopt(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.meets() {
		f.now.hit[c] = true
		f.now.do(c)
		if f.now.kind == cut {
			return
		}
	}
	f.conns = append(f.conns, c)
}

func (f *Faults) leave(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = slices.DeleteFunc(f.conns, func(x *conn) bool { return x == c })
	if f.now != nil {
		delete(f.now.hit, c)
	}
}
