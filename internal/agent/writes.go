package agent

import (
	"context"
	"net"

	"example.org/lockstep/lockstep/internal/netsim"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// countingWrites wraps dial. If a publisher measures how long its writes are blocked, TCP connections and simulated
// connections report it.
func countingWrites(dial netsim.DialFunc) netsim.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		waiting := drivers.WaitingOf(ctx)
		if err != nil || waiting == nil {
			return conn, err
		}
		switch c := conn.(type) {
		case *net.TCPConn:
			return newBlockable(c, waiting), nil
		case interface{ OnBlocked(begin, end func()) }:
			c.OnBlocked(waiting.Begin, waiting.End)
		}
		return conn, nil
	}
}

// isLocal reports whether both ends of a connection are on the same host.
func isLocal(conn net.Conn) bool {
	to, _ := conn.RemoteAddr().(*net.TCPAddr)
	from, _ := conn.LocalAddr().(*net.TCPAddr)
	return to != nil && from != nil && (to.IP.IsLoopback() || to.IP.Equal(from.IP))
}
