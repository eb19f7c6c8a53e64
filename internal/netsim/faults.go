package netsim

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"lockstep/internal/clock"
)

// Faults does things to the connections of the dialers that were made with it, and undoes them: one thing at a time,
// each until End. It is safe for concurrent use. A dialer with Faults makes simulated connections even where nothing
// else is asked of it.
type Faults struct {
	mu     sync.Mutex
	random *rand.Rand
	conns  []*conn // open, in the order in which they were made
	now    *trouble
}

// trouble is what is being done.
type trouble struct {
	kind      troubleKind
	latency   int64 // ns of a round trip
	bandwidth int64
	hit       map[*conn]bool
	spared    int           // open connections that it leaves alone; those that come beyond so many are hit
	over      chan struct{} // closed by End
}

type troubleKind uint8

const (
	cut troubleKind = iota
	stall
	slowed
)

// NewFaults returns a control that does nothing yet. The seed decides which connections a share of them is.
func NewFaults(seed uint64) *Faults { return &Faults{random: rand.New(rand.NewPCG(seed, 1))} }

// Hit says how many of the open connections a fault was done to.
type Hit struct{ Of, All int }

// Cut resets a share (0 … 1) of the connections, at both ends, and refuses new ones until End, but for as many as were
// spared.
func (f *Faults) Cut(share float64) Hit { return f.begin(&trouble{kind: cut}, share) }

// Stall keeps back everything on a share of the connections, each way, dials included, until End; then all of it
// arrives. What is written meanwhile waits in the connection's buffer.
func (f *Faults) Stall(share float64) Hit { return f.begin(&trouble{kind: stall}, share) }

// Slow adds to the latency of the round trip of a share of the connections, and limits their bandwidth (0: not) in
// bytes a second each way, until End. Bytes keep their order when it begins and ends.
func (f *Faults) Slow(share float64, latency time.Duration, bandwidth int64) Hit {
	return f.begin(&trouble{kind: slowed, latency: int64(latency), bandwidth: bandwidth}, share)
}

// begin ends what was done before, and does the next.
func (f *Faults) begin(t *trouble, share float64) Hit {
	f.End()
	f.mu.Lock()
	defer f.mu.Unlock()
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
	return Hit{n, len(all)}
}

// End undoes what is being done, if anything is.
func (f *Faults) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
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

// meets reports whether a new connection is hit by what is being done. The caller holds mu.
func (f *Faults) meets() bool { return f.now != nil && f.open() >= f.now.spared }

// open counts the connections that are open and left alone. The caller holds mu.
func (f *Faults) open() (n int) {
	for _, c := range f.conns {
		if !f.now.hit[c] {
			n++
		}
	}
	return n
}

// admit has a dial meet what is being done: it is refused, waits, or takes longer.
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

// dialer passes on to base what is admitted.
func (f *Faults) dialer(base DialFunc) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := f.admit(ctx); err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Addr: target{network, address}, Err: err}
		}
		return base(ctx, network, address)
	}
}

// adopt adds a connection that was made, and does to it what is being done to others; leave takes it out when it is
// closed.
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

// reset breaks the connection off at both ends.
func (c *conn) reset() {
	reset(c.inner)
	c.out.shut(syscall.ECONNRESET, errClosing)
	c.in.abandon(syscall.ECONNRESET)
}

// hold has nothing arrive while it lasts.
func (l *line) hold(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = on
	for i := range l.marks.list { // they come late because of the fault
		l.marks.list[i].known = true
	}
	if at := l.next(); at != never {
		l.nudge(&l.far, at)
	}
}

// change adds to the latency of the round trip; bandwidth 0 is that of the conditions.
func (l *line) change(latency, bandwidth int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.path.latency += latency / 2
	l.path.limit(bandwidth)
}
