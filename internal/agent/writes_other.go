//go:build !unix

package agent

import (
	"net"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// blockable is a TCP connection that estimates how long its writes are blocked: a write of more than 100 µs counts as
// blocked. So shorter blocks do not count, and a wait for a CPU may count.
type blockable struct {
	*net.TCPConn
	waiting *drivers.Waiting
}

func newBlockable(conn *net.TCPConn, waiting *drivers.Waiting) net.Conn {
	return &blockable{conn, waiting}
}

// Write writes like net.TCPConn.Write.
func (c *blockable) Write(b []byte) (int, error) {
	c.waiting.Begin()
	defer c.waiting.EndAbove(100 * time.Microsecond)
	return c.TCPConn.Write(b)
}
