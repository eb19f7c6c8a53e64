package kafka

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// severed is a connection that the broker closes after the second request. The first one is the client's request for
// versions.
type severed struct {
	net.Conn
	written atomic.Int32
}

func (c *severed) Write(b []byte) (int, error) {
	if c.written.Add(1) < 2 {
		return c.Conn.Write(b)
	}
	return len(b), c.Conn.Close()
}

func (c *severed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && c.written.Load() >= 2 {
		err = io.EOF
	}
	return n, err
}

// If a broker closes single connections, a declaration does not fail. If it closes all, TLS or authentication is
// missing.
func TestConnectionClosedAtTheFirstRequest(t *testing.T) {
	for name, test := range map[string]struct {
		closed int32 // number of closed connections
		fails  bool
	}{
		"once":   {closed: 1},
		"always": {closed: 1 << 20, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			var dials, armed atomic.Int32
			r := openBy(t, at(t, single, `{}`), func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				if err != nil || armed.Load() == 0 || dials.Add(1) > test.closed {
					return conn, err
				}
				return &severed{Conn: conn}, nil
			})
			fresh, library, err := r.session.administrator()
			if err != nil {
				t.Fatal(err)
			}
			r.session.admin.Close()
			r.session.admin, r.session.library = fresh, library
			armed.Store(1)
			err = r.session.Setup(r.context(), r.topology)
			armed.Store(0)
			if failed := err != nil; failed != test.fails || failed && !strings.Contains(err.Error(), "closed the connection") {
				t.Errorf("set-up: %v", err)
			}
			if dials.Load() < 2 {
				t.Errorf("%d connections were made: the one that was closed had no successor", dials.Load())
			}
		})
	}
}
