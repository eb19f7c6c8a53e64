package amqp10

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// unlimited is the credit for an unlimited prefetch.
const unlimited = math.MaxInt32 / 2

type consumer struct {
	part
	spec     drivers.ConsumerSpec
	handle   drivers.Handler
	receiver *amqp.Receiver
	batch    []drivers.Delivery // used only by run
	life     context.Context    // ends with Stop
	stop     context.CancelFunc
	ended    chan struct{} // closed when run has returned

	mu         sync.Mutex      // guards unanswered; locked while messages are answered
	unanswered []*amqp.Message // passed to the handler, the oldest first
}

// Consumer opens a link from the queue. The queue exists already, so the broker keeps messages for it before and after
// this call.
func (c *conn) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer,
	error) {
	from := c.session.addresses.Source(spec.Topology, spec.Subscription, spec.Queue)
	n := &consumer{part: part{conn: c}, spec: spec, handle: handle, ended: make(chan struct{})}
	o := amqp.ReceiverOptions{Credit: unlimited, SourceCapabilities: from.Capabilities,
		RequestedSenderSettleMode: amqp.SenderSettleModeUnsettled.Ptr()}
	if spec.Prefetch > 0 {
		o.Credit = int32(min(spec.Prefetch, unlimited))
	}
	if spec.Ack == drivers.AckAutomatic {
		o.RequestedSenderSettleMode = amqp.SenderSettleModeSettled.Ptr()
	}
	err := n.attach(ctx, func(session *amqp.Session) (err error) {
		n.receiver, err = session.NewReceiver(ctx, from.Address, &o)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect consumer: receive from %s at %s: %w", from.Address, c.address, err)
	}
	n.life, n.stop = context.WithCancel(context.Background())
	go n.run()
	go n.watch()
	return n, nil
}

// run receives until the link breaks, or until the consumer is stopped. The broker delivers messages again that were
// not handled. These include messages that the library received before the connection broke.
func (c *consumer) run() {
	defer close(c.ended)
	for {
		m, err := c.receiver.Receive(c.life, nil)
		switch {
		case c.life.Err() != nil:
			return
		case err != nil:
			c.EndWith(c.conn, fmt.Errorf("%s: %w", c.conn.address, err))
			return
		case c.spec.Ack != drivers.AckAutomatic && over(c.conn.amqp.Done()):
			return
		}
		c.take(m)
	}
}

// take passes m and other buffered messages to the handler.
func (c *consumer) take(m *amqp.Message) {
	c.batch = c.batch[:0]
	c.mu.Lock()
	for ; m != nil; m = c.receiver.Prefetched() {
		c.put(m)
		if len(c.batch) == c.spec.Batch {
			break
		}
	}
	c.mu.Unlock()
	c.handle(c.batch)
}

// put adds a message to the batch. The delivery count includes failed attempts only. After a broken link or a release
// it may be 0, so that 0 means NotSaid. The caller holds mu.
func (c *consumer) put(m *amqp.Message) {
	d := drivers.Delivery{Body: m.GetData(), Stream: uint32(c.spec.Queue)}
	if m.Header != nil && m.Header.DeliveryCount > 0 {
		d.Redelivered = drivers.Yes
	}
	c.batch = append(c.batch, d)
	if c.spec.Ack != drivers.AckAutomatic {
		c.unanswered = append(c.unanswered, m)
	}
}

// Ack accepts the n oldest unanswered messages.
func (c *consumer) Ack(n int) { c.answer(n, c.receiver.AcceptMessage) }

// Nack returns the n oldest unanswered messages to the queue. It releases them, because brokers do not deliver rejected
// messages again, and count modified messages as failed deliveries, which are limited.
func (c *consumer) Nack(n int) { c.answer(n, c.receiver.ReleaseMessage) }

// answer reports the outcome of messages to the broker, one by one, because the library cannot settle several at once.
// An error means that the link broke, which the next receive returns. A stopped consumer waits only for a limited time.
func (c *consumer) answer(n int, outcome func(context.Context, *amqp.Message) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		defer time.AfterFunc(farewell, c.conn.Cut).Stop()
	}
	for _, m := range c.unanswered[:n] {
		if outcome(context.Background(), m) != nil {
			break
		}
	}
	c.unanswered = slices.Delete(c.unanswered, 0, n)
}

// Stop waits for the handler without a limit. It breaks the connection if an answer that it sends does not end within
// farewell.
func (c *consumer) Stop() {
	c.stop()
	force := time.AfterFunc(farewell, c.conn.Cut)
	c.mu.Lock()
	//lint:ignore SA2001 later answers limit their time themselves
	c.mu.Unlock()
	force.Stop()
	<-c.ended
}

// Close stops, and closes the link. The broker then delivers the unanswered messages again.
func (c *consumer) Close() error {
	c.Stop()
	return c.close(c.receiver.Close, false)
}
