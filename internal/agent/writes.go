package agent

import (
	"context"
	"net"
	"time"

	"lockstep/internal/netsim"
	"lockstep/pkg/drivers"
)

// countingWrites is dial for connections of which a publisher wants to know for how long writes to them are blocked.
func countingWrites(dial netsim.DialFunc) netsim.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		waiting := drivers.WaitingOf(ctx)
		if err != nil || waiting == nil {
			return conn, err
		}
		if tcp, is := conn.(*net.TCPConn); is {
			if counted := newBlockable(tcp, waiting); counted != nil {
				return counted, nil
			}
		}
		return &timed{conn, waiting}, nil
	}
}

// timed is a connection that does not say when a write is blocked. One that takes longer than blockedWrite was.
type timed struct {
	net.Conn
	waiting *drivers.Waiting
}

const blockedWrite = 100 * time.Microsecond

func (c *timed) Write(b []byte) (int, error) {
	c.waiting.Begin()
	defer c.waiting.EndAbove(blockedWrite)
	return c.Conn.Write(b)
}

// isLocal reports whether a connection leads to the host that it comes from.
func isLocal(conn net.Conn) bool {
	to, _ := conn.RemoteAddr().(*net.TCPAddr)
	from, _ := conn.LocalAddr().(*net.TCPAddr)
	return to != nil && from != nil && (to.IP.IsLoopback() || to.IP.Equal(from.IP))
}
