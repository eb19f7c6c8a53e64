// Package forward passes TCP connections on, for tests that need a proxy in front of a server.
package forward

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Forwarder listens on a port of 127.0.0.1 and passes each connection on to one server.
type Forwarder struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup
	accepted atomic.Int64

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool // of clients and of the server
}

// Start listens on a free port for clients of the server at target, a host:port.
func Start(target string) (*Forwarder, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for clients of %s: %w", target, err)
	}
	f := &Forwarder{listener: listener, target: target, conns: map[net.Conn]bool{}}
	f.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			f.accepted.Add(1)
			f.running.Go(func() { f.carry(client) })
		}
	})
	return f, nil
}

// Addr is the host:port that clients connect to.
func (f *Forwarder) Addr() string { return f.listener.Addr().String() }

// Accepted is the number of connections that clients have made.
func (f *Forwarder) Accepted() int64 { return f.accepted.Load() }

// Close ends all connections. No goroutine of the forwarder is left when it returns.
func (f *Forwarder) Close() {
	f.listener.Close()
	f.mu.Lock()
	f.closed = true
	for conn := range f.conns {
		conn.Close()
	}
	f.mu.Unlock()
	f.running.Wait()
}

func (f *Forwarder) carry(client net.Conn) {
	defer client.Close()
	if !f.track(client) {
		return
	}
	defer f.untrack(client)
	server, err := net.Dial("tcp", f.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !f.track(server) {
		return
	}
	defer f.untrack(server)
	Join(client, server)
}

// track has Close end a connection; false: the forwarder is closed.
func (f *Forwarder) track(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[conn] = true
	return !f.closed
}

func (f *Forwarder) untrack(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, conn)
}

// Join copies both ways until both sides have ended, and passes the end of one side on to the other. It closes neither.
func Join(a, b net.Conn) {
	var wg sync.WaitGroup
	one := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // either end may break: the end is passed on
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	wg.Go(func() { one(a, b) })
	wg.Go(func() { one(b, a) })
	wg.Wait()
}
