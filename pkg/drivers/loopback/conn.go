package loopback

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// conn is a connection, which breaks with all its publishers and consumers.
type conn struct {
	kit.State
	session *session

	mu    sync.Mutex
	over  bool // no part is added any more
	parts map[part]struct{}
}

// part is a publisher or consumer of a connection.
type part interface {
	cut()     // the connection broke: stop
	abandon() // the session is closed: stop without waiting for confirms
}

// Connect makes a connection. There is one node.
func (s *session) Connect(ctx context.Context, _ drivers.ConnSpec) (drivers.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &conn{session: s, parts: map[part]struct{}{}}
	s.broker.mu.Lock()
	s.broker.conns[c] = struct{}{}
	s.broker.mu.Unlock()
	if err := s.conns.Add(c); err != nil {
		return nil, fmt.Errorf("connect to loopback: %w", err)
	}
	return c, nil
}

func (c *conn) Publisher(ctx context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := c.session.broker.topology(nameOf(spec.Topology))
	if err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	p := newPublisher(c, t, spec)
	if err := c.add(p); err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	p.start()
	return p, nil
}

func (c *conn) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer,
	error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := c.session.broker.topology(nameOf(spec.Topology))
	if err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	q := t.queue(spec.Subscription, spec.Queue)
	if q == nil {
		return nil, fmt.Errorf("connect consumer: topology %q has no queue %d in subscription %d", t.name, spec.Queue,
			spec.Subscription)
	}
	n := newConsumer(c, q, spec, handle)
	if err := c.add(n); err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	n.start()
	return n, nil
}

// add registers a new part. It returns ErrClosed if the connection has ended.
func (c *conn) add(p part) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return drivers.ErrClosed
	}
	c.parts[p] = struct{}{}
	return nil
}

// drop removes a part that has ended.
func (c *conn) drop(p part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.parts, p)
}

// leave ends the connection. It returns the parts that have not ended.
func (c *conn) leave() []part {
	b := c.session.broker
	b.mu.Lock()
	delete(b.conns, c)
	b.mu.Unlock()
	c.session.conns.Remove(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return slices.Collect(maps.Keys(c.parts))
}

// Node returns "": there are no nodes.
func (c *conn) Node() string { return "" }

// Cut breaks the connection.
func (c *conn) Cut() {
	for _, p := range c.leave() {
		p.cut()
	}
	c.Broke(fmt.Errorf("loopback connection was cut: %w", drivers.ErrClosed))
}

// Close ends the connection.
func (c *conn) Close() error {
	c.End()
	for _, p := range c.leave() {
		p.abandon()
	}
	return nil
}
