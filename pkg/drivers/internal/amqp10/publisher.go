package amqp10

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"example.org/lockstep/lockstep/pkg/drivers"
)

type publisher struct {
	part
	spec    drivers.PublisherSpec
	sender  *amqp.Sender
	settler *settler // for confirms; nil in unconfirmed modes, where messages are sent settled
	// Publish waits for the confirm in the same goroutine, which saves a goroutine switch per message
	prompt bool

	mu      sync.Mutex // locked while publishing; after done, nothing is accepted
	done    bool
	message amqp.Message
	body    [1][]byte // data of message
}

// Publisher opens a link to the address of the queue.
func (c *conn) Publisher(ctx context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	to := c.session.addresses.Target(spec.Topology, spec.Queue)
	p := &publisher{part: part{conn: c}, spec: spec}
	p.message = amqp.Message{Header: &amqp.MessageHeader{Durable: spec.Persistent, Priority: 4}, Data: p.body[:]}
	settlement := amqp.SenderSettleModeUnsettled
	if !spec.Mode.Confirmed() {
		settlement = amqp.SenderSettleModeSettled
	}
	err := p.attach(ctx, func(session *amqp.Session) (err error) {
		p.sender, err = session.NewSender(ctx, to.Address, &amqp.SenderOptions{
			SettlementMode: &settlement, TargetCapabilities: to.Capabilities,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect publisher: send to %s at %s: %w", to.Address, c.address, err)
	}
	if spec.Mode.Confirmed() {
		p.settler = newSettler(p)
		p.prompt = spec.Mode == drivers.ConfirmEach || spec.Mode == drivers.ConnectionPerMessageConfirm
	}
	go p.watch()
	return p, nil
}

// Publish writes one message to the connection. It blocks until the broker has given credit. In modes that wait for
// each confirm, it also waits for the confirm. The end of ctx ends these waits, but not that for a write.
func (p *publisher) Publish(ctx context.Context, m drivers.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	p.body[0] = m.Body
	err := p.send(ctx, m.Token)
	p.body[0] = nil
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
		if p.settler.now(ctx, &it, p.spec.Waiting) {
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

// refused explains why the library did not send a message. The message may be incomplete on the link, so the publisher
// accepts no more messages. The exception is a message that the library itself finds too large.
func (p *publisher) refused(ctx context.Context, err error) error {
	// an error from the broker would be wrapped
	if own, ok := err.(*amqp.Error); ok && own.Condition == amqp.ErrCondMessageSizeExceeded {
		return fmt.Errorf("publish at %s: %w", p.conn.address, err)
	}
	p.done = true
	if ctx.Err() != nil && !over(p.conn.Done()) {
		return fmt.Errorf("publish at %s: %w", p.conn.address, ctx.Err())
	}
	err = fmt.Errorf("publish at %s: %w: %w", p.conn.address, drivers.ErrClosed, err)
	p.EndWith(p.conn, err)
	return err
}

// Flush only checks ctx: the library writes each message to the connection immediately.
func (p *publisher) Flush(ctx context.Context) error { return ctx.Err() }

// Close closes the link. The broker has then received everything that was published. It saves a round trip if the
// publisher is the only user of its connection.
func (p *publisher) Close() error {
	err := p.close(p.sender.Close, p.spec.Mode.PerMessage())
	p.mu.Lock()
	p.done = true
	p.mu.Unlock()
	p.settler.finish()
	return err
}
