package requests

import (
	"context"
	"errors"

	"lockstep/pkg/drivers/kit"
)

// Conn is embedded in a driver's connection. Its context is that of all requests of its publishers and consumers: when it
// ends, they return, and accepted messages get their confirms. Its methods are safe for concurrent use.
type Conn struct {
	kit.State
	ctx    context.Context
	cancel context.CancelFunc
}

// NewConn creates a connection.
func NewConn() *Conn {
	c := &Conn{}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Context returns a context that ends with the connection.
func (c *Conn) Context() context.Context { return c.ctx }

// Broke ends the connection because of err. It has no effect if the connection has ended.
func (c *Conn) Broke(err error) {
	c.State.Broke(err)
	c.cancel()
}

// End ends the connection because of Close. It returns false if the connection has ended already.
func (c *Conn) End() (worked bool) {
	worked = c.State.End()
	c.cancel()
	return worked
}

var errCut = errors.New("the connection was cut")

// Cut implements drivers.Conn.
func (c *Conn) Cut() { c.Broke(errCut) }
