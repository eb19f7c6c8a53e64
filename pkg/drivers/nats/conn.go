package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	client "github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// dialTimeout applies to contexts without a deadline.
const dialTimeout = 10 * time.Second

// conn is one connection to one server. A broken conn is never reconnected.
type conn struct {
	kit.State // ends when nc is closed
	session   *session
	address   string
	nc        *client.Conn
	raw       net.Conn // connection below nc: closing it ends every call that blocks in nc

	mu     sync.Mutex
	why    error // reason of abandon
	warned bool
}

func (s *session) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	at, err := s.place(ctx, spec.Node, spec.Ordinal, streamName(spec.Topology, spec.Queue))
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c, err := s.dialFirst(ctx, at, s.env.Dial)
	if err != nil {
		s.roles.Clear() // another server may lead by now
		return nil, err
	}
	return c, nil
}

// dialer passes a dial function to the library. It keeps the connection and the error, which the library hides. The end
// of ctx closes the connection, until stop is called.
type dialer struct {
	ctx  context.Context
	dial kit.DialFunc
	conn net.Conn
	err  error
	stop func() bool
}

// Dial implements the library's CustomDialer. Connect of the library calls it from its own goroutine.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := d.dial(d.ctx, network, address)
	if err == nil {
		d.stop = context.AfterFunc(d.ctx, func() { _ = conn.Close() })
	}
	d.conn, d.err = conn, err
	return conn, err
}

// clientOptions returns the options of every connection. The library's reconnects are off: it fails the unconfirmed
// messages of a broken connection, so the engine must know of it, and the gap is to be visible.
func (o *options) clientOptions() []client.Option {
	return []client.Option{
		client.Name("lockstep"), client.NoReconnect(), client.DontRandomize(), client.IgnoreDiscoveredServers(),
		client.SkipHostLookup(), client.SkipSubjectValidation(),
		client.PingInterval(o.Ping.Std()),
	}
}

// dialFirst connects to the first endpoint that answers. Each attempt has its share of the remaining time.
func (s *session) dialFirst(ctx context.Context, from []kit.Endpoint, by kit.DialFunc) (*conn, error) {
	return kit.InTurn(ctx, len(from), func(ctx context.Context, i int) (*conn, error) { return s.dial(ctx, from[i], by) })
}

func (s *session) dial(ctx context.Context, e kit.Endpoint, by kit.DialFunc) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", e.Address, err)
	}
	timeout := dialTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline), time.Millisecond)
	}
	c := &conn{session: s, address: e.Address}
	d := &dialer{ctx: ctx, dial: by, stop: func() bool { return true }}
	all := append(s.options.clientOptions(), s.security...)
	nc, err := client.Connect(e.URL.String(), append(all, client.SetCustomDialer(d), client.Timeout(timeout),
		client.ClosedHandler(c.onClosed), client.ErrorHandler(c.onError))...)
	defer d.stop()
	switch {
	case err == nil:
	case d.err != nil:
		return nil, fmt.Errorf("connect to NATS at %s: %w", e.Address, d.err)
	case errors.Is(err, client.ErrSecureConnWanted):
		return nil, fmt.Errorf("connect to NATS at %s: the server has no TLS: remove the option tls: %w", e.Address, err)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("connect to NATS at %s: %w: %w", e.Address, ctx.Err(), err)
	default:
		return nil, fmt.Errorf("connect to NATS at %s: %w", e.Address, kit.Explain(err))
	}
	c.nc, c.raw = nc, d.conn
	s.mu.Lock()
	s.names[e.Address] = nc.ConnectedServerName()
	s.mu.Unlock()
	if err := s.conns.Add(c); err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", e.Address, err)
	}
	return c, nil
}

// onClosed is called by the library when the connection has ended for any reason.
func (c *conn) onClosed(nc *client.Conn) {
	c.mu.Lock()
	why := c.why
	c.mu.Unlock()
	c.Broke(fmt.Errorf("%s: %w", c.address, cmp.Or(why, nc.LastError(), errBroken)))
}

var errBroken = errors.New("closed by the other side")

// abandon breaks a conn. why becomes part of the cause. The conn ends when the library has closed it.
func (c *conn) abandon(why error) {
	c.mu.Lock()
	c.why = why
	c.mu.Unlock()
	_ = c.raw.Close()
}

var errCut = errors.New("the connection was cut")

func (c *conn) Cut() { c.abandon(errCut) }

// onError is called by the library for errors that do not break the conn, such as a missing permission. Only the first
// error of a conn is reported.
func (c *conn) onError(_ *client.Conn, _ *client.Subscription, err error) {
	c.mu.Lock()
	quiet := c.warned || c.over() || errors.Is(err, net.ErrClosed)
	c.warned = c.warned || !quiet
	c.mu.Unlock()
	if !quiet {
		c.session.env.Event(drivers.EventNotice, fmt.Sprintf("NATS at %s: %v", c.address, err))
	}
}

// over reports whether the conn has ended. It does not use the library's lock, which a blocked write may hold.
func (c *conn) over() bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// guarded calls do, which may block in the library without a deadline. It breaks the conn after limit.
func (c *conn) guarded(limit time.Duration, do func()) {
	timer := time.AfterFunc(limit, func() { _ = c.raw.Close() })
	defer timer.Stop()
	do()
}

// flush returns when the server has received everything sent so far, when the conn has ended, or after grace.
func (c *conn) flush() {
	if !c.over() {
		c.guarded(2*grace, func() { _ = c.nc.FlushTimeout(grace) })
	}
}

func (c *conn) Node() string { return c.address }

// Close ends the connection without waiting for replies.
func (c *conn) Close() error {
	c.End()
	c.session.conns.Remove(c)
	c.guarded(grace, c.nc.Close)
	return nil
}
