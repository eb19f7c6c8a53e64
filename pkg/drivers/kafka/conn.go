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
	// signOfLife is the interval at which the libraries request metadata from a broker. So it is the time within which
	// a Conn detects that this connection was closed.
	signOfLife = 4 * time.Second
	// idle is the time after which the libraries close unused connections. It is less than the brokers' default of ten
	// minutes.
	idle = 9 * time.Minute
)

// lifetime is the state of a Conn or of a consumer, with the network connections that end with it.
type lifetime struct {
	kit.State
	ctx    context.Context // ends with the lifetime
	cancel context.CancelFunc
	over   atomic.Bool // set before Done is closed

	socketsMu sync.Mutex
	sockets   map[*socket]struct{}
}

// begin begins a lifetime that does not last longer than ctx.
func (l *lifetime) begin(ctx context.Context) {
	l.sockets = map[*socket]struct{}{}
	l.ctx, l.cancel = context.WithCancel(ctx)
	context.AfterFunc(l.ctx, l.closeSockets)
}

// broke ends the lifetime because of why. It does not block.
func (l *lifetime) broke(why error) {
	l.over.Store(true)
	l.Broke(why)
	l.cancel()
}

// end ends the lifetime because of Close.
func (l *lifetime) end() {
	l.over.Store(true)
	l.End()
	l.cancel()
}

func (l *lifetime) why() error { return cmp.Or(l.Err(), drivers.ErrClosed) }

func (l *lifetime) closeSockets() {
	l.socketsMu.Lock()
	open := slices.Collect(maps.Keys(l.sockets))
	l.socketsMu.Unlock()
	for _, s := range open {
		_ = s.Close()
	}
}

// conn is the set of network connections of publishers, which share a client of franz-go or a Transport of kafka-go, or
// of consumers, which have a client each. With resilience "none", and while the first publisher or consumer is being
// connected, one broken connection breaks the whole Conn. Otherwise the libraries connect again, and the Conn breaks
// when they give up on a message. Connections that a library closes itself, and answers that it no longer waits for, do
// not break it.
type conn struct {
	lifetime
	session   *session
	transport *kafka.Transport // nil with franz-go
	lasts     atomic.Bool      // a broken connection does not break the Conn
	role      drivers.Role

	mu      sync.Mutex
	clients map[clientKey]*franzClient
}

func newConn(s *session) *conn {
	c := &conn{session: s, clients: map[clientKey]*franzClient{}}
	c.begin(context.Background())
	return c
}

// Connect makes a Conn. The libraries dial when the first publisher or consumer is connected.
func (s *session) Connect(_ context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	s.task.Store(&spec.Topology)
	c := newConn(s)
	c.role = spec.Role
	if s.options.Client == kafkaGo {
		c.transport = &kafka.Transport{Dial: c.dial, ClientID: clientID, SASL: s.sasl.goes, IdleTimeout: idle,
			MetadataTTL: signOfLife, MetadataTopics: topicNames(spec.Topology)}
	}
	if err := s.conns.Add(c); err != nil {
		return nil, fmt.Errorf("connect %s: %w", spec.Role, err)
	}
	return c, nil
}

// dial is the dial function of publishers' libraries.
func (c *conn) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return c.dialFor(ctx, &c.lifetime, network, address)
}

// dialFor makes a connection that ends with its owner: the Conn, or one of its consumers. It uses Env.Dial.
func (c *conn) dialFor(ctx context.Context, owner *lifetime, network, address string) (net.Conn, error) {
	// Publish does not wait for writes, because the libraries' goroutines write: it waits for the send quota only
	ctx, cancel := context.WithCancel(drivers.WithWaiting(ctx, nil))
	defer cancel()
	defer context.AfterFunc(owner.ctx, cancel)()
	raw, err := kit.Dial(c.session.env.Dial, c.session.tls)(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s := &socket{Conn: raw, conn: c, owner: owner, address: address}
	owner.socketsMu.Lock()
	defer owner.socketsMu.Unlock()
	if owner.ctx.Err() != nil { // closeSockets was called, or will not find s
		_ = raw.Close()
		return nil, fmt.Errorf("connect to %s: %w", address, drivers.ErrClosed)
	}
	owner.sockets[s] = struct{}{}
	return s, nil
}

// connected notes that a client works. From then on the library may connect again.
func (c *conn) connected() { c.lasts.Store(c.session.options.persists()) }

// Node returns "": clients are connected to the leaders of partitions.
func (c *conn) Node() string { return "" }

func (c *conn) Cut() { c.broke(errors.New("the connections were cut")) }

// Close closes the network connections and the shared clients.
func (c *conn) Close() error {
	c.end()
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
	c.session.conns.Remove(c)
	return nil
}

// socket is one network connection. A failed read or write breaks its Conn, unless that lasts.
type socket struct {
	net.Conn
	conn    *conn
	owner   *lifetime
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
	if !s.lost.Swap(true) && !s.owner.over.Load() {
		kind := drivers.EventNotice
		if s.conn.role == drivers.ConsumerRole {
			kind = drivers.EventReconnecting
		}
		s.conn.session.env.Event(kind,
			fmt.Sprintf("connection to %s broke: %v; the library connects again", s.address, err))
	}
}

func (s *socket) Close() error {
	s.closed.Store(true)
	s.owner.socketsMu.Lock()
	delete(s.owner.sockets, s)
	s.owner.socketsMu.Unlock()
	return s.Conn.Close()
}
