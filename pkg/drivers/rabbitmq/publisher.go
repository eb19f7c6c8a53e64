package rabbitmq

import (
	"context"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

type publisher struct {
	kit.State
	spec     drivers.PublisherSpec
	conn     *conn
	channel  *amqp.Channel
	exchange string
	routes   []route
	rebinds  bool // the options support Binder: messages of a ChurnKey get a route of their own
	delivery uint8

	settler *settler // for confirms and returns; nil if there are neither
	// Publish waits for the confirm in the same goroutine, which saves a goroutine switch per message
	prompt bool

	mu   sync.Mutex // locked while publishing
	done bool
	once sync.Once
	err  error
}

// Publisher opens a channel, in confirm mode if the mode requires it.
func (c *conn) Publisher(ctx context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	o := &c.session.options
	p := &publisher{
		spec: spec, conn: c,
		exchange: o.exchangeName(spec.Topology, spec.Queue),
		routes:   o.routes(spec.Topology, spec.Queue),
		rebinds:  capabilities(o, drivers.Use{}).Churn,
		delivery: amqp.Transient,
		prompt: (spec.Mode == drivers.ConfirmEach || spec.Mode == drivers.ConnectionPerMessageConfirm) &&
			!spec.Mandatory,
	}
	if spec.Persistent {
		p.delivery = amqp.Persistent
	}
	err := c.within(ctx, func() (err error) {
		if p.channel, err = c.Channel(); err == nil && spec.Mode.Confirmed() {
			err = p.channel.Confirm(false)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect publisher: open channel at %s: %w", c.address, err)
	}
	if spec.Mode.Confirmed() || spec.Mandatory {
		p.settler = newSettler(p)
	}
	c.follow(p.channel, &p.State)
	return p, nil
}

// Publish writes one message to the connection. In modes that wait for each confirm, it also waits for the confirm.
func (p *publisher) Publish(ctx context.Context, m drivers.Message) error {
	to := &p.routes[0]
	if m.Key >= drivers.ChurnKey && p.rebinds {
		extra := p.conn.session.options.extraRoute(p.spec.Queue, m.Key)
		to = &extra
	} else if n := uint32(len(p.routes)); n > 1 {
		to = &p.routes[m.Key%n]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	confirm, err := p.channel.PublishWithDeferredConfirm(p.exchange, to.key, p.spec.Mandatory, false,
		amqp.Publishing{Headers: to.headers, DeliveryMode: p.delivery, Body: m.Body})
	if err != nil {
		return fmt.Errorf("publish at %s: %w: %w", p.conn.address, drivers.ErrClosed, err)
	}
	if confirm == nil {
		return nil
	}
	if p.prompt {
		p.spec.Waiting.Begin()
		select {
		case <-confirm.Done():
			p.spec.Waiting.End()
			p.settler.settle(pending{confirm, m.Token})
			p.settler.confirms.Report()
			return nil
		case <-ctx.Done():
			p.spec.Waiting.End()
			p.prompt = false // from now on only the settler calls OnConfirms, so that calls never overlap
		}
	}
	p.settler.add(pending{confirm, m.Token})
	return nil
}

// Flush only reports a broken link: the library writes each message to the connection immediately.
func (p *publisher) Flush(context.Context) error { return p.Err() }

// Close closes the channel. AMQP's handshake makes sure that the broker has received everything that was published.
func (p *publisher) Close() error {
	p.once.Do(func() {
		p.End()
		p.mu.Lock()
		p.done = true
		each := p.spec.Mode == drivers.ConnectionPerMessage ||
			p.spec.Mode == drivers.ConnectionPerMessageConfirm && p.prompt
		p.mu.Unlock()
		// The connection of a single message is closed next. That closes the channel, too, but may lose returned messages.
		if !each || p.spec.Mandatory {
			p.err = p.conn.closeChannel(p.channel)
		}
		p.settler.finish()
	})
	return p.err
}
