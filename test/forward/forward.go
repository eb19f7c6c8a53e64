// Package forward forwards TCP connections, for tests that need a proxy in front of a server.
package forward

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Forwarder listens on a port of 127.0.0.1 and forwards each connection to one server.
type Forwarder struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup
	accepted atomic.Int64

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool // to clients and to the server
}

// Start listens on a free port and forwards to target, a host:port.
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

// Addr returns the host:port for clients.
func (f *Forwarder) Addr() string { return f.listener.Addr().String() }

// Accepted returns the number of accepted connections.
func (f *Forwarder) Accepted() int64 { return f.accepted.Load() }

// Close ends all connections, and returns when all goroutines of the forwarder have ended.
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

// track registers a connection for Close. It returns false if the forwarder is closed.
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

// Join copies in both directions until both sides have ended, and forwards the end of each side to the other. It closes
// neither connection.
func Join(a, b net.Conn) {
	var wg sync.WaitGroup
	one := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // either side may fail: its end is forwarded
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	wg.Go(func() { one(a, b) })
	wg.Go(func() { one(b, a) })
	wg.Wait()
}
