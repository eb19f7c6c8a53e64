package amqp10

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
)

type publisher struct {
	spec    legacy.PublisherSpec
	lease   lease
	session *amqp.Session
	sender  *amqp.Sender

	notice  *legacy.Notice
	settler *settler // for confirms; nil in unconfirmed modes, where messages are sent settled
	// Publish waits for the confirm in the same goroutine, which saves a goroutine switch per message
	prompt   bool
	ending   chan struct{}
	watching chan struct{}

	mu      sync.Mutex // locked while publishing; after done, nothing is accepted
	done    bool
	message amqp.Message
	body    [1][]byte // data of message

	ctx     context.Context // of the last Publish; unguard stops its guard
	unguard func() bool
	turn    int64        // number of the current guard
	busy    atomic.Int64 // number of the guard whose Publish is running, or 0

	once sync.Once
	err  error
}

// Publisher opens a link to the terminus. spec decides which connection it uses.
func (s *Session) Publisher(ctx context.Context, spec legacy.PublisherSpec, to Terminus) (legacy.Publisher, error) {
	on, err := s.lease(ctx, spec.Connection)
	if err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	p := &publisher{
		spec: spec, lease: on, notice: legacy.NewNotice(spec.OnClosed),
		ending: make(chan struct{}), watching: make(chan struct{}),
	}
	p.message = amqp.Message{Header: &amqp.MessageHeader{Durable: spec.Persistent, Priority: 4}, Data: p.body[:]}
	if err := on.within(ctx, func() error { return p.attach(ctx, to) }); err != nil {
		on.release()
		return nil, fmt.Errorf("connect publisher: send to %s at %s: %w", to.Address, on.address, err)
	}
	if spec.Mode.Confirmed() {
		p.settler = newSettler(p)
		p.prompt = spec.Mode == drivers.ConfirmEach || spec.Mode == drivers.ConnectionPerMessageConfirm
	}
	go p.watch()
	return p, nil
}

// attach opens an AMQP session with one link, so that publishers share only the connection.
func (p *publisher) attach(ctx context.Context, to Terminus) (err error) {
	if p.session, err = p.lease.NewSession(ctx, nil); err != nil {
		return err
	}
	settlement := amqp.SenderSettleModeUnsettled
	if !p.spec.Mode.Confirmed() {
		settlement = amqp.SenderSettleModeSettled
	}
	p.sender, err = p.session.NewSender(ctx, to.Address, &amqp.SenderOptions{
		SettlementMode: &settlement, TargetCapabilities: to.Capabilities,
	})
	if err != nil && !p.lease.alone {
		_ = p.session.Close(ctx)
	}
	return err
}

// watch reports that the connection broke by itself. If the broker closes only the link, the next message reports it.
func (p *publisher) watch() {
	defer close(p.watching)
	select {
	case <-p.lease.Done():
		p.broke(p.lease.cause())
	case <-p.ending:
	}
}

func (p *publisher) broke(err error) {
	if !p.lease.owner.isClosed() {
		p.notice.Broke(err)
	}
}

// Publish writes one message to the connection. It blocks until the broker has given credit. In modes that wait for
// each confirm, it also waits for the confirm.
func (p *publisher) Publish(ctx context.Context, m drivers.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	if ctx != p.ctx {
		p.guard(ctx)
	}
	p.busy.Store(p.turn)
	p.body[0] = m.Body
	err := p.send(ctx, m.Token)
	p.body[0] = nil
	p.busy.Store(0)
	return err
}

func (p *publisher) send(ctx context.Context, token uint64) error {
	it := pending{token: token}
	var err error
	p.spec.Waiting.Begin()
	if p.settler == nil {
		err = p.sender.Send(ctx, &p.message, nil)
	} else {
		it.receipt, err = p.sender.SendWithReceipt(ctx, &p.message, nil)
	}
	p.spec.Waiting.EndAbove(ownTime(len(p.body[0])))
	switch {
	case err != nil:
		return p.refused(ctx, err)
	case p.settler == nil:
		return nil
	}
	if p.prompt {
		p.spec.Waiting.Begin()
		settled := p.settler.now(ctx, &it)
		p.spec.Waiting.End()
		if settled {
			return nil
		}
		p.prompt = false // from now on only the settler's goroutine calls OnConfirms, so that calls never overlap
	}
	p.settler.add(it)
	return nil
}

// ownTime is the time that a send takes without waiting for the broker: 100 µs for goroutine switches, and 5 ns per
// byte for three copies and the write. The library does not report when it waits for credit. So a shorter wait is not
// counted, and a longer call counts as waiting even if it waited for a CPU.
func ownTime(size int) time.Duration {
	return 100*time.Microsecond + time.Duration(size)*5*time.Nanosecond
}

// guard makes a Publish return that blocks in the library after ctx ended. The library stops waiting for credit at the
// end of ctx, but not waiting for a write. The cost is per context, not per message.
func (p *publisher) guard(ctx context.Context) {
	if p.unguard != nil {
		p.unguard()
	}
	p.ctx = ctx
	p.turn++
	turn := p.turn
	p.unguard = context.AfterFunc(ctx, func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for range 40 {
			if p.busy.Load() != turn { // no Publish with this context is running, and none can start
				return
			}
			<-ticker.C
		}
		p.lease.cut() // a message may be incomplete on the connection
	})
}

// refused explains why the library did not send a message. The message may be incomplete on the link, so the publisher
// accepts no more messages. The exception is a message that the library itself finds too large.
func (p *publisher) refused(ctx context.Context, err error) error {
	// an error from the broker would be wrapped
	if own, ok := err.(*amqp.Error); ok && own.Condition == amqp.ErrCondMessageSizeExceeded {
		return fmt.Errorf("publish at %s: %w", p.lease.address, err)
	}
	p.done = true
	if ctx.Err() != nil {
		return fmt.Errorf("publish at %s: %w", p.lease.address, ctx.Err())
	}
	return fmt.Errorf("publish at %s: %w: %w", p.lease.address, drivers.ErrClosed, err)
}

// Flush only checks ctx: the library writes each message to the connection immediately.
func (p *publisher) Flush(ctx context.Context) error { return ctx.Err() }

// Close closes the link, and the connection if it has no other user. The broker has then received everything that was
// published.
func (p *publisher) Close() error {
	p.once.Do(func() {
		whole := p.notice.End()
		p.err = p.lease.end(p.sender.Close, p.session, !p.lease.alone)
		p.lease.release()
		if !whole || p.lease.owner.isClosed() {
			p.err = nil // OnClosed has reported the broken link, or the session is closed
		}
		p.mu.Lock()
		p.done = true
		if p.unguard != nil {
			p.unguard()
		}
		p.mu.Unlock()
		p.settler.finish()
		close(p.ending)
		<-p.watching
	})
	return p.err
}
