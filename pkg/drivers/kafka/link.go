package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/kit"
)

const (
	// signOfLife is the interval at which the libraries request metadata from a broker. So it is the time within which a
	// link detects that this connection was closed.
	signOfLife = 4 * time.Second
	// idle is the time after which the libraries close unused connections. It is less than the brokers' default of ten
	// minutes.
	idle = 9 * time.Minute
)

// link is the set of connections of one publisher or consumer, or of publishers that share a client. With resilience
// "none", and while a client is being connected, one broken connection breaks the whole link for good. Otherwise the
// libraries connect again, and the link breaks when they give up. Connections that a library closes itself, and answers
// that it no longer waits for, do not break the link.
type link struct {
	session *session
	ctx     context.Context // cancelled when the link ends
	cancel  context.CancelFunc
	over    atomic.Bool
	lasts   atomic.Bool // a broken connection does not break the link

	mu       sync.Mutex
	conns    map[*conn]struct{}
	cause    error // why it broke; nil before, and after close
	watchers map[any]func(error)
}

// link creates a link without connections.
func (s *session) link() (*link, error) {
	l := &link{session: s, conns: map[*conn]struct{}{}, watchers: map[any]func(error){}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		l.cancel()
		return nil, fmt.Errorf("session: %w", drivers.ErrClosed)
	}
	s.links[l] = struct{}{}
	return l, nil
}

// dial is the dial function of the libraries. It uses Env.Dial.
func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if l.over.Load() {
		return nil, fmt.Errorf("connect to %s: link: %w", address, drivers.ErrClosed)
	}
	// Publish does not wait for writes, because the libraries' goroutines write: it waits for room only
	ctx, cancel := context.WithCancel(drivers.WithWaiting(ctx, nil))
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	raw, err := kit.Dial(l.session.env.Dial, l.session.tls)(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, link: l, address: address}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over.Load() {
		_ = raw.Close()
		return nil, fmt.Errorf("connect to %s: link: %w", address, drivers.ErrClosed)
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// broke breaks the link and notifies its watchers. Only the first call of broke or close has an effect.
func (l *link) broke(why error) {
	l.mu.Lock()
	if l.over.Swap(true) {
		l.mu.Unlock()
		return
	}
	l.cause = fmt.Errorf("%w: %w", drivers.ErrClosed, why)
	watchers := l.watchers
	l.watchers = nil
	l.mu.Unlock()
	l.end()
	for _, tell := range watchers {
		tell(l.cause)
	}
}

// close closes the link immediately. It does not notify its watchers.
func (l *link) close() {
	l.over.Store(true)
	l.mu.Lock()
	l.watchers = nil
	l.mu.Unlock()
	l.end()
}

func (l *link) end() {
	l.cancel()
	l.mu.Lock()
	open := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		open = append(open, c)
	}
	l.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
	l.session.mu.Lock()
	delete(l.session.links, l)
	l.session.mu.Unlock()
}

// watch registers tell, which is called when the link breaks by itself. If the link is broken already, watch calls it.
func (l *link) watch(who any, tell func(error)) {
	l.mu.Lock()
	if l.watchers != nil {
		l.watchers[who] = tell
		l.mu.Unlock()
		return
	}
	cause := l.cause
	l.mu.Unlock()
	if cause != nil {
		tell(cause)
	}
}

// why returns why the link broke, or nil.
func (l *link) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

func (l *link) unwatch(who any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watchers, who)
}

// connected notes that the client works. From then on the library may connect again.
func (l *link) connected() { l.lasts.Store(l.session.options.persists()) }

// conn is one connection of a link. A failed read or write breaks the link, unless it lasts.
type conn struct {
	net.Conn
	link    *link
	address string
	closed  atomic.Bool
	lost    atomic.Bool // failed
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.failed(err)
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.failed(err)
	}
	return n, err
}

// failed breaks or records the connection, unless the error is a timeout: the libraries use deadlines to end reads that they no longer
// need. Callers that wait for an answer have timeouts of their own.
func (c *conn) failed(err error) {
	var timeout net.Error
	if c.closed.Load() || (errors.As(err, &timeout) && timeout.Timeout()) {
		return
	}
	if !c.link.lasts.Load() {
		c.link.broke(fmt.Errorf("%s: %w", c.address, err))
		return
	}
	if !c.lost.Swap(true) && !c.link.over.Load() {
		c.link.session.env.Event(drivers.EventNotice,
			fmt.Sprintf("connection to %s broke: %v; the library connects again", c.address, err))
	}
}

func (c *conn) Close() error {
	c.closed.Store(true)
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}
