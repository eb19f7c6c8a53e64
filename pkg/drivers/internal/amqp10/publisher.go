package amqp10

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"lockstep/pkg/drivers"
)

type publisher struct {
	spec    drivers.PublisherSpec
	lease   lease
	session *amqp.Session
	sender  *amqp.Sender

	notice   *drivers.Notice
	settler  *settler // confirms; nil in unconfirmed modes, where messages are sent settled
	prompt   bool     // Publish waits for the confirm itself: one goroutine less between broker and engine
	ending   chan struct{}
	watching chan struct{}

	mu      sync.Mutex // held while publishing; after done nothing is accepted any more
	done    bool
	message amqp.Message
	body    [1][]byte // of message

	ctx     context.Context // of the last Publish; unguard ends its guard
	unguard func() bool
	turn    int64        // numbers the guards
	busy    atomic.Int64 // the guard whose Publish is under way, or 0

	once sync.Once
	err  error
}

// Publisher opens a link to the terminus, on a connection as spec says.
func (s *Session) Publisher(ctx context.Context, spec drivers.PublisherSpec, to Terminus) (drivers.Publisher, error) {
	if err := checkPublisher(spec); err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	on, err := s.lease(ctx, spec.Connection)
	if err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	p := &publisher{
		spec: spec, lease: on, notice: drivers.NewNotice(spec.OnClosed),
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

func checkPublisher(spec drivers.PublisherSpec) error {
	switch {
	case !slices.Contains(drivers.Modes(), spec.Mode):
		return fmt.Errorf("mode %q: %w", spec.Mode, drivers.ErrUnsupported)
	case spec.Mandatory:
		return fmt.Errorf("mandatory: %w", drivers.ErrUnsupported)
	}
	return checkNode(spec.Node)
}

func checkNode(n drivers.Node) error {
	if n != drivers.AnyNode && n != "" {
		return fmt.Errorf("node %q: %w: the urls are for failing over", n, drivers.ErrUnsupported)
	}
	return nil
}

// attach opens an AMQP session with one link on it, so that publishers which share a connection share nothing more.
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

// watch tells the engine if the connection breaks by itself. A broker that ends the link alone is found out by the next
// message.
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

// Publish writes one message to the connection, as soon as the broker has given credit for it.
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
		p.prompt = false // from now on the settler's goroutine settles, so that its calls and these never overlap
	}
	p.settler.add(it)
	return nil
}

// ownTime is how long the library may take for a message of some bytes by itself: 100 µs for the changes of goroutine,
// and 5 ns per byte for three copies and the write. The library does not report when it waits for credit. A shorter
// wait for it is not counted, and a longer call counts although it may have waited for a CPU.
func ownTime(size int) time.Duration {
	return 100*time.Microsecond + time.Duration(size)*5*time.Nanosecond
}

// guard ends a Publish that blocks in the library when ctx ends: the library waits for credit no longer than that, but
// for the connection as long as it takes. It costs something for each context, not for each message.
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
			if p.busy.Load() != turn { // no Publish with this context is under way, and none will be
				return
			}
			<-ticker.C
		}
		p.lease.cut() // part of a message may be on it
	})
}

// refused explains why the library did not send a message. It may have sent a part, so that nothing can follow it on
// this link, unless it is the library itself that finds the message too large.
func (p *publisher) refused(ctx context.Context, err error) error {
	// the broker's would be wrapped
	if own, ok := err.(*amqp.Error); ok && own.Condition == amqp.ErrCondMessageSizeExceeded {
		return fmt.Errorf("publish at %s: %w", p.lease.address, err)
	}
	p.done = true
	if ctx.Err() != nil {
		return fmt.Errorf("publish at %s: %w", p.lease.address, ctx.Err())
	}
	return fmt.Errorf("publish at %s: %w: %w", p.lease.address, drivers.ErrClosed, err)
}

// Flush has nothing to do: the library writes each message to the connection at once.
func (p *publisher) Flush(ctx context.Context) error { return ctx.Err() }

// Close closes the link, and the connection if nobody else uses it, when the broker has taken everything that was
// published.
func (p *publisher) Close() error {
	p.once.Do(func() {
		whole := p.notice.End()
		p.err = p.lease.end(p.sender.Close, p.session, !p.lease.alone)
		p.lease.release()
		if !whole || p.lease.owner.isClosed() {
			p.err = nil // the break has been reported, or was asked for
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
