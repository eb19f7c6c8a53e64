package requests

import (
	"context"
	"errors"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// Conn is embedded in a driver's connection. When it ends, publishers and consumers begin no more requests. A break
// lets the running requests of publishers end by themselves: their answers may come over other connections. Cut and End
// cancel them. Its methods are safe for concurrent use.
type Conn struct {
	kit.State
	working, calls       context.Context // working ends with the connection, calls with Cut or End
	endWorking, endCalls context.CancelFunc
}

// NewConn creates a connection.
func NewConn() *Conn {
	c := &Conn{}
	c.working, c.endWorking = context.WithCancel(context.Background())
	c.calls, c.endCalls = context.WithCancel(context.Background())
	return c
}

// Context returns a context for requests over the connection, which ends with Cut and End.
func (c *Conn) Context() context.Context { return c.calls }

// Broke ends the connection because of err. It has no effect if the connection has ended.
func (c *Conn) Broke(err error) {
	c.State.Broke(err)
	c.endWorking()
}

// End ends the connection because of Close. It returns false if the connection has ended already.
func (c *Conn) End() (worked bool) {
	worked = c.State.End()
	c.endWorking()
	c.endCalls()
	return worked
}

// abandon ends the connection because of err, and cancels its requests.
func (c *Conn) abandon(err error) {
	c.Broke(err)
	c.endCalls()
}

var errCut = errors.New("the connection was cut")

// Cut implements drivers.Conn.
func (c *Conn) Cut() { c.abandon(errCut) }
