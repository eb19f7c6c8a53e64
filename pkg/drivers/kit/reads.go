package kit

import (
	"net"
	"sync/atomic"
)

// CloseOnReadError returns conn with a Read that closes it after an error, also after a deadline. A blocked Write then
// returns the same error. Some libraries detect a dead peer by their read deadline, but wait for a blocked write before
// they end the connection.
func CloseOnReadError(conn net.Conn) net.Conn { return &readGuard{Conn: conn} }

type readGuard struct {
	net.Conn
	failure atomic.Pointer[error] // of the first Read that failed
}

// Read implements net.Conn.
func (g *readGuard) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if err != nil {
		first := err
		g.failure.CompareAndSwap(nil, &first)
		_ = g.Conn.Close()
	}
	return n, err
}

// Write implements net.Conn.
func (g *readGuard) Write(p []byte) (int, error) {
	n, err := g.Conn.Write(p)
	if failure := g.failure.Load(); err != nil && failure != nil {
		err = *failure
	}
	return n, err
}
