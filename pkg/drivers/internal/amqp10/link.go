package amqp10

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/kit"
)

// farewell is how long the driver waits for the broker's answer when it closes a link or connection.
const farewell = 3 * time.Second

// writeLimit is so long that it means no limit. A broker that reads nothing blocks the publisher until the engine gives
// up. The idle timeout detects a broker that is silent as well. The library's own value for "no limit" would break
// connections at their first keep-alive.
const writeLimit = time.Hour

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// link is one AMQP connection. A broken link is never reconnected.
type link struct {
	*amqp.Conn
	owner   *Session
	raw     net.Conn
	address string
	once    sync.Once
}

// dial connects to the endpoint that answered last, or to the next endpoint in the list that answers. If there is
// another one, each attempt has a limited time, because a passive broker may accept a connection and never answer.
func (s *Session) dial(ctx context.Context, dial dialFunc) (*link, error) {
	s.mu.Lock()
	first := s.at
	s.mu.Unlock()
	return kit.InTurn(ctx, len(s.endpoints), func(ctx context.Context, i int) (*link, error) {
		if _, limited := ctx.Deadline(); !limited || len(s.endpoints) > 1 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.options.ConnectTimeout.Std())
			defer cancel()
		}
		if i > 0 && s.isClosed() {
			return nil, drivers.ErrClosed
		}
		at := (first + i) % len(s.endpoints)
		l, err := s.dialOne(ctx, dial, s.endpoints[at])
		if err == nil {
			s.answered(at)
		}
		return l, err
	})
}

// answered stores the index of the endpoint that answered. It reports a failover by a notice.
func (s *Session) answered(at int) {
	s.mu.Lock()
	before := s.at
	s.at = at
	s.mu.Unlock()
	if before != at {
		s.env.Event(drivers.EventNotice, fmt.Sprintf("failed over from %s to %s", s.endpoints[before].Address,
			s.endpoints[at].Address))
	}
}

func (s *Session) dialOne(ctx context.Context, dial dialFunc, e kit.Endpoint) (*link, error) {
	raw, err := dial(ctx, "tcp", e.Address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s at %s: %w", s.product, e.Address, err)
	}
	l := &link{owner: s, raw: raw, address: e.Address}
	if l.Conn, err = s.handshake(ctx, raw, e); err != nil {
		_ = raw.Close()
		// either deadline may be noticed first: that of ctx or that of the connection
		if ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil,
				fmt.Errorf("connect to %s at %s: it accepts connections but does not answer, as a passive broker: %w",
					s.product, e.Address, cmp.Or(ctx.Err(), context.DeadlineExceeded))
		}
		if strings.Contains(err.Error(), "auth failed") { // the library has no error type for it
			err = fmt.Errorf("%w (check user and password in the url)", err)
		}
		return nil, fmt.Errorf("open connection to %s at %s: %w", s.product, e.Address, kit.Explain(err))
	}
	if err := s.adopt(l); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (s *Session) handshake(ctx context.Context, raw net.Conn, e kit.Endpoint) (*amqp.Conn, error) {
	conn := raw
	if e.TLS {
		var err error
		if conn, err = kit.Handshake(ctx, raw, s.tls, e.Address); err != nil {
			return nil, err
		}
	}
	o := amqp.ConnOptions{
		HostName: e.URL.Hostname(), IdleTimeout: s.options.IdleTimeout.Std(), WriteTimeout: writeLimit,
		SASLType:   amqp.SASLTypePlain(e.User, e.Password),
		Properties: map[string]any{"product": "Lockstep"},
	}
	if e.URL.User == nil {
		o.SASLType = amqp.SASLTypeAnonymous()
	}
	return amqp.NewConn(ctx, conn, &o)
}

// adopt registers l in the session. It fails if the session is closed.
func (s *Session) adopt(l *link) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("connect to %s at %s: %w (the session is closed)", s.product, l.address, drivers.ErrClosed)
	}
	s.links[l] = struct{}{}
	return nil
}

func (s *Session) forget(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, l)
}

func (l *link) broken() bool {
	select {
	case <-l.Done():
		return true
	default:
		return false
	}
}

// cause returns why the connection ended.
func (l *link) cause() error {
	if err := l.Err(); err != nil {
		return fmt.Errorf("%w: %s: %w", drivers.ErrClosed, l.address, err)
	}
	return fmt.Errorf("%w: %s closed the connection", drivers.ErrClosed, l.address)
}

// cut breaks the connection immediately.
func (l *link) cut() { _ = l.raw.Close() }

// close closes the connection, within a few seconds even if the broker does not answer. Links whose messages matter
// must be closed before. Errors are ignored, because they contain nothing about messages.
func (l *link) close() {
	l.once.Do(func() {
		if l.Conn != nil {
			force := time.AfterFunc(farewell, l.cut)
			_ = l.Conn.Close()
			force.Stop()
		}
		l.cut()
		l.owner.forget(l)
	})
}

// within calls exchange, which uses the library. The library checks ctx only at some points, so within breaks the
// connection if ctx ends first.
func (l *link) within(ctx context.Context, exchange func() error) error {
	stop := context.AfterFunc(ctx, l.cut)
	err := exchange()
	if !stop() {
		return errors.Join(ctx.Err(), err)
	}
	return err
}

// end closes a link of this connection with AMQP's handshake, after which the broker has received everything that was
// sent on it. It also closes the AMQP session if the connection stays open. If the broker does not answer, end breaks
// the connection, because no other user gets an answer on it either.
func (l *link) end(closeLink func(context.Context) error, session *amqp.Session, stays bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	err := closeLink(ctx)
	if stays && ctx.Err() == nil {
		err = errors.Join(err, session.Close(ctx))
	}
	if ctx.Err() != nil {
		l.cut()
	}
	if err != nil {
		return fmt.Errorf("close link at %s: %w", l.address, err)
	}
	return nil
}
