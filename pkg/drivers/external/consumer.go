package external

import (
	"context"
	"fmt"
	"sync"
	"time"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
)

// consumer calls the handler from its own goroutine. It decides what to acknowledge, and when, so that this is the same
// for every driver.
type consumer struct {
	link   *link
	id     uint64
	spec   legacy.ConsumerSpec
	handle legacy.Handler
	notice *legacy.Notice

	arrived chan struct{} // capacity 1: deliveries are queued
	stop    chan struct{} // closed by Close
	ended   chan struct{} // closed after the last call of the handler
	once    sync.Once
	halted  sync.Once

	note    *parcel // last note; used only by the goroutine of run
	unacked int     // accepted and not acknowledged messages; used only by the goroutine of run

	mu      sync.Mutex
	over    bool
	queue   []drivers.Delivery
	waiting int // deliveries not yet handled, including those in the handler
	bytes   int
}

func newConsumer(l *link, spec legacy.ConsumerSpec, handle legacy.Handler) *consumer {
	return &consumer{link: l, id: l.handle(), spec: spec, handle: handle, notice: legacy.NewNotice(spec.OnClosed),
		arrived: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
}

// deliver queues deliveries. The reader calls it. An error is a protocol error of the driver.
func (c *consumer) deliver(deliveries [][3]uint32, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil // the consumer was closed, or its link broke
	}
	for _, d := range deliveries {
		size := uint64(d[0])
		if size > uint64(len(body)) || d[1] > uint32(drivers.Yes) {
			return fmt.Errorf("deliver to consumer %d: delivery %v: want its size, of %d bytes that are left, 0 to 2 for redelivered, and its stream", c.id, d, len(body))
		}
		if c.waiting >= windowMessages || c.bytes >= windowBytes {
			return fmt.Errorf("deliver to consumer %d: %d deliveries of %d bytes were not handled yet: the window is %d of %d", c.id, c.waiting, c.bytes, windowMessages, windowBytes)
		}
		c.queue = append(c.queue, drivers.Delivery{Body: body[:size:size], Redelivered: drivers.Tristate(d[1]),
			Stream: d[2]})
		c.waiting, c.bytes = c.waiting+1, c.bytes+int(size)
		body = body[size:]
	}
	if len(body) > 0 {
		return fmt.Errorf("deliver to consumer %d: %d bytes of the body belong to no delivery", c.id, len(body))
	}
	select {
	case c.arrived <- struct{}{}:
	default:
	}
	return nil
}

// run calls the handler until Close.
func (c *consumer) run() {
	defer close(c.ended)
	var tick <-chan time.Time
	if c.spec.Ack == drivers.AckInterval {
		ticker := time.NewTicker(max(c.spec.AckInterval, time.Millisecond))
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-c.stop:
			return
		case <-tick:
			c.acknowledge()
		case <-c.arrived:
			for c.next(tick) {
			}
		}
	}
}

// next handles one batch. It returns false if the queue is empty or the consumer has ended.
func (c *consumer) next(tick <-chan time.Time) bool {
	select {
	case <-c.stop:
		return false
	case <-tick:
		c.acknowledge()
	default:
	}
	c.mu.Lock()
	n := min(len(c.queue), c.spec.Batch)
	batch := c.queue[:n:n]
	c.queue = c.queue[n:]
	over := c.over
	c.mu.Unlock()
	if n == 0 || over {
		return false
	}
	size := 0
	for _, d := range batch {
		size += len(d.Body)
	}
	err := c.handle(batch)
	c.mu.Lock()
	c.waiting, c.bytes = c.waiting-n, c.bytes-size
	c.mu.Unlock()
	c.settle(n, size, err)
	return true
}

// settle reports the result of a batch to the driver.
func (c *consumer) settle(n, size int, refused error) {
	h := handled{consumer: c.id, count: n, bytes: size}
	switch {
	case c.spec.Ack == drivers.AckAutomatic:
	case refused != nil:
		h.ack, h.refused, c.unacked = c.unacked, n, 0
	default:
		c.unacked += n
		if c.due() {
			h.ack, c.unacked = c.unacked, 0
		}
	}
	c.note = c.link.out.settle(c.note, h)
}

// due reports whether to acknowledge now. It returns true also if the prefetch is used up, so that no more messages
// could arrive.
func (c *consumer) due() bool {
	switch c.spec.Ack {
	case drivers.AckEach:
		return true
	case drivers.AckEvery:
		return c.unacked >= c.spec.AckEvery || (c.spec.Prefetch > 0 && c.unacked >= c.spec.Prefetch)
	}
	return false
}

func (c *consumer) acknowledge() {
	if c.unacked > 0 {
		c.note = c.link.out.settle(c.note, handled{consumer: c.id, ack: c.unacked})
		c.unacked = 0
	}
}

// halt prevents further calls of the handler. It does not wait for a running call.
func (c *consumer) halt() {
	c.halted.Do(func() { close(c.stop) })
	c.drop()
}

func (c *consumer) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over, c.queue = true, nil
}

// broke reports that the link to the broker, or the driver's process, is lost. Queued deliveries are dropped, because
// they cannot be acknowledged any more.
func (c *consumer) broke(why error) {
	c.drop()
	c.notice.Broke(why)
}

// Close waits for the handler, acknowledges the messages that it accepted, and makes the driver return the others to
// the broker.
func (c *consumer) Close() error {
	c.once.Do(func() {
		c.notice.End()
		c.halt()
		<-c.ended
		c.acknowledge()
		ctx, cancel := context.WithTimeout(context.Background(), c.link.limit.close)
		defer cancel()
		if _, err := c.link.call(ctx, outbound{Type: "close", Consumer: c.id}); err != nil {
			c.link.log.Debug("close consumer", "err", err) // if it matters, the session reports more
		}
		c.link.forget(c.id)
	})
	return nil
}
