package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

const (
	// signOfLife is the interval at which the libraries request metadata from a broker. So it is the time within which a
	// Conn detects that this connection was closed.
	signOfLife = 4 * time.Second
	// idle is the time after which the libraries close unused connections. It is less than the brokers' default of ten
	// minutes.
	idle = 9 * time.Minute
)

// conn is the set of network connections of publishers, which share a client of franz-go or a Transport of kafka-go, or
// of consumers, which have a client each. With resilience "none", and while the first publisher or consumer is being
// connected, one broken connection breaks the whole Conn. Otherwise the libraries connect again, and the Conn breaks when
// they give up. Connections that a library closes itself, and answers that it no longer waits for, do not break it.
type conn struct {
	kit.State
	session   *session
	transport *kafka.Transport // nil with franz-go
	ctx       context.Context  // ends with the Conn
	cancel    context.CancelFunc
	over      atomic.Bool // set before Done is closed
	lasts     atomic.Bool // a broken connection does not break the Conn

	mu      sync.Mutex
	sockets map[*socket]struct{}
	clients map[clientKey]*franzClient
}

// Connect makes a Conn. The libraries dial when the first publisher or consumer is connected.
func (s *session) Connect(_ context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	s.remember(spec.Topology)
	c := &conn{session: s, sockets: map[*socket]struct{}{}, clients: map[clientKey]*franzClient{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	context.AfterFunc(c.ctx, c.closeSockets)
	if s.options.Client == kafkaGo {
		c.transport = &kafka.Transport{Dial: c.dial, ClientID: clientID, SASL: s.sasl, IdleTimeout: idle,
			MetadataTTL: signOfLife, MetadataTopics: topicNames(spec.Topology)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.cancel()
		return nil, fmt.Errorf("connect %s: session: %w", spec.Role, drivers.ErrClosed)
	}
	s.conns[c] = struct{}{}
	return c, nil
}

// dial is the dial function of the libraries. It uses Env.Dial.
func (c *conn) dial(ctx context.Context, network, address string) (net.Conn, error) {
	// Publish does not wait for writes, because the libraries' goroutines write: it waits for room only
	ctx, cancel := context.WithCancel(drivers.WithWaiting(ctx, nil))
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	raw, err := kit.Dial(c.session.env.Dial, c.session.tls)(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s := &socket{Conn: raw, conn: c, address: address}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over.Load() {
		_ = raw.Close()
		return nil, fmt.Errorf("connect to %s: %w", address, drivers.ErrClosed)
	}
	c.sockets[s] = struct{}{}
	return s, nil
}

// broke ends the Conn because of why. It does not block.
func (c *conn) broke(why error) {
	c.over.Store(true)
	c.Broke(why)
	c.cancel()
}

// why returns the reason why the Conn has ended.
func (c *conn) why() error { return cmp.Or(c.Err(), drivers.ErrClosed) }

func (c *conn) closeSockets() {
	c.mu.Lock()
	open := slices.Collect(maps.Keys(c.sockets))
	c.mu.Unlock()
	for _, s := range open {
		_ = s.Close()
	}
}

// connected notes that a client works. From then on the library may connect again.
func (c *conn) connected() { c.lasts.Store(c.session.options.persists()) }

// Node returns "": clients are connected to the leaders of partitions.
func (c *conn) Node() string { return "" }

// Cut breaks all network connections.
func (c *conn) Cut() { c.broke(errors.New("the connections were cut")) }

// Close closes the network connections and the shared clients.
func (c *conn) Close() error {
	c.End()
	c.over.Store(true)
	c.cancel()
	c.closeSockets()
	c.mu.Lock()
	clients := slices.Collect(maps.Values(c.clients))
	c.mu.Unlock()
	for _, f := range clients {
		f.abort()
	}
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	delete(c.session.conns, c)
	return nil
}

// socket is one network connection. A failed read or write breaks its Conn, unless that lasts.
type socket struct {
	net.Conn
	conn    *conn
	address string
	closed  atomic.Bool
	lost    atomic.Bool // failed
}

func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if err != nil {
		s.failed(err)
	}
	return n, err
}

func (s *socket) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	if err != nil {
		s.failed(err)
	}
	return n, err
}

// failed reports a failed read or write, unless the error is a timeout: the libraries use deadlines to end reads that
// they no longer need. Callers that wait for an answer have timeouts of their own.
func (s *socket) failed(err error) {
	var timeout net.Error
	if s.closed.Load() || (errors.As(err, &timeout) && timeout.Timeout()) {
		return
	}
	if !s.conn.lasts.Load() {
		s.conn.broke(fmt.Errorf("%s: %w", s.address, err))
		return
	}
	if !s.lost.Swap(true) && !s.conn.over.Load() {
		s.conn.session.event(drivers.EventNotice,
			fmt.Sprintf("connection to %s broke: %v; the library connects again", s.address, err))
	}
}

func (s *socket) Close() error {
	s.closed.Store(true)
	s.conn.mu.Lock()
	delete(s.conn.sockets, s)
	s.conn.mu.Unlock()
	return s.Conn.Close()
}
