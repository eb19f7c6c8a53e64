package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/nats-io/nats.go"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
)

type publisher struct {
	spec     legacy.PublisherSpec
	link     *link
	leave    func()
	subjects []string // indexed by key

	notice  *legacy.Notice
	closed  atomic.Bool
	writing atomic.Bool // Publish is inside the library
	confirm *confirmer  // nil in unconfirmed modes

	ctx     context.Context // of the last Publish
	guardMu sync.Mutex
	unguard func() bool // stops the guard of that ctx

	once sync.Once
}

// Publisher connects a publisher. In unconfirmed modes it uses NATS core publish. JetStream then stores the messages
// without a reply.
func (s *session) Publisher(ctx context.Context, spec legacy.PublisherSpec) (legacy.Publisher, error) {
	if err := s.exists(ctx, spec.Topology, spec.Queue); err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	at, err := s.place(ctx, spec.Node, spec.Ordinal, streamName(spec.Topology, spec.Queue))
	if err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	on, leave, err := s.join(ctx, at, spec.Node, spec.Connection)
	if err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	p := &publisher{spec: spec, link: on, leave: leave, notice: legacy.NewNotice(spec.OnClosed)}
	for key := range spec.Topology.Bindings {
		p.subjects = append(p.subjects, subject(spec.Topology, spec.Queue, key))
	}
	if spec.Mode.Confirmed() {
		if p.confirm, err = newConfirmer(on, spec, s.options.Confirm.Std()); err != nil {
			leave()
			return nil, fmt.Errorf("connect publisher: listen for confirms at %s: %w", on.address, err)
		}
	}
	on.watch(p, p.notice.Broke)
	return p, nil
}

// Publish writes one message into the library's buffer, which a goroutine of the library flushes to the connection. It
// blocks while the buffer is full. In modes that wait for each confirm, it also waits for the confirm.
func (p *publisher) Publish(ctx context.Context, m drivers.Message) error {
	if ctx != p.ctx {
		p.guard(ctx)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	to := p.subjects[0]
	if n := uint32(len(p.subjects)); n > 1 {
		to = p.subjects[m.Key%n]
	}
	if p.confirm != nil && p.confirm.prompt {
		return p.promptly(ctx, to, m)
	}
	p.writing.Store(true)
	defer p.writing.Store(false)
	if p.closed.Load() {
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	if p.confirm == nil {
		if err := p.link.nc.Publish(to, m.Body); err != nil {
			return p.refused(err)
		}
		return nil
	}
	return p.send(to, m)
}

// send publishes a message. Its confirm is settled when the reply arrives.
func (p *publisher) send(to string, m drivers.Message) error {
	at := p.confirm.slots.take(m.Token)
	err := p.link.nc.PublishRequest(to, at.reply, m.Body)
	if err == nil && !p.confirm.over.Load() {
		return nil
	}
	if _, mine := at.settle(); !mine {
		return nil // failed when the link broke: the message counts as accepted
	}
	if err == nil {
		err = client.ErrConnectionClosed
	}
	return p.refused(err)
}

// promptly publishes and waits for the confirm in the same goroutine. This saves a goroutine switch per message.
func (p *publisher) promptly(ctx context.Context, to string, m drivers.Message) error {
	p.confirm.turn.Lock()
	defer p.confirm.turn.Unlock()
	p.writing.Store(true)
	if p.closed.Load() {
		p.writing.Store(false)
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	err := p.send(to, m)
	p.writing.Store(false)
	if err == nil {
		p.spec.Waiting.Begin()
		p.confirm.await(ctx)
		p.spec.Waiting.End()
	}
	return err
}

// guard makes a Publish return that blocks in the library after ctx ended. The library supports no context here. So
// guard breaks the link, on which a message may be incomplete. The cost is per context, not per message.
func (p *publisher) guard(ctx context.Context) {
	p.ctx = ctx
	p.guardMu.Lock()
	defer p.guardMu.Unlock()
	if p.unguard != nil {
		p.unguard()
	}
	p.unguard = context.AfterFunc(ctx, func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for range 40 {
			if !p.writing.Load() { // no Publish is running, and none with this context can start
				return
			}
			<-ticker.C
		}
		_ = p.link.raw.Close()
	})
}

// refused explains why the library did not accept a message. It breaks the link if the write failed.
func (p *publisher) refused(err error) error {
	if errors.Is(err, client.ErrMaxPayload) {
		return fmt.Errorf("publish at %s: %w (the server accepts at most %d bytes)", p.link.address, err,
			p.link.nc.MaxPayload())
	}
	if !errors.Is(err, client.ErrConnectionClosed) {
		_ = p.link.raw.Close() // messages in the library's buffer may be lost
	}
	return fmt.Errorf("publish at %s: %w: %w", p.link.address, drivers.ErrClosed, err)
}

// Flush only checks ctx: the library's goroutine writes on its own.
func (p *publisher) Flush(ctx context.Context) error { return ctx.Err() }

// Node implements legacy.Located.
func (p *publisher) Node() string { return p.link.address }

// Close waits for outstanding confirms. In unconfirmed modes it waits for a round trip after the last message.
func (p *publisher) Close() error {
	p.once.Do(func() {
		p.closed.Store(true)
		p.notice.End()
		p.link.unwatch(p)
		if p.confirm != nil {
			p.confirm.close()
		} else {
			p.link.flush()
		}
		p.leave()
		p.guardMu.Lock()
		defer p.guardMu.Unlock()
		if p.unguard != nil {
			p.unguard()
		}
	})
	return nil
}
