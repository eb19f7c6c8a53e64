package drivertest

import (
	"context"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// Hooks is a session for tests whose connections, publishers and consumers are made by functions. A nil function
// changes nothing. Each function gets what the inner session would use, and may call it.
type Hooks struct {
	drivers.Session
	Connecting func(ctx context.Context, s drivers.Session, spec drivers.ConnSpec) (drivers.Conn, error)
	Publishing func(ctx context.Context, c drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher, error)
	Consuming  func(ctx context.Context, c drivers.Conn, spec drivers.ConsumerSpec,
		handle drivers.Handler) (drivers.Consumer, error)
}

// Connect makes a connection with the hooks.
func (h Hooks) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	var c drivers.Conn
	var err error
	if h.Connecting != nil {
		c, err = h.Connecting(ctx, h.Session, spec)
	} else {
		c, err = h.Session.Connect(ctx, spec)
	}
	if err != nil {
		return nil, err
	}
	return hookedConn{c, h}, nil
}

type hookedConn struct {
	drivers.Conn
	hooks Hooks
}

func (c hookedConn) Publisher(ctx context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	if c.hooks.Publishing != nil {
		return c.hooks.Publishing(ctx, c.Conn, spec)
	}
	return c.Conn.Publisher(ctx, spec)
}

func (c hookedConn) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer,
	error) {
	if c.hooks.Consuming != nil {
		return c.hooks.Consuming(ctx, c.Conn, spec, handle)
	}
	return c.Conn.Consumer(ctx, spec, handle)
}

// Conn is a connection without a broker, for tests. Its functions make publishers and consumers. nil means that there
// are none.
type Conn struct {
	kit.State
	Publishing func(spec drivers.PublisherSpec) (drivers.Publisher, error)
	Consuming  func(spec drivers.ConsumerSpec) (drivers.Consumer, error)
}

// Publisher implements drivers.Conn.
func (c *Conn) Publisher(_ context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	if c.Publishing == nil {
		return nil, drivers.ErrUnsupported
	}
	return c.Publishing(spec)
}

// Consumer implements drivers.Conn.
func (c *Conn) Consumer(_ context.Context, spec drivers.ConsumerSpec, _ drivers.Handler) (drivers.Consumer, error) {
	if c.Consuming == nil {
		return nil, drivers.ErrUnsupported
	}
	return c.Consuming(spec)
}

// Node implements drivers.Conn.
func (*Conn) Node() string { return "" }

// Cut implements drivers.Conn.
func (c *Conn) Cut() { c.Broke(drivers.ErrClosed) }

// Close implements drivers.Conn.
func (c *Conn) Close() error {
	c.End()
	return nil
}

// Endless implements drivers.Ended for publishers and consumers of tests that do not end before their connection.
type Endless struct{}

// Done returns a channel that is never closed.
func (Endless) Done() <-chan struct{} { return nil }

// Err returns nil.
func (Endless) Err() error { return nil }
