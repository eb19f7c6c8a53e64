package nats

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	client "github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// publisher ends with its connection.
type publisher struct {
	drivers.Ended // of conn

	conn     *conn
	spec     drivers.PublisherSpec
	subjects []string    // indexed by key
	confirm  *confirmer  // nil in unconfirmed modes
	closed   atomic.Bool // by Close
}

// Publisher connects a publisher. In unconfirmed modes it uses NATS core publish. JetStream then stores the messages
// without a reply.
func (c *conn) Publisher(ctx context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	if err := c.session.exists(ctx, spec.Topology, spec.Queue); err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	p := &publisher{Ended: c, conn: c, spec: spec}
	for key := range spec.Topology.Bindings {
		p.subjects = append(p.subjects, subject(spec.Topology, spec.Queue, key))
	}
	if spec.Topology.Existing != "" {
		p.subjects = []string{drivers.QueueName(c.session.options.Subject, spec.Queue)}
	}
	if spec.Mode.Confirmed() {
		var err error
		if p.confirm, err = newConfirmer(c, spec, c.session.options.Confirm.Std()); err != nil {
			return nil, fmt.Errorf("connect publisher: listen for confirms at %s: %w", c.address, err)
		}
		p.confirm.repeats = c.session.options.repeats()
	}
	return p, nil
}

// Publish writes one message into the library's buffer, which a goroutine of the library flushes to the connection. It
// blocks while the buffer is full. In modes that wait for each confirm, it also waits for the confirm.
func (p *publisher) Publish(ctx context.Context, m drivers.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.closed.Load() {
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	to := p.subjects[0]
	if n := uint32(len(p.subjects)); n > 1 {
		to = p.subjects[m.Key%n]
	}
	if p.confirm == nil {
		if err := p.conn.nc.Publish(to, m.Body); err != nil {
			return p.refused(err)
		}
		return nil
	}
	if p.confirm.prompt {
		return p.promptly(to, m)
	}
	return p.send(to, m)
}

// send publishes a message. Its confirm is settled when the reply arrives.
func (p *publisher) send(to string, m drivers.Message) error {
	at := p.confirm.slots.take(m.Token, to, m.Body)
	err := p.conn.nc.PublishRequest(to, at.reply, m.Body)
	if err == nil && !p.confirm.over.Load() {
		return nil
	}
	if _, mine := at.settle(); !mine {
		return nil // failed when the connection ended: the message counts as accepted
	}
	if err == nil {
		err = client.ErrConnectionClosed
	}
	return p.refused(err)
}

// promptly publishes and waits for the confirm in the same goroutine. This saves a goroutine switch per message.
func (p *publisher) promptly(to string, m drivers.Message) error {
	p.confirm.turn.Lock()
	defer p.confirm.turn.Unlock()
	err := p.send(to, m)
	if err == nil {
		p.confirm.await(p.spec.Waiting)
	}
	return err
}

// refused explains why the library did not accept a message. It breaks the connection if the write failed.
func (p *publisher) refused(err error) error {
	if errors.Is(err, client.ErrMaxPayload) {
		return fmt.Errorf("publish at %s: %w (the server accepts at most %d bytes)", p.conn.address, err,
			p.conn.nc.MaxPayload())
	}
	if !errors.Is(err, client.ErrConnectionClosed) {
		_ = p.conn.raw.Close() // messages in the library's buffer may be lost
	}
	return fmt.Errorf("publish at %s: %w: %w", p.conn.address, drivers.ErrClosed, err)
}

// Flush only checks ctx: the library's goroutine writes on its own.
func (p *publisher) Flush(ctx context.Context) error { return ctx.Err() }

// Close waits for outstanding confirms. In unconfirmed modes it waits for a round trip after the last message.
func (p *publisher) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	if p.confirm != nil {
		p.confirm.close()
	} else {
		p.conn.flush()
	}
	return nil
}
