package amqp10

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
)

// unlimited is the credit for an unlimited prefetch.
const unlimited = math.MaxInt32 / 2

type consumer struct {
	spec     legacy.ConsumerSpec
	handle   legacy.Handler
	lease    lease
	session  *amqp.Session
	receiver *amqp.Receiver

	batch    []drivers.Delivery
	messages []*amqp.Message // messages of batch
	unacked  []*amqp.Message // handled and not yet accepted

	notice   *legacy.Notice
	ctx      context.Context // cancelled by Close
	cancel   context.CancelFunc
	settling atomic.Int64 // odd while messages are being settled
	ended    chan struct{}
	watching chan struct{}
	once     sync.Once
	err      error
}

// Consumer opens a link from the terminus. spec decides which connection it uses. The queue exists already, so the
// broker keeps messages for it before and after this call.
func (s *Session) Consumer(ctx context.Context, spec legacy.ConsumerSpec, from Terminus,
	handle legacy.Handler) (legacy.Consumer, error) {
	on, err := s.lease(ctx, spec.Connection)
	if err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	c := &consumer{
		spec: spec, handle: handle, lease: on, notice: legacy.NewNotice(spec.OnClosed),
		ended: make(chan struct{}), watching: make(chan struct{}),
	}
	if err := on.within(ctx, func() error { return c.attach(ctx, from) }); err != nil {
		on.release()
		return nil, fmt.Errorf("connect consumer: receive from %s at %s: %w", from.Address, on.address, err)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.run()
	go c.watch()
	return c, nil
}

func (c *consumer) attach(ctx context.Context, from Terminus) (err error) {
	if c.session, err = c.lease.NewSession(ctx, nil); err != nil {
		return err
	}
	o := amqp.ReceiverOptions{Credit: unlimited, SourceCapabilities: from.Capabilities}
	if c.spec.Prefetch > 0 {
		o.Credit = int32(min(c.spec.Prefetch, unlimited))
	}
	settlement := amqp.SenderSettleModeUnsettled
	if c.spec.Ack == drivers.AckAutomatic {
		settlement = amqp.SenderSettleModeSettled
	}
	o.RequestedSenderSettleMode = &settlement
	c.receiver, err = c.session.NewReceiver(ctx, from.Address, &o)
	if err != nil && !c.lease.alone {
		_ = c.session.Close(ctx)
	}
	return err
}

func (c *consumer) run() {
	defer close(c.ended)
	err := c.loop()
	c.accept(len(c.unacked))
	if err != nil {
		// has no effect if watch has reported the break
		c.broke(fmt.Errorf("%w: %s: %w", drivers.ErrClosed, c.lease.address, err))
	}
}

// errComesAgain ends a consumer whose connection broke while a message was received. The broker delivers the message
// again.
var errComesAgain = errors.New("the connection broke")

// loop receives until the link breaks, or until the consumer is closed. In the second case it returns nil.
func (c *consumer) loop() error {
	turn, end := c.turn()
	defer func() { end() }()
	for {
		m, err := c.receiver.Receive(turn, nil)
		if c.ctx.Err() != nil {
			return nil // the broker delivers messages again that were not handled
		}
		if err == nil && c.spec.Ack != drivers.AckAutomatic && c.lease.broken() {
			return errComesAgain
		}
		switch {
		case err == nil:
			c.take(m)
		case turn.Err() == nil:
			return err
		}
		if turn.Err() != nil {
			c.accept(len(c.unacked))
			end()
			turn, end = c.turn()
		}
	}
}

// turn returns a context that ends with Close, or earlier when the next acknowledgement at an interval is due.
func (c *consumer) turn() (context.Context, context.CancelFunc) {
	if c.spec.Ack == drivers.AckInterval {
		return context.WithTimeout(c.ctx, c.spec.AckInterval)
	}
	return c.ctx, func() {}
}

// take passes m and other buffered messages to the handler, and settles them.
func (c *consumer) take(m *amqp.Message) {
	c.batch, c.messages = c.batch[:0], c.messages[:0]
	for c.put(m); len(c.batch) < c.spec.Batch; c.put(m) {
		if m = c.receiver.Prefetched(); m == nil {
			break
		}
	}
	if err := c.handle(c.batch); err != nil {
		c.reject()
		return
	}
	switch c.spec.Ack {
	case drivers.AckEach:
		c.settle(c.messages, c.receiver.AcceptMessage)
	case drivers.AckEvery:
		c.unacked = append(c.unacked, c.messages...)
		c.accept(len(c.unacked) / c.spec.AckEvery * c.spec.AckEvery)
	case drivers.AckInterval:
		c.unacked = append(c.unacked, c.messages...)
	}
}

// put adds a message to the batch. The delivery count includes failed attempts only. After a broken link or a release
// it may be 0, so that 0 means NotSaid.
func (c *consumer) put(m *amqp.Message) {
	d := drivers.Delivery{Body: m.GetData(), Stream: uint32(c.spec.Queue)}
	if m.Header != nil && m.Header.DeliveryCount > 0 {
		d.Redelivered = drivers.Yes
	}
	c.batch = append(c.batch, d)
	c.messages = append(c.messages, m)
}

// reject returns the batch to the queue. It first accepts the messages handled before the batch. It releases the
// messages, because brokers do not deliver rejected messages again, and count modified messages as failed deliveries,
// which are limited.
func (c *consumer) reject() {
	c.accept(len(c.unacked))
	if c.spec.Ack != drivers.AckAutomatic {
		c.settle(c.messages, c.receiver.ReleaseMessage)
	}
}

// accept acknowledges the first n messages of unacked.
func (c *consumer) accept(n int) {
	c.settle(c.unacked[:n], c.receiver.AcceptMessage)
	rest := copy(c.unacked, c.unacked[n:])
	clear(c.unacked[rest:])
	c.unacked = c.unacked[:rest]
}

// settle reports the outcome of messages to the broker, one by one, because the library cannot settle several at once.
// Errors are ignored: they mean that the link broke, which the next receive returns.
func (c *consumer) settle(messages []*amqp.Message, outcome func(context.Context, *amqp.Message) error) {
	if len(messages) == 0 {
		return
	}
	c.settling.Add(1)
	for _, m := range messages {
		if outcome(context.Background(), m) != nil {
			break
		}
	}
	c.settling.Add(1)
}

// watch reports that the connection broke by itself, even while the handler is running.
func (c *consumer) watch() {
	defer close(c.watching)
	select {
	case <-c.lease.Done():
		c.broke(c.lease.cause())
	case <-c.ended:
	}
}

func (c *consumer) broke(err error) {
	if !c.lease.owner.isClosed() {
		c.notice.Broke(err)
	}
}

// Close waits for the handler, acknowledges the messages that it accepted, and closes the link. The broker then
// delivers the other messages again.
func (c *consumer) Close() error {
	c.once.Do(func() {
		whole := c.notice.End()
		c.cancel()
		c.awaitEnd()
		c.err = c.lease.end(c.receiver.Close, c.session, !c.lease.alone)
		c.lease.release()
		if !whole || c.lease.owner.isClosed() {
			c.err = nil // OnClosed has reported the broken link, or the session is closed
		}
		<-c.watching
	})
	return c.err
}

// awaitEnd waits for the handler without a limit. It breaks the connection if a settlement does not end within
// farewell.
func (c *consumer) awaitEnd() {
	ticker := time.NewTicker(farewell)
	defer ticker.Stop()
	for last := int64(0); ; {
		select {
		case <-c.ended:
			return
		case <-ticker.C:
		}
		now := c.settling.Load()
		if now%2 == 1 && now == last {
			c.lease.cut()
		}
		last = now
	}
}
