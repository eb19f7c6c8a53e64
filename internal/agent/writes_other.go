//go:build !unix

package agent

import (
	"net"
	"time"

	"lockstep/pkg/drivers"
)

// blockable is a TCP connection that does not report when a write is blocked: one that takes longer than 100 µs
// was. Shorter ones are not counted, and a longer one counts although it may have waited for a CPU.
type blockable struct {
	*net.TCPConn
	waiting *drivers.Waiting
}

func newBlockable(conn *net.TCPConn, waiting *drivers.Waiting) net.Conn {
	return &blockable{conn, waiting}
}

// Write is that of net.TCPConn.
func (c *blockable) Write(b []byte) (int, error) {
	c.waiting.Begin()
	defer c.waiting.EndAbove(100 * time.Microsecond)
	return c.TCPConn.Write(b)
}
