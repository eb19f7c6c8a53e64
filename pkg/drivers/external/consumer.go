package external

import (
	"fmt"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// consumer calls the handler from its own goroutine.
type consumer struct {
	kit.State
	conn   *conn
	id     uint64
	spec   drivers.ConsumerSpec
	handle drivers.Handler

	arrived chan struct{} // capacity 1: deliveries are queued
	stop    chan struct{} // closed by Stop
	ended   chan struct{} // closed after the last call of the handler
	stopped sync.Once
	once    sync.Once // Close

	passed  *parcel // last frame about handled deliveries; used only by run
	answers *parcel // last ack or nack; used only by Ack and Nack

	mu      sync.Mutex
	over    bool
	queue   []drivers.Delivery
	waiting int // deliveries not yet handled, including those in the handler
	bytes   int
}

// deliver queues deliveries. The reader calls it. An error is a protocol error of the driver.
func (c *consumer) deliver(deliveries [][4]uint32, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil // the consumer was closed, or its link broke
	}
	for _, d := range deliveries {
		size := uint64(d[0])
		if size > uint64(len(body)) || d[1] > uint32(drivers.Yes) || d[3] > 1 {
			return fmt.Errorf("deliver to consumer %d: delivery %v, with %d bytes left: give size, redelivered (0 to 2), stream and last (0 or 1)", c.id, d, len(body))
		}
		if c.waiting >= windowMessages || c.bytes >= windowBytes {
			return fmt.Errorf("deliver to consumer %d: %d deliveries of %d bytes were not handled yet: the window is %d of %d", c.id, c.waiting, c.bytes, windowMessages, windowBytes)
		}
		c.queue = append(c.queue, drivers.Delivery{Body: body[:size:size], Redelivered: drivers.Tristate(d[1]),
			Stream: d[2], Last: d[3] == 1})
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

// run calls the handler until Stop.
func (c *consumer) run() {
	defer close(c.ended)
	for {
		select {
		case <-c.stop:
			return
		case <-c.arrived:
			for c.next() {
			}
		}
	}
}

// next handles one batch. It returns false if the queue is empty or the consumer is stopped.
func (c *consumer) next() bool {
	select {
	case <-c.stop:
		return false
	default:
	}
	c.mu.Lock()
	n := min(len(c.queue), c.spec.Batch)
	batch := c.queue[:n:n]
	c.queue = c.queue[n:]
	c.mu.Unlock()
	if n == 0 {
		return false
	}
	size := 0
	for _, d := range batch {
		size += len(d.Body)
	}
	c.handle(batch)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting, c.bytes = c.waiting-n, c.bytes-size
	if !c.over { // otherwise the driver expects no frame but close
		c.passed = c.conn.link.out.count(c.passed, deliveryCount{typeHandled, c.id, n, size})
	}
	return true
}

// Ack makes the driver accept the n oldest unanswered deliveries.
func (c *consumer) Ack(n int) { c.answer(typeAck, n) }

// Nack makes the driver reject the n oldest unanswered deliveries.
func (c *consumer) Nack(n int) { c.answer(typeNack, n) }

func (c *consumer) answer(kind string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.answers = c.conn.link.out.count(c.answers, deliveryCount{kind: kind, consumer: c.id, count: n})
	}
}

// drop drops queued deliveries, which cannot be answered any more.
func (c *consumer) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over, c.queue = true, nil
}

func (c *consumer) on() *conn { return c.conn }

// lose ends the consumer because of why, or because its connection was closed.
func (c *consumer) lose(why error) {
	c.drop()
	end(&c.State, why)
}

// Stop prevents further calls of the handler, and waits for the running one.
func (c *consumer) Stop() {
	c.stopped.Do(func() { close(c.stop) })
	<-c.ended
}

// Close stops, and makes the driver send all answers and return the unanswered messages to the broker.
func (c *consumer) Close() error {
	c.once.Do(func() {
		c.End()
		c.Stop()
		if err := c.conn.link.close(outbound{Consumer: c.id}); err != nil {
			c.conn.link.log.Debug("close consumer", "err", err) // if it matters, the session reports more
		}
		c.drop()
	})
	return nil
}
