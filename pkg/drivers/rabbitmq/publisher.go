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
	spec       drivers.PublisherSpec
	conn       *conn
	channel    *amqp.Channel
	exchange   string
	routes     []route // with all headers of their messages
	rebinds    bool    // the options support Binder: messages of a ChurnKey get a route of their own
	properties amqp.Publishing
	answers    *answers

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
		exchange:   o.exchangeName(spec.Topology, spec.Queue),
		routes:     o.routes(spec.Topology, spec.Queue),
		rebinds:    capabilities(o, drivers.Use{}).Churn,
		properties: o.properties(spec.Persistent),
		answers:    newAnswers(spec),
	}
	for i, r := range p.routes {
		p.routes[i].headers = o.headers(r)
	}
	err := c.reader.announce(ctx, p.answers)
	if err == nil {
		err = c.within(ctx, func() (err error) {
			if p.channel, err = c.amqp.Channel(); err != nil {
				c.reader.retract(p.answers)
			} else if spec.Mode.Confirmed() {
				err = p.channel.Confirm(false)
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("connect publisher: open channel at %s: %w", c.address, err)
	}
	c.follow(p.channel, &p.State, p.answers.end)
	return p, nil
}

func (p *publisher) Publish(_ context.Context, m drivers.Message) error {
	to := &p.routes[0]
	if m.Key >= drivers.ChurnKey && p.rebinds {
		extra := p.conn.session.options.extraRoute(p.spec.Queue, m.Key)
		extra.headers = p.conn.session.options.headers(extra)
		to = &extra
	} else if n := uint32(len(p.routes)); n > 1 {
		to = &p.routes[m.Key%n]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	confirmed := p.spec.Mode.Confirmed()
	if p.done || confirmed && !p.answers.add(m.Token) {
		return fmt.Errorf("publish at %s: %w", p.conn.address, drivers.ErrClosed)
	}
	message := p.properties
	message.Headers, message.Body = to.headers, m.Body
	_, err := p.channel.PublishWithDeferredConfirm(p.exchange, to.key, p.spec.Mandatory, false, message)
	if err != nil && (!confirmed || p.answers.withdraw()) {
		return fmt.Errorf("publish at %s: %w: %w", p.conn.address, drivers.ErrClosed, err)
	}
	return nil
}

// Flush only reports a broken link: no message waits for it.
func (p *publisher) Flush(context.Context) error { return p.Err() }

// Close closes the channel. AMQP's handshake makes sure that the broker has received everything that was published.
func (p *publisher) Close() error {
	p.once.Do(func() {
		p.End()
		p.mu.Lock()
		p.done = true
		each := p.spec.Mode.PerMessage() && (!p.spec.Mode.Confirmed() || p.answers.idle())
		p.mu.Unlock()
		// The connection of a single message is closed next. That closes the channel, too, but may lose returned
		// messages.
		if !each || p.spec.Mandatory {
			p.err = p.conn.closeChannel(p.channel)
		}
		p.answers.end()
	})
	return p.err
}
