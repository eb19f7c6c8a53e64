package server

import (
	"context"
	"sync"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// delivery is an event for one client.
type delivery struct {
	event   *event
	retries int32
}

// client reads a persistent subscription. slots, inFlight and total are guarded by its group.
type client struct {
	from     string
	name     string // given by the client
	size     int    // of its buffer
	slots    int    // free places in the buffer
	inFlight int
	total    int64
	measured int64

	mu      sync.Mutex
	waiting []delivery
	why     *fault // reason of a drop; nil: not dropped
	wake    chan struct{}
}

func newClient(call context.Context, size int) *client {
	c := &client{name: "<unknown>", size: size, slots: size, wake: make(chan struct{}, 1)}
	if p, ok := peer.FromContext(call); ok {
		c.from = p.Addr.String()
	}
	if name := metadata.ValueFromIncomingContext(call, "connection-name"); len(name) > 0 {
		c.name = name[0]
	}
	return c
}

func (c *client) deliver(d delivery) {
	c.mu.Lock()
	c.waiting = append(c.waiting, d)
	c.mu.Unlock()
	c.rouse()
}

func (c *client) drop(why *fault) {
	c.mu.Lock()
	c.why = why
	c.mu.Unlock()
	c.rouse()
}

func (c *client) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// collect returns the waiting deliveries. It reuses the memory of an earlier collection.
func (c *client) collect(into []delivery) ([]delivery, *fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	into = append(into[:0], c.waiting...)
	clear(c.waiting)
	c.waiting = c.waiting[:0]
	return into, c.why
}
