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

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// farewell is how long the driver waits for the broker's answer when it closes a link or connection.
const farewell = 3 * time.Second

// writeLimit is so long that it means no limit. A broker that reads nothing blocks the publisher until the engine gives
// up. The idle timeout detects a broker that is silent as well. The library's own value for "no limit" would break
// connections at their first keep-alive.
const writeLimit = time.Hour

// conn is one AMQP connection. Each of its publishers and consumers has an AMQP session of its own.
type conn struct {
	kit.State
	amqp    *amqp.Conn
	session *Session
	raw     net.Conn
	address string
	once    sync.Once
}

// dial connects to the endpoint that answered last, or to the next endpoint in the list that answers. If there is
// another one, each attempt has a limited time, because a passive broker may accept a connection and never answer.
func (s *Session) dial(ctx context.Context, dial kit.DialFunc) (*conn, error) {
	first := int(s.at.Load())
	return kit.InTurn(ctx, len(s.endpoints), func(ctx context.Context, i int) (*conn, error) {
		if _, limited := ctx.Deadline(); !limited || len(s.endpoints) > 1 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.options.ConnectTimeout.Std())
			defer cancel()
		}
		if i > 0 && s.conns.Closed() {
			return nil, drivers.ErrClosed
		}
		at := (first + i) % len(s.endpoints)
		c, err := s.dialOne(ctx, dial, s.endpoints[at])
		if err != nil {
			return nil, err
		}
		if before := int(s.at.Swap(int64(at))); before != at {
			s.env.Event(drivers.EventNotice, fmt.Sprintf("failed over from %s to %s", s.endpoints[before].Address,
				s.endpoints[at].Address))
		}
		return c, nil
	})
}

func (s *Session) dialOne(ctx context.Context, dial kit.DialFunc, e kit.Endpoint) (*conn, error) {
	raw, err := dial(ctx, "tcp", e.Address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s at %s: %w", s.product, e.Address, err)
	}
	raw = kit.CloseOnReadError(raw) // the library ends no connection whose write is blocked
	c := &conn{session: s, raw: raw, address: e.Address}
	if c.amqp, err = s.handshake(ctx, raw, e); err != nil {
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
	if err := s.conns.Add(c); err != nil {
		return nil, fmt.Errorf("connect to %s at %s: %w", s.product, e.Address, err)
	}
	go c.watch()
	return c, nil
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

func (c *conn) Node() string { return c.address }

func (c *conn) watch() {
	<-c.amqp.Done()
	c.Broke(fmt.Errorf("%s: %w", c.address, cmp.Or(c.amqp.Err(), errors.New("the broker closed the connection"))))
}

func (c *conn) Cut() { c.cut(errors.New("the connection was cut")) }

func (c *conn) cut(reason error) {
	c.Broke(fmt.Errorf("%s: %w", c.address, reason))
	_ = c.raw.Close()
}

// Close closes the connection, within a few seconds even if the broker does not answer. Errors are ignored, because
// they contain nothing about messages.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.End()
		force := time.AfterFunc(farewell, func() { _ = c.raw.Close() })
		_ = c.amqp.Close()
		force.Stop()
		_ = c.raw.Close()
		c.session.conns.Remove(c)
	})
	return nil
}

// within calls exchange, which uses the library. The library checks ctx while it waits for an answer, but not during a
// blocked write. So within breaks the connection, which others may use, if exchange does not return soon after ctx
// ended.
func (c *conn) within(ctx context.Context, exchange func() error) error {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-done:
		case <-time.After(time.Second):
			c.cut(ctx.Err())
		}
	})
	err := exchange()
	close(done)
	if !stop() {
		return errors.Join(ctx.Err(), err)
	}
	return err
}

func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
