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
	"lockstep/pkg/drivers/internal/legacy"
)

type publisher struct {
	spec     legacy.PublisherSpec
	lease    lease
	channel  *amqp.Channel
	exchange string
	routes   []route
	rebinds  bool // the options support Binder: messages of a ChurnKey get a route of their own
	delivery uint8

	notice  *legacy.Notice
	settler *settler // for confirms and returns; nil if there are neither
	// Publish waits for the confirm in the same goroutine, which saves a goroutine switch per message
	prompt   bool
	watching chan struct{}

	mu   sync.Mutex // locked while publishing
	done bool

	ctx     context.Context // of the last Publish; unguard stops its guard
	unguard func() bool

	once sync.Once
	err  error
}

// Publisher opens a channel, in confirm mode if the mode requires it. spec decides which connection it uses.
func (s *session) Publisher(ctx context.Context, spec legacy.PublisherSpec) (legacy.Publisher, error) {
	at, err := s.place(ctx, spec.Node, spec.Ordinal, spec.Topology, s.options.queueName(spec.Topology, 0, spec.Queue))
	if err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	on, err := s.lease(ctx, at, spec.Connection)
	if err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	p := &publisher{
		spec: spec, lease: on,
		exchange: s.options.exchangeName(spec.Topology, spec.Queue),
		routes:   s.options.routes(spec.Topology, spec.Queue),
		rebinds:  capabilities(&s.options, drivers.Use{}).Churn,
		delivery: amqp.Transient,
		watching: make(chan struct{}), notice: legacy.NewNotice(spec.OnClosed),
	}
	if spec.Persistent {
		p.delivery = amqp.Persistent
	}
	if err := on.within(ctx, p.openChannel); err != nil {
		_ = on.release()
		return nil, fmt.Errorf("connect publisher: open channel at %s: %w", on.address, err)
	}
	return p, nil
}

func (p *publisher) openChannel() error {
	ch, err := p.lease.Channel()
	if err != nil {
		return err
	}
	p.channel = ch
	if p.spec.Mode.Confirmed() {
		if err := ch.Confirm(false); err != nil {
			return err
		}
	}
	if p.spec.Mode.Confirmed() || p.spec.Mandatory {
		p.settler = newSettler(p)
	}
	each := p.spec.Mode == drivers.ConfirmEach || p.spec.Mode == drivers.ConnectionPerMessageConfirm
	p.prompt = each && !p.spec.Mandatory
	go p.watch(ch.NotifyClose(make(chan *amqp.Error, 1)))
	return nil
}

// watch reports that the link broke by itself.
func (p *publisher) watch(closes chan *amqp.Error) {
	defer close(p.watching)
	if cause, broke := <-closes; broke && !p.lease.session.isClosed() {
		p.notice.Broke(fmt.Errorf("%w: %s: %w", drivers.ErrClosed, p.lease.address, cause))
	}
}

// Publish writes one message to the connection. In modes that wait for each confirm, it also waits for the confirm.
func (p *publisher) Publish(ctx context.Context, m drivers.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	to := &p.routes[0]
	if m.Key >= drivers.ChurnKey && p.rebinds {
		extra := p.lease.session.options.extraRoute(p.spec.Queue, m.Key)
		to = &extra
	} else if n := uint32(len(p.routes)); n > 1 {
		to = &p.routes[m.Key%n]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	if ctx != p.ctx {
		p.guard(ctx)
	}
	confirm, err := p.channel.PublishWithDeferredConfirm(p.exchange, to.key, p.spec.Mandatory, false,
		amqp.Publishing{Headers: to.headers, DeliveryMode: p.delivery, Body: m.Body})
	if err != nil {
		return p.refused(err)
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

// guard makes a Publish return that blocks in the library after ctx ended. The library supports no context. So guard
// breaks the link, on which a message may be incomplete. The cost is per context, not per message.
func (p *publisher) guard(ctx context.Context) {
	if p.unguard != nil {
		p.unguard()
	}
	p.ctx = ctx
	p.unguard = context.AfterFunc(ctx, func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for range 40 {
			if p.mu.TryLock() { // no Publish is running, and none with this context can start
				p.mu.Unlock()
				return
			}
			<-ticker.C
		}
		_ = p.lease.raw.Close()
	})
}

// refused explains why the library did not accept a message. The error wraps ErrClosed if the link is broken. The library
// returns the error of a failed write before it marks the connection as closed.
func (p *publisher) refused(err error) error {
	var write net.Error
	if p.lease.IsClosed() || p.channel.IsClosed() || errors.Is(err, amqp.ErrClosed) || errors.As(err, &write) {
		return fmt.Errorf("publish at %s: %w: %w", p.lease.address, drivers.ErrClosed, err)
	}
	return fmt.Errorf("publish at %s: %w", p.lease.address, err)
}

// Flush only checks ctx: the library writes each message to the connection immediately.
func (p *publisher) Flush(ctx context.Context) error { return ctx.Err() }

// Node implements legacy.Located.
func (p *publisher) Node() string { return p.lease.address }

// Close closes the channel, and the connection if it has no other user. AMQP's handshake makes sure that the broker has
// received everything that was published.
func (p *publisher) Close() error {
	p.once.Do(func() {
		alive := p.notice.End()
		// Closing a connection closes its channels, but returned messages that are still to be sent may be lost.
		if !p.lease.alone || p.spec.Mandatory {
			p.err = p.lease.closeChannel(p.channel)
		}
		p.err = errors.Join(p.err, p.lease.release())
		if !alive {
			p.err = nil // OnClosed has reported the broken link
		}
		p.mu.Lock()
		p.done = true
		if p.unguard != nil {
			p.unguard()
		}
		p.mu.Unlock()
		p.settler.finish()
		<-p.watching
	})
	return p.err
}
