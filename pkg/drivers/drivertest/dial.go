package drivertest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// errRefused is the error of a dialer with refuse.
var errRefused = errors.New("drivertest refuses this connection")

// dialer is the only way to the broker. It counts bytes, and can refuse, stall or cut connections.
type dialer struct {
	ctx                context.Context // of forwarded connections
	cancel             context.CancelFunc
	refuse             atomic.Bool
	hanging            func() // not nil: every dial calls it and waits for the end of its context
	dials              atomic.Int64
	readings, writings atomic.Int64 // bytes
	watch              atomic.Bool  // connections that are dialled from now on count in withheld
	withheld           atomic.Int64 // bytes that the broker sent, and that reached a watched connection while it was stalled

	mu        sync.Mutex
	conns     map[*conn]struct{}
	listeners []net.Listener
	stalled   chan struct{} // closed while connections are not stalled; never nil
	moving    bool
	silent    bool // a stall withholds only what the broker sends
	forwards  sync.WaitGroup
}

func newDialer() *dialer {
	d := &dialer{conns: map[*conn]struct{}{}, stalled: make(chan struct{}), moving: true}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	close(d.stalled)
	return d
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.dials.Add(1)
	if d.refuse.Load() {
		return nil, errRefused
	}
	if d.hanging != nil {
		d.hanging()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var plain net.Dialer
	inner, err := plain.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, d: d, watched: d.watch.Load(), waiting: drivers.WaitingOf(ctx), closed: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[c] = struct{}{}
	return c, nil
}

// stall makes connections pass no more data, like a broker that is connected but dead. stall(false) ends that.
func (d *dialer) stall(on bool) { d.withhold(on, false) }

// silence makes connections withhold what the broker sends, like a broker that is far away. stall(true) then withholds
// the other direction, too. stall(false) ends that.
func (d *dialer) silence() { d.withhold(true, true) }

func (d *dialer) withhold(on, silent bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case on && d.moving:
		d.stalled, d.moving, d.silent = make(chan struct{}), false, silent
	case on:
		d.silent = silent
	case !d.moving:
		close(d.stalled)
		d.moving = true
	}
}

func (d *dialer) gate() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stalled
}

// cut closes all connections, and ends a stall.
func (d *dialer) cut() {
	d.mu.Lock()
	open := make([]*conn, 0, len(d.conns))
	for c := range d.conns {
		open = append(open, c)
	}
	d.mu.Unlock()
	for _, c := range open {
		c.cut.Store(true)
		_ = c.Close()
	}
	d.stall(false)
}

// close ends the forwarders. The driver must close the connections that it dialled.
func (d *dialer) close() {
	d.cancel()
	d.mu.Lock()
	for _, l := range d.listeners {
		_ = l.Close()
	}
	forwarding := len(d.listeners) > 0
	d.listeners = nil
	d.mu.Unlock()
	if forwarding {
		d.cut()
		d.forwards.Wait()
	}
}

// forward listens on a loopback address, for client libraries without a dialler hook.
func (d *dialer) forward(ctx context.Context, address string) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	d.listeners = append(d.listeners, l)
	d.mu.Unlock()
	d.forwards.Go(func() {
		for {
			local, err := l.Accept()
			if err != nil {
				return
			}
			d.forwards.Go(func() { d.relay(local, address) })
		}
	})
	return l.Addr().String(), nil
}

func (d *dialer) relay(local net.Conn, address string) {
	ctx, cancel := context.WithTimeout(d.ctx, waitLimit)
	defer cancel()
	far, err := d.dial(ctx, "tcp", address)
	if err != nil {
		_ = local.Close()
		return
	}
	join(local, far)
}

// join copies data in both directions, until one connection ends. It closes both.
func join(near, far net.Conn) {
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	})
	_, _ = io.Copy(near, far)
	_ = near.Close()
	up.Wait()
}

func withLimit(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), limit)
}

// conn is one connection of the driver. Its deadlines also work while it is stalled.
type conn struct {
	net.Conn
	d       *dialer
	watched bool
	waiting *drivers.Waiting // records when Write waits, as the agent's connections do
	once    sync.Once
	closed  chan struct{}
	cut     atomic.Bool // closed by the suite: it fails as if the broker had reset it

	mu                          sync.Mutex
	readDeadline, writeDeadline time.Time

	rest []byte // read before a deadline that passed while the connection was stalled; the next Read returns it
}

func (c *conn) Read(p []byte) (n int, err error) {
	again := len(c.rest) > 0
	if again {
		n = copy(p, c.rest)
	} else {
		n, err = c.Conn.Read(p)
		c.d.readings.Add(int64(n))
	}
	if err == nil {
		select {
		case <-c.d.gate():
		default:
			if c.watched && !again {
				c.d.withheld.Add(int64(n))
			}
		}
		err = c.pass(&c.readDeadline)
		switch {
		case err == nil && again:
			c.rest = c.rest[n:]
		case err != nil && !again:
			c.rest = slices.Clone(p[:n])
		}
		if err != nil {
			n = 0
		}
	}
	if err != nil && c.cut.Load() {
		err = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	}
	return n, err
}

func (c *conn) Write(p []byte) (n int, err error) {
	c.d.mu.Lock()
	free := c.d.silent && !c.d.moving
	c.d.mu.Unlock()
	c.waiting.Begin()
	if !free {
		err = c.pass(&c.writeDeadline)
	}
	if err == nil {
		n, err = c.Conn.Write(p)
	}
	c.waiting.End()
	if err != nil && c.cut.Load() {
		err = &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.ECONNRESET)}
	}
	c.d.writings.Add(int64(n))
	return n, err
}

// pass waits while the dialer is stalled, until the deadline or Close.
func (c *conn) pass(deadline *time.Time) error {
	for {
		gate := c.d.gate()
		select {
		case <-gate:
			return nil
		default:
		}
		c.mu.Lock()
		at := *deadline
		c.mu.Unlock()
		if !at.IsZero() && !time.Now().Before(at) {
			return os.ErrDeadlineExceeded
		}
		select {
		case <-gate:
			return nil
		case <-c.closed:
			return net.ErrClosed
		case <-time.After(20 * time.Millisecond): // the deadline may have changed
		}
	}
}

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.d.mu.Lock()
		defer c.d.mu.Unlock()
		delete(c.d.conns, c)
	})
	return c.Conn.Close()
}

func (c *conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	c.readDeadline, c.writeDeadline = t, t
	c.mu.Unlock()
	return c.Conn.SetDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.readDeadline = t
	c.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	c.writeDeadline = t
	c.mu.Unlock()
	return c.Conn.SetWriteDeadline(t)
}
