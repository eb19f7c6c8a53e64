package rabbitmq

import (
	"context"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// binder is the connection on which bindings are created and removed while messages flow. It goes to the first endpoint
// that answers, like the connection of an application that binds its own queue. Each running call has its own channel,
// because a channel processes calls one after the other.
type binder struct {
	mu   sync.Mutex // locked while dialling
	conn *conn
	idle []*amqp.Channel
}

// Bind binds a queue with a key of its own and waits for the broker's answer.
func (s *session) Bind(ctx context.Context, t drivers.Topology, subscription, queue int, key uint32) error {
	err := s.rebind(ctx, key, func(ch *amqp.Channel) error {
		r := s.options.extraRoute(queue, key)
		return ch.QueueBind(s.options.queueName(t, subscription, queue), r.key, s.options.exchangeName(t, queue), false,
			r.binding())
	})
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

// Unbind removes the binding. RabbitMQ reports no error if the binding does not exist.
func (s *session) Unbind(ctx context.Context, t drivers.Topology, subscription, queue int, key uint32) error {
	err := s.rebind(ctx, key, func(ch *amqp.Channel) error {
		r := s.options.extraRoute(queue, key)
		return ch.QueueUnbind(s.options.queueName(t, subscription, queue), r.key, s.options.exchangeName(t, queue),
			r.binding())
	})
	if err != nil {
		return fmt.Errorf("unbind: %w", err)
	}
	return nil
}

// rebind makes one call on a channel of the binder.
func (s *session) rebind(ctx context.Context, key uint32, call func(*amqp.Channel) error) error {
	if o := &s.options; !capabilities(o, drivers.Use{}).Churn {
		return fmt.Errorf("%w: bindings of %s exchanges and %s queues are not distinguished by a key",
			drivers.ErrUnsupported, o.Exchange.Type, o.Queue.Type)
	}
	if key < drivers.ChurnKey {
		return fmt.Errorf("key %d belongs to the queue's own bindings: those made while messages flow begin at %d", key,
			drivers.ChurnKey)
	}
	c, ch, err := s.binder.borrow(ctx, s)
	if err != nil {
		return err
	}
	if err := c.within(ctx, func() error { return call(ch) }); err != nil {
		return err // the channel or its connection is closed: do not reuse it
	}
	s.binder.giveBack(c, ch)
	return nil
}

func (b *binder) borrow(ctx context.Context, s *session) (*conn, *amqp.Channel, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil || b.conn.amqp.IsClosed() {
		c, err := s.dial(ctx, administration, anywhere)
		if err != nil {
			return nil, nil, err
		}
		b.conn, b.idle = c, nil
	}
	for len(b.idle) > 0 {
		ch := b.idle[len(b.idle)-1]
		b.idle = b.idle[:len(b.idle)-1]
		if !ch.IsClosed() {
			return b.conn, ch, nil
		}
	}
	var ch *amqp.Channel
	err := b.conn.within(ctx, func() (err error) {
		ch, err = b.conn.amqp.Channel()
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("open channel at %s: %w", b.conn.address, err)
	}
	return b.conn, ch, nil
}

func (b *binder) giveBack(c *conn, ch *amqp.Channel) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == c {
		b.idle = append(b.idle, ch)
	}
}
