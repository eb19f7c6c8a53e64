package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	client "github.com/nats-io/nats.go"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
	"lockstep/pkg/drivers/kit"
)

// dialTimeout applies to contexts without a deadline.
const dialTimeout = 10 * time.Second

// link is one connection to one server. A broken link is never reconnected.
type link struct {
	session *session
	address string
	nc      *client.Conn
	raw     net.Conn      // connection below nc: closing it ends every call that blocks in nc
	done    chan struct{} // closed when nc is closed
	cause   error         // why it broke, valid after done is closed; nil after close

	mu       sync.Mutex
	own      bool  // closed by this process
	why      error // reason of abandon
	warned   bool
	watchers map[any]func(error)
	uses     int // guarded by the mutex of its sharedLink
}

// dialFunc is Env.Dial or Env.ManagementDialer.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// dialer passes a dialFunc to the library. It keeps the connection and the error, which the library hides.
type dialer struct {
	ctx  context.Context
	dial dialFunc

	mu   sync.Mutex
	conn net.Conn
	err  error
}

// Dial implements the library's CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := d.dial(d.ctx, network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn, d.err = conn, err
	return conn, err
}

func (d *dialer) abort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		_ = d.conn.Close()
	}
}

// clientOptions returns the options of every connection. The library's reconnects are off, because they would hide gaps
// and send messages again.
func clientOptions() []client.Option {
	return []client.Option{
		client.Name("lockstep"), client.NoReconnect(), client.DontRandomize(), client.IgnoreDiscoveredServers(),
		client.SkipHostLookup(), client.SkipSubjectValidation(),
		client.PingInterval(10 * time.Second), client.MaxPingsOutstanding(3),
	}
}

// dialFirst connects to the first endpoint that answers. Each attempt has its share of the remaining time.
func (s *session) dialFirst(ctx context.Context, from []kit.Endpoint, by dialFunc) (*link, error) {
	return kit.InTurn(ctx, len(from), func(ctx context.Context, i int) (*link, error) { return s.dial(ctx, from[i], by) })
}

func (s *session) dial(ctx context.Context, e kit.Endpoint, by dialFunc) (*link, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", e.Address, err)
	}
	timeout := dialTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline), time.Millisecond)
	}
	l := &link{session: s, address: e.Address, done: make(chan struct{}), watchers: map[any]func(error){}}
	d := &dialer{ctx: ctx, dial: by}
	stop := context.AfterFunc(ctx, d.abort)
	defer stop()
	all := append(clientOptions(), s.security...)
	nc, err := client.Connect(e.URL.String(), append(all, client.SetCustomDialer(d), client.Timeout(timeout),
		client.ClosedHandler(l.onClosed), client.ErrorHandler(l.onError))...)
	switch {
	case err == nil:
	case d.err != nil:
		return nil, fmt.Errorf("connect to NATS at %s: %w", e.Address, d.err)
	case errors.Is(err, client.ErrSecureConnWanted):
		return nil, fmt.Errorf("connect to NATS at %s: the server has no TLS: remove the option tls: %w", e.Address, err)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("connect to NATS at %s: %w: %w", e.Address, ctx.Err(), err)
	default:
		return nil, fmt.Errorf("connect to NATS at %s: %w", e.Address, kit.Explain(err))
	}
	l.nc, l.raw = nc, d.conn
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.links[l] = struct{}{}
		s.names[e.Address] = nc.ConnectedServerName()
	}
	s.mu.Unlock()
	if closed {
		l.close()
		return nil, fmt.Errorf("connect to NATS at %s: session: %w", e.Address, drivers.ErrClosed)
	}
	return l, nil
}

// onClosed is called by the library when the connection has ended for any reason.
func (l *link) onClosed(nc *client.Conn) {
	l.mu.Lock()
	if !l.own {
		l.cause = fmt.Errorf("%w: %s: %w", drivers.ErrClosed, l.address, cmp.Or(l.why, nc.LastError(), errBroken))
	}
	watchers := l.watchers
	l.watchers = nil
	l.mu.Unlock()
	close(l.done)
	l.session.mu.Lock()
	delete(l.session.links, l)
	l.session.mu.Unlock()
	if l.cause == nil {
		return
	}
	for _, tell := range watchers {
		tell(l.cause)
	}
}

var errBroken = errors.New("closed by the other side")

// abandon breaks a link that no longer works. why becomes part of the cause.
func (l *link) abandon(why error) {
	l.mu.Lock()
	l.why = why
	l.mu.Unlock()
	_ = l.raw.Close()
}

// onError is called by the library for errors that do not break the link, such as a missing permission. Only the first
// error of a link is reported.
func (l *link) onError(_ *client.Conn, _ *client.Subscription, err error) {
	l.mu.Lock()
	quiet := l.own || l.warned || errors.Is(err, net.ErrClosed)
	l.warned = l.warned || !quiet
	l.mu.Unlock()
	if !quiet {
		l.session.event(drivers.EventNotice, fmt.Sprintf("NATS at %s: %v", l.address, err))
	}
}

// watch registers tell, which is called when the link breaks by itself. If the link is broken already, watch calls it.
func (l *link) watch(who any, tell func(error)) {
	l.mu.Lock()
	if l.watchers != nil {
		l.watchers[who] = tell
		l.mu.Unlock()
		return
	}
	own, cause := l.own, l.cause
	l.mu.Unlock()
	if !own {
		tell(cause)
	}
}

func (l *link) unwatch(who any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watchers, who)
}

// broken does not use the library's lock, which a blocked write may hold.
func (l *link) broken() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// guarded calls do, which may block in the library without a deadline. It breaks the link after grace.
func (l *link) guarded(do func()) {
	timer := time.AfterFunc(grace, func() { _ = l.raw.Close() })
	defer timer.Stop()
	do()
}

// flush returns when the server has received everything sent so far, when the link is broken, or after grace.
func (l *link) flush() {
	if !l.broken() {
		l.guarded(func() { _ = l.nc.FlushTimeout(grace) })
	}
}

// close ends the connection without waiting for replies.
func (l *link) close() {
	l.mu.Lock()
	l.own = true
	l.mu.Unlock()
	l.guarded(l.nc.Close)
	<-l.done
}

// linkKey identifies a shared connection.
type linkKey struct {
	node   drivers.Node
	number int
}

// sharedLink stores the shared connection of one key while it has users.
type sharedLink struct {
	mu   sync.Mutex
	link *link
}

// join returns a connection for node and number, and the function to call when its user has ended. Users with the same
// node and number share a connection, except with legacy.Exclusive.
func (s *session) join(ctx context.Context, at []kit.Endpoint, node drivers.Node, number int) (*link, func(), error) {
	if number == legacy.Exclusive {
		l, err := s.dialFirst(ctx, at, s.env.Dial)
		if err != nil {
			return nil, nil, err
		}
		return l, l.close, nil
	}
	key := linkKey{node, number}
	s.mu.Lock()
	if s.sharedLinks[key] == nil {
		s.sharedLinks[key] = &sharedLink{}
	}
	shared := s.sharedLinks[key]
	s.mu.Unlock()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.link == nil || shared.link.broken() {
		l, err := s.dialFirst(ctx, at, s.env.Dial)
		if err != nil {
			return nil, nil, err
		}
		shared.link = l
	}
	l := shared.link
	l.uses++
	return l, func() { shared.leave(l) }, nil
}

func (s *sharedLink) leave(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.uses--
	if l.uses == 0 {
		l.close()
		if s.link == l {
			s.link = nil
		}
	}
}
