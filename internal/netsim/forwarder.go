package netsim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
)

// Forwarder connects clients without a dialer hook through a dial function. It listens on loopback addresses and
// forwards each connection. A client's connection is accepted before its upstream is dialled; if the dial fails, the
// connection is reset. Half-closes and ends are forwarded in both directions. It is safe for concurrent use.
type Forwarder struct {
	dial DialFunc
	ctx  context.Context // of all dials, cancelled by Close
	stop context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	local  map[string]net.Listener // by upstream address
	conns  map[net.Conn]struct{}
	closed bool
}

// NewForwarder returns a forwarder that connects to upstreams with dial. The caller must close it.
func NewForwarder(dial DialFunc) *Forwarder {
	f := &Forwarder{dial: dial, local: map[string]net.Listener{}, conns: map[net.Conn]struct{}{}}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// Forward returns a loopback address ("127.0.0.1:port") whose connections are forwarded to address, a "host:port",
// until Close. Repeated calls with one address return the same loopback address. ctx applies only to this call.
func (f *Forwarder) Forward(ctx context.Context, address string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return "", fmt.Errorf("forward %s: the forwarder is closed: %w", address, net.ErrClosed)
	}
	if l, ok := f.local[address]; ok {
		return l.Addr().String(), nil
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("forward %s: listen on loopback: %w", address, err)
	}
	f.local[address] = l
	f.work.Go(func() { f.accept(l, address) })
	return l.Addr().String(), nil
}

// Close stops the listeners, closes every connection, and waits for their goroutines.
func (f *Forwarder) Close() error {
	f.mu.Lock()
	f.closed = true
	var errs []error
	for address, l := range f.local {
		delete(f.local, address)
		if err := l.Close(); err != nil {
			errs = append(errs, fmt.Errorf("stop forwarding to %s: %w", address, err))
		}
	}
	for c := range f.conns {
		c.Close()
	}
	f.mu.Unlock()
	f.stop()
	f.work.Wait()
	return errors.Join(errs...)
}

func (f *Forwarder) accept(l net.Listener, address string) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // probably no free file descriptor; the client waits in the backlog
			if clock.Until(f.ctx, clock.Now()+int64(10*time.Millisecond)) != nil {
				return
			}
			continue
		}
		f.work.Go(func() { f.pass(c, address) })
	}
}

// pass connects a client's connection to address, until both directions have ended.
func (f *Forwarder) pass(client net.Conn, address string) {
	if !f.own(client) {
		return
	}
	defer f.disown(client)
	server, err := f.dial(f.ctx, "tcp", address)
	if err != nil {
		reset(client)
		return
	}
	if !f.own(server) {
		return
	}
	defer f.disown(server)
	var ways sync.WaitGroup
	ways.Go(func() { carry(server, client) })
	ways.Go(func() { carry(client, server) })
	ways.Wait()
}

// carry copies bytes until the end of from, and forwards the end to to. A failure of one resets both.
func carry(to, from net.Conn) {
	_, err := io.Copy(to, from)
	half, ok := to.(interface{ CloseWrite() error })
	if err == nil && ok {
		err = half.CloseWrite()
	}
	if err != nil || !ok {
		reset(to)
		reset(from)
	}
}

// reset closes c so that its peer reads an error instead of an orderly end, if c supports that.
func reset(c net.Conn) {
	discard(c)
	c.Close()
}

// discard makes Close of c discard unsent bytes and reset the connection, if c supports that.
func discard(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(seconds int) error }); ok {
		_ = l.SetLinger(0)
	}
}

// own registers c to be closed by Close. If Close was called before, own closes c and returns false.
func (f *Forwarder) own(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		c.Close()
		return false
	}
	f.conns[c] = struct{}{}
	return true
}

func (f *Forwarder) disown(c net.Conn) {
	f.mu.Lock()
	delete(f.conns, c)
	f.mu.Unlock()
	c.Close()
}
