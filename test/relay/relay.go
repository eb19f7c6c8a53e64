// Package relay is a small AMQP 0-9-1 relay that pools connections: a stand-in for AMQProxy in tests, and not AMQProxy.
//
// It answers clients' handshakes itself, keeps its connections to the broker open, and leases each client channel a
// channel of one of them, opened for it and closed after it. So clients that connect for each message cost the broker a
// channel each time, not a connection.
//
// It does what a publisher and a consumer need. What lives as long as a connection (exclusive queues) outlives the
// client here; a client that sends what the broker ends connections for ends those of others with it.
package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	channelsPerClient   = 2047
	channelsPerUpstream = 64
	patience            = 10 * time.Second // with a client that does not read
	farewell            = time.Second      // for the broker to answer at the end
)

// key is whom a client logs in as and where: connections are pooled for each by itself.
type key struct{ user, secret, vhost string }

// Relay is a running relay.
type Relay struct {
	target   string
	listener net.Listener
	ctx      context.Context // of dials
	cancel   context.CancelFunc
	running  sync.WaitGroup
	clients  atomic.Int64
	dialed   atomic.Int64
	leased   atomic.Int64

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{} // clients', and the broker's until they have logged in
	pools  map[key]*pool
}

// pool is the connections of one key.
type pool struct {
	mu  sync.Mutex // held while dialing: clients that come together share what is dialed
	ups []*upstream
}

// Stats counts since the start.
type Stats struct {
	Clients   int64 // connections that clients opened
	Upstreams int64 // connections that the relay opened to the broker
	Channels  int64 // channels leased
}

// Start listens on a free port of 127.0.0.1 for clients of the broker at target, a host:port.
func Start(target string) (*Relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for AMQP clients: %w", err)
	}
	r := &Relay{target: target, listener: listener, conns: map[net.Conn]struct{}{}, pools: map[key]*pool{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.running.Go(r.accept)
	return r, nil
}

// Addr is where it listens, as host:port.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Stats may be called at any time.
func (r *Relay) Stats() Stats {
	return Stats{Clients: r.clients.Load(), Upstreams: r.dialed.Load(), Channels: r.leased.Load()}
}

// Close ends all connections; when it returns no goroutine of the relay is left.
func (r *Relay) Close() {
	r.cancel()
	_ = r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for conn := range r.conns {
		_ = conn.Close()
	}
	pools := r.pools
	r.mu.Unlock()
	for _, p := range pools {
		p.mu.Lock()
		for _, u := range p.ups {
			force := time.AfterFunc(farewell, func() { _ = u.conn.Close() })
			defer force.Stop()
			u.call((&fault{code: 200, text: "the relay closes"}).method())
		}
		p.mu.Unlock()
	}
	r.running.Wait()
}

func (r *Relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, say
			select {
			case <-r.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		if !r.track(conn) {
			return
		}
		r.clients.Add(1)
		c := &client{link: newLink(conn, patience), relay: r, channels: map[uint16]*lease{}}
		r.running.Go(func() {
			defer r.untrack(conn)
			c.serve()
		})
	}
}

// track has Close close a connection; false: it is closed, because the relay is.
func (r *Relay) track(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = conn.Close()
		return false
	}
	r.conns[conn] = struct{}{}
	return true
}

func (r *Relay) untrack(conn net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
}

func (r *Relay) pool(k key) *pool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pools[k]
	if p == nil {
		p = &pool{}
		if !r.closed { // Close is walking over them
			r.pools[k] = p
		}
	}
	return p
}

// reach makes sure that there is a connection for k, which proves that the broker lets it in.
func (r *Relay) reach(k key) error {
	p := r.pool(k)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.ups {
		if u.alive() {
			return nil
		}
	}
	_, err := r.grow(p, k)
	return err
}

// lease finds or makes a channel for a client's.
func (r *Relay) lease(c *client, channel uint16) (*lease, error) {
	p := r.pool(c.key)
	p.mu.Lock()
	defer p.mu.Unlock()
	var l *lease
	for _, u := range p.ups {
		if l = u.lease(c, channel); l != nil {
			break
		}
	}
	if l == nil {
		u, err := r.grow(p, c.key)
		if err != nil {
			return nil, err
		}
		if l = u.lease(c, channel); l == nil {
			return nil, &fault{code: 320, text: "the relay's connection to the broker ended at once"}
		}
	}
	c.mu.Lock()
	c.channels[channel] = l
	c.mu.Unlock()
	r.leased.Add(1)
	return l, nil
}

// grow adds a connection to a pool, whose lock the caller holds, in place of dead ones.
func (r *Relay) grow(p *pool, k key) (*upstream, error) {
	alive := p.ups[:0]
	for _, u := range p.ups {
		if u.alive() {
			alive = append(alive, u)
		}
	}
	p.ups = alive
	u, err := r.dial(k)
	if err != nil {
		var said *fault
		if !errors.As(err, &said) {
			said = &fault{code: 541, text: "the relay cannot reach the broker: " + err.Error()}
		}
		return nil, said
	}
	p.ups = append(p.ups, u)
	return u, nil
}

func (r *Relay) dial(k key) (*upstream, error) {
	dialer := net.Dialer{Timeout: handshake}
	conn, err := dialer.DialContext(r.ctx, "tcp", r.target)
	if err != nil {
		return nil, err
	}
	if !r.track(conn) {
		return nil, net.ErrClosed
	}
	u := &upstream{link: newLink(conn, 0), leases: map[uint16]*lease{}}
	u.most, err = u.login(k)
	r.untrack(conn)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	r.dialed.Add(1)
	r.running.Go(u.serve)
	return u, nil
}
