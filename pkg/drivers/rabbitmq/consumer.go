package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
)

// consumerTag is the tag of the only consumer of its channel.
const consumerTag = "lockstep"

const offsetHeader = "x-stream-offset"

// offset is the next position that a subscription reads in a stream. The driver keeps it, because a consumer has to
// name the position at which it starts.
type offset struct{ next atomic.Int64 }

type consumer struct {
	spec       legacy.ConsumerSpec
	handle     legacy.Handler
	session    *session
	lease      lease
	channel    *amqp.Channel
	deliveries <-chan amqp.Delivery
	offset     *offset // nil unless the queue is a stream
	limit      int64   // a message that was delivered again so often is dropped if it is rejected

	batch []drivers.Delivery
	last  uint64 // tag of the last delivery passed to the handler
	read  int64  // stream offset of that delivery
	acked uint64 // all tags up to this one are settled; not used with AckEach

	notice  *legacy.Notice
	closing atomic.Bool
	ended   chan struct{}
	once    sync.Once
	err     error
}

// Consumer starts to consume. After the broker's consume-ok no message can be missed, and the queue keeps earlier
// messages.
func (s *session) Consumer(ctx context.Context, spec legacy.ConsumerSpec, handle legacy.Handler) (legacy.Consumer,
	error) {
	queue := s.options.queueName(spec.Topology, spec.Subscription, spec.Queue)
	at, err := s.place(ctx, spec.Node, spec.Ordinal, spec.Topology, queue)
	if err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	on, err := s.lease(ctx, at, spec.Connection)
	if err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	spec.Batch = max(spec.Batch, 1)
	c := &consumer{
		spec: spec, handle: handle, session: s, lease: on,
		batch: make([]drivers.Delivery, 0, spec.Batch), ended: make(chan struct{}),
		notice: legacy.NewNotice(spec.OnClosed), limit: s.options.deliveryLimit(release(on.link)),
	}
	if s.options.Queue.Type == stream {
		c.offset = s.position(fmt.Sprintf("%d %s", spec.Subscription, queue))
	}
	if err := on.within(ctx, func() error { return c.consume(queue) }); err != nil {
		_ = on.release()
		return nil, fmt.Errorf("connect consumer: consume from %s at %s: %w", queue, on.address, err)
	}
	go c.run()
	return c, nil
}

// position returns the offset of a subscription. A new consumer continues where its predecessor stopped.
func (s *session) position(key string) *offset {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offsets[key] == nil {
		s.offsets[key] = &offset{}
	}
	return s.offsets[key]
}

func (c *consumer) consume(queue string) error {
	ch, err := c.lease.Channel()
	if err != nil {
		return err
	}
	c.channel = ch
	go c.watch(ch.NotifyClose(make(chan *amqp.Error, 1)))
	if c.spec.Prefetch > 0 {
		if err := ch.Qos(c.spec.Prefetch, 0, false); err != nil {
			return err
		}
	}
	var arguments amqp.Table
	if c.offset != nil {
		arguments = amqp.Table{offsetHeader: "first"} // Setup left the stream empty
		if next := c.offset.next.Load(); next > 0 {
			arguments[offsetHeader] = next
		}
	}
	automatic := c.spec.Ack == drivers.AckAutomatic
	c.deliveries, err = ch.Consume(queue, consumerTag, automatic, false, false, false, arguments)
	return err
}

func (c *consumer) run() {
	if c.spec.Ack == drivers.AckInterval {
		c.loopWithTicks()
	} else {
		for d := range c.deliveries {
			if !c.take(d) {
				break
			}
		}
	}
	c.settleRest()
	close(c.ended)
	if !c.channel.IsClosed() {
		c.reportBreak(errors.New("the broker cancelled the consumer: its queue was deleted, or its node went down"))
	}
}

func (c *consumer) loopWithTicks() {
	ticker := time.NewTicker(c.spec.AckInterval)
	defer ticker.Stop()
	for {
		select {
		case d, ok := <-c.deliveries:
			if !ok || !c.take(d) {
				return
			}
		case <-ticker.C:
			c.settleRest()
		}
	}
}

// take passes d and other buffered deliveries to the handler, and settles them. It returns false without handling d if
// the consumer is being closed. The broker then delivers d again.
func (c *consumer) take(d amqp.Delivery) bool {
	if c.closing.Load() {
		return false
	}
	c.batch = c.batch[:0]
	c.put(d)
	for len(c.batch) < c.spec.Batch {
		d, ok := c.another()
		if !ok {
			break
		}
		c.put(d)
	}
	err := c.handle(c.batch)
	if err != nil && c.spec.Ack != drivers.AckAutomatic && c.offset == nil {
		c.reject()
	} else {
		c.accept()
	}
	return true
}

func (c *consumer) put(d amqp.Delivery) {
	redelivered := drivers.No
	if d.Redelivered {
		redelivered = drivers.Yes
	}
	delivery := drivers.Delivery{Body: d.Body, Redelivered: redelivered, Stream: uint32(c.spec.Queue)}
	if d.Redelivered && c.limit != unlimited {
		count, _ := d.Headers["x-delivery-count"].(int64) // of a quorum queue; since 4.3 it does not count rejections
		delivery.Last = count >= c.limit
	}
	c.batch = append(c.batch, delivery)
	c.last = d.DeliveryTag
	if c.offset != nil {
		c.read, _ = d.Headers[offsetHeader].(int64)
	}
}

// another returns a delivery that the library has already buffered. The library hands over each delivery from its own
// goroutine. So another yields once, to let that goroutine offer the next one.
func (c *consumer) another() (amqp.Delivery, bool) {
	select {
	case d, ok := <-c.deliveries:
		return d, ok
	default:
		runtime.Gosched()
	}
	select {
	case d, ok := <-c.deliveries:
		return d, ok
	default:
		return amqp.Delivery{}, false
	}
}

// accept acknowledges as the spec requires. Errors are ignored: they mean that the link broke, which ends the
// deliveries. The tags are 1, 2, 3 …, because the channel has no other consumer.
func (c *consumer) accept() {
	last := c.last
	switch c.spec.Ack {
	case drivers.AckEach:
		for tag := last - uint64(len(c.batch)) + 1; tag <= last; tag++ {
			_ = c.channel.Ack(tag, false)
		}
	case drivers.AckEvery:
		for n := uint64(c.spec.AckEvery); last-c.acked >= n; c.acked += n {
			_ = c.channel.Ack(c.acked+n, true)
		}
	}
	if c.offset != nil {
		c.offset.next.Store(c.read + 1)
	}
}

// reject returns the batch to the queue. It first acknowledges the messages accepted before the batch.
func (c *consumer) reject() {
	last := c.last
	before := last - uint64(len(c.batch))
	if c.spec.Ack != drivers.AckEach && before > c.acked {
		_ = c.channel.Ack(before, true)
	}
	c.acked = last
	_ = c.channel.Nack(last, len(c.batch) > 1, true)
}

// settleRest acknowledges all messages that are accepted and not yet acknowledged.
func (c *consumer) settleRest() {
	batched := c.spec.Ack == drivers.AckEvery || c.spec.Ack == drivers.AckInterval
	if batched && c.last > c.acked {
		_ = c.channel.Ack(c.last, true)
		c.acked = c.last
	}
}

// watch reports that the link broke by itself, even while the handler is running.
func (c *consumer) watch(closes chan *amqp.Error) {
	if cause, broke := <-closes; broke {
		c.reportBreak(cause)
	}
}

func (c *consumer) reportBreak(cause error) {
	if !c.session.isClosed() {
		c.notice.Broke(fmt.Errorf("%w: %s: %w", drivers.ErrClosed, c.lease.address, cause))
	}
}

// Node implements legacy.Located.
func (c *consumer) Node() string { return c.lease.address }

// Close cancels the consumer, waits for the handler, and acknowledges the messages that the handler accepted.
func (c *consumer) Close() error {
	c.once.Do(func() {
		c.closing.Store(true)
		if c.notice.End() {
			force := time.AfterFunc(farewell, func() { _ = c.lease.raw.Close() })
			if err := c.channel.Cancel(consumerTag, false); err != nil && !errors.Is(err, amqp.ErrClosed) {
				c.err = fmt.Errorf("cancel consumer at %s: %w", c.lease.address, err)
			}
			force.Stop()
		}
		<-c.ended
		err := c.lease.closeChannel(c.channel)
		c.err = errors.Join(c.err, err, c.lease.release())
	})
	return c.err
}
