package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// conns are the connections of one engine. Publishers or consumers with equal keys share one. Its methods are safe for
// concurrent use.
type conns struct {
	session drivers.Session

	mu     sync.Mutex
	shared map[connKey]*sharedConn // those that work or are being dialled, without exclusive ones
}

// connKey identifies a connection.
type connKey struct {
	number int // of the connection on this agent
	spec   drivers.ConnSpec
}

// exclusive is the number of connections that are not shared.
const exclusive = -1

// sharedConn is a connection and its users.
type sharedConn struct {
	of   *conns
	key  connKey
	turn chan struct{} // a token while it is dialled: a mutex would stop the virtual time of tests

	// guarded by of.mu
	conn  drivers.Conn // nil until it is dialled
	uses  int          // leases, and users that wait for turn
	users map[*lease]struct{}
}

// lease is the use of a connection by one publisher or consumer.
type lease struct {
	shared *sharedConn
	onEnd  func(error) // called when the connection or its publisher or consumer breaks
	ending atomic.Bool
	ended  chan struct{} // closed when close has returned
}

// acquire returns the connection of a key. It dials if there is none that works. onEnd is called in another goroutine
// when the connection breaks, until the lease is closed.
func (c *conns) acquire(ctx context.Context, key connKey, onEnd func(error)) (*lease, error) {
	if err := ctx.Err(); err != nil { // a driver may break a shared connection when the context of a call ends
		return nil, err
	}
	s := c.enter(key)
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		s.leave()
		return nil, fmt.Errorf("wait for a shared connection: %w", ctx.Err())
	}
	defer func() { <-s.turn }()
	if s.conn == nil { // written only with turn
		conn, err := c.session.Connect(ctx, key.spec)
		if err != nil {
			s.leave()
			return nil, err
		}
		c.mu.Lock()
		s.conn = conn
		c.mu.Unlock()
		go s.watch(conn)
	}
	l := &lease{shared: s, onEnd: onEnd, ended: make(chan struct{})}
	c.mu.Lock()
	broken := s.broken()
	if !broken {
		s.users[l] = struct{}{}
	}
	c.mu.Unlock()
	if broken { // watch does not report it to this user
		err := s.conn.Err()
		s.leave()
		return nil, fmt.Errorf("the connection ended at once: %w", cmp.Or(err, drivers.ErrClosed))
	}
	return l, nil
}

// enter adds a use of the connection of a key, which may not be dialled yet.
func (c *conns) enter(key connKey) *sharedConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shared[key]
	if s == nil || s.broken() {
		s = &sharedConn{of: c, key: key, turn: make(chan struct{}, 1), users: map[*lease]struct{}{}}
		if key.number != exclusive {
			c.shared[key] = s
		}
	}
	s.uses++
	return s
}

// broken reports whether the connection has ended. The caller holds of.mu.
func (s *sharedConn) broken() bool {
	if s.conn == nil {
		return false
	}
	select {
	case <-s.conn.Done():
		return true
	default:
		return false
	}
}

// leave ends a use. The last one closes the connection.
func (s *sharedConn) leave() {
	s.of.mu.Lock()
	s.uses--
	last, conn := s.uses == 0, s.conn
	if last && s.of.shared[s.key] == s {
		delete(s.of.shared, s.key)
	}
	s.of.mu.Unlock()
	if last && conn != nil {
		_ = conn.Close() // its publishers or consumers are closed: an error has no effect on messages
	}
}

// watch waits for the end of the connection, and reports it to the users.
func (s *sharedConn) watch(conn drivers.Conn) {
	<-conn.Done()
	s.of.mu.Lock()
	users := slices.Collect(maps.Keys(s.users))
	s.of.mu.Unlock()
	if err := conn.Err(); err != nil {
		for _, l := range users {
			l.onEnd(err)
		}
	}
}

// watch reports the end of the lease's publisher or consumer, if it can end before its connection.
func (l *lease) watch(part drivers.Ended) {
	done := part.Done()
	if done == nil || done == l.shared.conn.Done() {
		return
	}
	go func() {
		<-done
		if err := part.Err(); err != nil && !l.ending.Load() {
			l.onEnd(err)
		}
	}()
}

// close ends the lease: it calls end, which closes the publisher or consumer, and leaves the connection. It may be
// called twice. Each call returns when the first one has ended.
func (l *lease) close(end func() error) error {
	if l.ending.Swap(true) {
		<-l.ended
		return nil
	}
	defer close(l.ended)
	l.shared.of.mu.Lock()
	delete(l.shared.users, l)
	l.shared.of.mu.Unlock()
	defer l.shared.leave()
	return end()
}

// Cut breaks the connection for all its users.
func (l *lease) Cut() { l.shared.conn.Cut() }

// publishing is a publisher with its lease.
type publishing struct {
	drivers.Publisher
	lease *lease
}

// publish connects a publisher.
func (c *conns) publish(ctx context.Context, key connKey, spec drivers.PublisherSpec, onEnd func(error)) (publishing,
	error) {
	l, err := c.acquire(ctx, key, onEnd)
	if err != nil {
		return publishing{}, err
	}
	p, err := l.shared.conn.Publisher(ctx, spec)
	if err != nil {
		_ = l.close(func() error { return nil })
		return publishing{}, err
	}
	l.watch(p)
	return publishing{p, l}, nil
}

// Close closes the publisher, and leaves its connection.
func (p publishing) Close() error { return p.lease.close(p.Publisher.Close) }

// Cut breaks the publisher's connection.
func (p publishing) Cut() { p.lease.Cut() }
