package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// consumerTag is the tag of the only consumer of its channel.
const consumerTag = "lockstep"

const offsetHeader = "x-stream-offset"

// consumer passes deliveries to its handler. Their tags are 1, 2, 3 …, because the channel has no other consumer.
type consumer struct {
	kit.State
	spec       drivers.ConsumerSpec
	handle     drivers.Handler
	conn       *conn
	channel    *amqp.Channel
	deliveries <-chan amqp.Delivery
	next       *atomic.Int64 // see position; nil unless the queue is a stream
	limit      int64         // a message that was delivered again so often is dropped if it is rejected

	batch []drivers.Delivery

	answering sync.Mutex // locked while messages are answered
	answered  uint64     // guarded by answering: all tags up to this one are answered

	offsetsMu sync.Mutex
	offsets   []int64 // of the unanswered messages of a stream

	stopping atomic.Bool
	stopped  sync.Once
	ended    chan struct{}
	once     sync.Once
	err      error
}

// Consumer opens a channel and starts to consume. After the broker's consume-ok no message can be missed, and the queue
// keeps earlier messages.
func (c *conn) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer,
	error) {
	s := c.session
	queue := s.options.queueName(spec.Topology, spec.Subscription, spec.Queue)
	k := &consumer{
		spec: spec, handle: handle, conn: c, batch: make([]drivers.Delivery, 0, spec.Batch),
		ended: make(chan struct{}), limit: s.options.deliveryLimit(release(c)),
	}
	if s.options.Queue.Type == stream {
		k.next = s.position(fmt.Sprintf("%d %s", spec.Subscription, queue))
	}
	if err := c.within(ctx, func() error { return k.consume(queue) }); err != nil {
		return nil, fmt.Errorf("connect consumer: consume from %s at %s: %w", queue, c.address, err)
	}
	c.follow(k.channel, &k.State, func() {})
	go k.run()
	return k, nil
}

// position returns the next offset that a subscription reads in a stream. A consumer has to name the offset at which it
// starts. So a new one continues where its predecessor stopped.
func (s *session) position(key string) *atomic.Int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offsets[key] == nil {
		s.offsets[key] = new(atomic.Int64)
	}
	return s.offsets[key]
}

func (k *consumer) consume(queue string) error {
	ch, err := k.conn.amqp.Channel()
	if err != nil {
		return err
	}
	k.channel = ch
	if k.spec.Prefetch > 0 {
		if err := ch.Qos(k.spec.Prefetch, 0, false); err != nil {
			return err
		}
	}
	o := &k.conn.session.options.Consumer
	arguments := table(o.Arguments)
	if k.next != nil {
		arguments[offsetHeader] = "first" // Setup left the stream empty
		if next := k.next.Load(); next > 0 {
			arguments[offsetHeader] = next
		}
	}
	automatic := k.spec.Ack == drivers.AckAutomatic
	k.deliveries, err = ch.Consume(queue, consumerTag, automatic, o.Exclusive, false, false, arguments)
	return err
}

// run passes deliveries to the handler until the consumer stops or ends.
func (k *consumer) run() {
	defer close(k.ended)
	for d := range k.deliveries {
		if k.stopping.Load() {
			return
		}
		k.batch = k.batch[:0]
		for more := true; more; d, more = k.another() {
			k.put(d)
		}
		k.handle(k.batch)
	}
	if !k.stopping.Load() && !k.channel.IsClosed() {
		k.Broke(fmt.Errorf("%s: the broker cancelled the consumer: its queue was deleted, or its node went down",
			k.conn.address))
	}
}

func (k *consumer) put(d amqp.Delivery) {
	redelivered := drivers.No
	if d.Redelivered {
		redelivered = drivers.Yes
	}
	delivery := drivers.Delivery{Body: d.Body, Redelivered: redelivered, Stream: uint32(k.spec.Queue)}
	if k.limit != unlimited {
		count, _ := d.Headers["x-delivery-count"].(int64) // of a quorum queue; since 4.3 it does not count rejections
		delivery.Last = count >= k.limit
	}
	k.batch = append(k.batch, delivery)
	if k.next != nil {
		at, _ := d.Headers[offsetHeader].(int64)
		k.offsetsMu.Lock()
		k.offsets = append(k.offsets, at)
		k.offsetsMu.Unlock()
	}
}

// another returns a delivery that the library has already buffered, unless the batch is full. The library hands over
// each delivery from its own goroutine. So another yields once, to let that goroutine offer the next one.
func (k *consumer) another() (amqp.Delivery, bool) {
	for yielded := false; len(k.batch) < k.spec.Batch; yielded = true {
		select {
		case d, ok := <-k.deliveries:
			return d, ok
		default:
		}
		if yielded {
			break
		}
		runtime.Gosched()
	}
	return amqp.Delivery{}, false
}

func (k *consumer) Ack(n int) { k.answer(n, k.channel.Ack) }

// Nack returns n messages to the queue.
func (k *consumer) Nack(n int) {
	k.answer(n, func(tag uint64, multiple bool) error { return k.channel.Nack(tag, multiple, true) })
}

// answer sends the answer to n messages, with AckEach one by one. Errors are ignored: they mean that the channel has
// ended.
func (k *consumer) answer(n int, send func(tag uint64, multiple bool) error) {
	k.answering.Lock()
	defer k.answering.Unlock()
	if k.stopping.Load() {
		defer k.conn.breakLater().Stop()
	}
	last := k.answered + uint64(n)
	if k.next != nil {
		k.offsetsMu.Lock()
		k.next.Store(k.offsets[n-1] + 1)
		k.offsets = k.offsets[:copy(k.offsets, k.offsets[n:])]
		k.offsetsMu.Unlock()
	}
	if k.spec.Ack == drivers.AckEach {
		for tag := k.answered + 1; tag < last; tag++ {
			_ = send(tag, false)
		}
	}
	_ = send(last, k.spec.Ack != drivers.AckEach)
	k.answered = last
}

// Stop cancels the consumer, and waits for the handler. It breaks the connection if an answer that is being written, or
// the cancellation, does not end in time.
func (k *consumer) Stop() {
	k.stopped.Do(func() {
		k.stopping.Store(true)
		defer k.conn.breakLater().Stop()
		k.answering.Lock()
		//lint:ignore SA2001 later answers limit their time themselves
		k.answering.Unlock()
		if err := k.channel.Cancel(consumerTag, false); err != nil && !errors.Is(err, amqp.ErrClosed) {
			k.err = fmt.Errorf("cancel consumer at %s: %w", k.conn.address, err)
		}
	})
	<-k.ended
}

// Close stops, and closes the channel. The broker then delivers the unanswered messages again.
func (k *consumer) Close() error {
	k.once.Do(func() {
		k.Stop()
		k.End()
		k.err = errors.Join(k.err, k.conn.closeChannel(k.channel))
	})
	return k.err
}
