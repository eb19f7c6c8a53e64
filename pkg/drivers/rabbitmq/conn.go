package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// farewell is how long the driver waits for the broker's answer when it closes a channel or connection.
const farewell = 3 * time.Second

// anywhere are the endpoints that mean "the first one of all that answers".
var anywhere []endpoint

// conn is one AMQP connection, on which each publisher and consumer has a channel. It never reconnects.
type conn struct {
	kit.State
	amqp    *amqp.Connection
	session *session
	raw     net.Conn
	address string
	once    sync.Once
	reader  *answerReader // nil unless the role is publisher
}

// administration is the role of connections for declarations.
const administration drivers.Role = "administration"

func (s *session) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	at, err := s.place(ctx, spec.Node, spec.Ordinal, spec.Topology,
		s.options.queueName(spec.Topology, spec.Subscription, spec.Queue))
	var c *conn
	if err == nil {
		c, err = s.dial(ctx, spec.Role, at)
	}
	if err != nil {
		if spec.Node.OfQueue() {
			s.forgetPlaces()
		}
		return nil, fmt.Errorf("connect %s: %w", spec.Role, err)
	}
	return c, nil
}

// dial connects to the first of some endpoints that answers.
func (s *session) dial(ctx context.Context, role drivers.Role, at []endpoint) (*conn, error) {
	if at == nil {
		at = s.endpoints
	}
	return kit.InTurn(ctx, len(at), func(ctx context.Context, i int) (*conn, error) { return s.dialOne(ctx, role, at[i]) })
}

func (s *session) dialOne(ctx context.Context, role drivers.Role, e endpoint) (*conn, error) {
	c := &conn{session: s, address: e.address}
	stop := func() bool { return true }
	config := amqp.Config{
		Heartbeat:  s.options.Heartbeat.Std(),
		FrameSize:  s.options.FrameMax,
		Properties: amqp.Table{"product": "Lockstep", "connection_name": "lockstep " + string(role)},
		Dial: func(network, _ string) (net.Conn, error) {
			dialling := ctx
			if s.options.CoalesceWrites { // then Publish does not wait for writes
				dialling = drivers.WithWaiting(ctx, nil)
			}
			raw, err := s.env.Dial(dialling, network, e.address)
			if err != nil {
				return nil, err
			}
			raw = kit.CloseOnReadError(raw) // the library ends no connection whose write is blocked
			c.raw = raw
			// The library's handshake takes no context. The end of ctx interrupts it by the connection's deadline.
			stop = context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
			transport := raw
			if e.encrypted {
				if transport, err = kit.Handshake(ctx, raw, s.tls, e.address); err != nil {
					return nil, err
				}
			}
			if s.options.CoalesceWrites {
				transport = newCoalescer(transport, raw, drivers.WaitingOf(ctx))
			}
			if role == drivers.PublisherRole {
				c.reader = newAnswerReader(transport)
				transport = c.reader
			}
			return transport, nil
		},
	}
	if config.Heartbeat < time.Second {
		config.Heartbeat = time.Millisecond // below 1 s the library uses the server's interval; 0 would mean 10 s
	}
	library, err := amqp.DialConfig(e.url, config)
	interrupted := !stop()
	if err == nil && interrupted {
		err = ctx.Err()
	}
	if err != nil {
		if c.raw != nil {
			_ = c.raw.Close()
		}
		if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		return nil, fmt.Errorf("connect to RabbitMQ at %s: %w", e.address, kit.Explain(err))
	}
	c.amqp = library
	if err := s.conns.Add(c); err != nil {
		return nil, fmt.Errorf("connect to RabbitMQ at %s: %w", e.address, err)
	}
	go c.watch(c.amqp.NotifyBlocked(make(chan amqp.Blocking, 4)), c.amqp.NotifyClose(make(chan *amqp.Error, 1)))
	return c, nil
}

// watch reports when the broker blocks or unblocks the connection, and when the connection ends.
func (c *conn) watch(blockings chan amqp.Blocking, closes chan *amqp.Error) {
	blocked := false
	for b := range blockings {
		if b.Active == blocked {
			continue
		}
		blocked = b.Active
		if blocked {
			c.session.block(c.address, b.Reason)
		} else {
			c.session.unblock()
		}
	}
	if blocked { // still blocked when the connection ended
		c.session.unblock()
	}
	c.Broke(c.cause(closes))
	c.session.conns.Remove(c)
}

// cause waits for the end of a channel or connection, and returns the reason.
func (c *conn) cause(closes chan *amqp.Error) error {
	if why, broke := <-closes; broke {
		return fmt.Errorf("%s: %w", c.address, why)
	}
	return fmt.Errorf("%s: %w", c.address, amqp.ErrClosed)
}

// follow ends a publisher or consumer when its channel ends, and then calls ended. A channel can end before its
// connection.
func (c *conn) follow(ch *amqp.Channel, part *kit.State, ended func()) {
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	go func() {
		part.EndWith(c, c.cause(closes))
		ended()
	}()
}

func (c *conn) Node() string { return c.address }

// Cut closes the network connection. The library then fails all calls and outstanding confirms.
func (c *conn) Cut() {
	c.Broke(fmt.Errorf("connection to %s was cut", c.address))
	_ = c.raw.Close()
}

// Close ends the connection with AMQP's handshake, after which the broker has received everything sent before. It ends
// within a few seconds even if the broker does not answer. A connection that breaks meanwhile is closed, too.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.End()
		force := time.AfterFunc(farewell+time.Second, func() { _ = c.raw.Close() })
		defer force.Stop()
		_ = c.amqp.CloseDeadline(time.Now().Add(farewell))
		_ = c.raw.Close()
		c.session.conns.Remove(c)
	})
	return nil
}

// closeChannel closes one channel of a connection that others may use. If the broker does not answer, it breaks the
// whole connection, because no other user gets an answer on it either.
func (c *conn) closeChannel(ch *amqp.Channel) error {
	defer c.breakLater().Stop()
	if err := ch.Close(); err != nil && !errors.Is(err, amqp.ErrClosed) {
		return fmt.Errorf("close channel at %s: %w", c.address, err)
	}
	return nil
}

// breakLater breaks the connection after farewell, unless the timer is stopped before. It ends calls of the library
// that wait for a dead broker.
func (c *conn) breakLater() *time.Timer {
	return time.AfterFunc(farewell, func() { _ = c.raw.Close() })
}

// within calls exchange, which uses the library and takes no context. It breaks the connection if ctx ends first.
func (c *conn) within(ctx context.Context, exchange func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = c.raw.Close() })
	err := exchange()
	if !stop() {
		return errors.Join(ctx.Err(), err)
	}
	return err
}
