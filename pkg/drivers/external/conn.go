package external

import (
	"context"
	"fmt"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// conn is a connection of the driver's process.
type conn struct {
	kit.State
	session *session
	link    *link
	id      uint64
	node    string
	once    sync.Once // Close
}

// Publisher makes the driver make a publisher.
func (c *conn) Publisher(ctx context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	p := &publisher{conn: c, id: c.link.handle(), spec: spec, flushes: c.session.driver.description.Flushes,
		taken: make(chan struct{}, 1)}
	request := outbound{Type: "publisher", Conn: c.id, Publisher: p.id, Topology: &spec.Topology, Spec: spec}
	if _, err := c.link.open(ctx, "connect publisher", request, p); err != nil {
		return nil, err
	}
	return p, nil
}

// Consumer makes the driver make a consumer.
func (c *conn) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer,
	error) {
	n := &consumer{conn: c, id: c.link.handle(), spec: spec, handle: handle, arrived: make(chan struct{}, 1),
		stop: make(chan struct{}), ended: make(chan struct{})}
	request := outbound{Type: "consumer", Conn: c.id, Consumer: n.id, Topology: &spec.Topology, Spec: spec}
	if _, err := c.link.open(ctx, "connect consumer", request, n); err != nil {
		return nil, err
	}
	go n.run()
	return n, nil
}

// Node returns the address that the driver reported.
func (c *conn) Node() string { return c.node }

func (c *conn) on() *conn { return c }

// lose ends the connection and all its publishers and consumers.
func (c *conn) lose(why error) {
	end(&c.State, why)
	for _, p := range c.link.of(c) {
		p.lose(why)
	}
}

// Cut ends the connection here, and makes the driver break it.
func (c *conn) Cut() {
	c.lose(fmt.Errorf("%w: the connection was cut", drivers.ErrClosed))
	_ = c.link.out.put(outbound{Type: "cut", Conn: c.id})
}

// Close makes the driver close the connection, within limits.close.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.lose(nil)
		if err := c.link.close(outbound{Conn: c.id}); err != nil {
			c.link.log.Debug("close connection", "err", err) // its publishers and consumers are closed
		}
	})
	return nil
}
