package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/kit"
)

// farewell is how long the driver waits for the broker's answer when it closes a channel or connection.
const farewell = 3 * time.Second

// anywhere is the endpoint index that means "the first endpoint that answers".
const anywhere = -1

// from returns the endpoint index that means "endpoint i, or the next one that answers".
func from(i int) int { return anywhere - 1 - i }

// link is one AMQP connection. A broken link is never reconnected.
type link struct {
	*amqp.Connection
	session *session
	raw     net.Conn
	address string
	once    sync.Once
	err     error
}

// dial connects to endpoint at, or to the first endpoint that answers (see from).
func (s *session) dial(ctx context.Context, at int) (*link, error) {
	if at >= 0 {
		return s.dialOne(ctx, s.endpoints[at])
	}
	first := max(0, anywhere-1-at)
	return kit.InTurn(ctx, len(s.endpoints), func(ctx context.Context, i int) (*link, error) {
		return s.dialOne(ctx, s.endpoints[(first+i)%len(s.endpoints)])
	})
}

func (s *session) dialOne(ctx context.Context, e endpoint) (*link, error) {
	l := &link{session: s, address: e.address}
	stop := func() bool { return true }
	config := amqp.Config{
		Heartbeat:  s.options.Heartbeat.Std(),
		FrameSize:  s.options.FrameMax,
		Properties: amqp.Table{"product": "Lockstep", "connection_name": "lockstep"},
		Dial: func(network, address string) (net.Conn, error) {
			conn, err := s.env.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			l.raw = conn
			// The library's handshake takes no context. The end of ctx interrupts it by the connection's deadline.
			stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
			return conn, nil
		},
		TLSClientConfig: s.tls.Clone(), // the library sets the server name
	}
	if config.Heartbeat < time.Second {
		config.Heartbeat = time.Millisecond // below 1 s the library uses the server's interval; 0 would mean 10 s
	}
	conn, err := amqp.DialConfig(e.url, config)
	interrupted := !stop()
	if err == nil && interrupted {
		err = ctx.Err()
	}
	if err != nil {
		if l.raw != nil {
			_ = l.raw.Close()
		}
		if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		return nil, fmt.Errorf("connect to RabbitMQ at %s: %w", e.address, kit.Explain(err))
	}
	l.Connection = conn
	if err := s.adopt(l); err != nil {
		_ = l.close()
		return nil, err
	}
	return l, nil
}

// adopt registers l in the session, and starts to listen for blocking notices. It fails if the session is closed.
func (s *session) adopt(l *link) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("connect to RabbitMQ at %s: %w (the session is closed)", l.address, drivers.ErrClosed)
	}
	s.links[l] = struct{}{}
	go l.listen(l.NotifyBlocked(make(chan amqp.Blocking, 4)))
	return nil
}

// listen reports when the broker blocks or unblocks the connection. It ends with the connection.
func (l *link) listen(blockings chan amqp.Blocking) {
	blocked := false
	for b := range blockings {
		if b.Active == blocked {
			continue
		}
		blocked = b.Active
		if blocked {
			l.session.block(l.address, b.Reason)
		} else {
			l.session.unblock()
		}
	}
	if blocked { // still blocked when the connection ended
		l.session.unblock()
	}
	l.session.forget(l)
}

func (s *session) forget(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, l)
}

// close ends the connection with AMQP's handshake, after which the broker has received everything sent before. It ends
// within a few seconds even if the broker does not answer.
func (l *link) close() error {
	l.once.Do(func() {
		force := time.AfterFunc(farewell+time.Second, func() { _ = l.raw.Close() })
		defer force.Stop()
		if err := l.CloseDeadline(time.Now().Add(farewell)); err != nil && !errors.Is(err, amqp.ErrClosed) {
			l.err = fmt.Errorf("close connection to %s: %w", l.address, err)
		}
		_ = l.raw.Close()
		l.session.forget(l)
	})
	return l.err
}

// closeChannel closes one channel of a connection that others may use. If the broker does not answer, it breaks the
// whole connection, because no other user gets an answer on it either.
func (l *link) closeChannel(ch *amqp.Channel) error {
	force := time.AfterFunc(farewell, func() { _ = l.raw.Close() })
	defer force.Stop()
	if err := ch.Close(); err != nil && !errors.Is(err, amqp.ErrClosed) {
		return fmt.Errorf("close channel at %s: %w", l.address, err)
	}
	return nil
}

// within calls exchange, which uses the library and takes no context. It breaks the connection if ctx ends first.
func (l *link) within(ctx context.Context, exchange func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = l.raw.Close() })
	err := exchange()
	if !stop() {
		return errors.Join(ctx.Err(), err)
	}
	return err
}
