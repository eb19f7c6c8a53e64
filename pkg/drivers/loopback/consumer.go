package loopback

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// maxTaken is the maximum number of messages that a consumer takes at a time, like a receive buffer.
const maxTaken = 256

// consumer passes deliveries to its handler from one goroutine. Done and Err are those of its connection. It has more
// than 20 fields: its parts, the state of its deliveries, and what ends it.
type consumer struct {
	drivers.Ended // of conn

	conn   *conn
	queue  *queue
	spec   drivers.ConsumerSpec
	handle drivers.Handler

	wake     chan struct{} // capacity 1
	parked   bool          // listed in queue.waiting; guarded by queue.mu
	answered chan struct{} // capacity 1: Ack or Nack was called between calls of the handler
	stop     chan struct{}
	done     chan struct{} // closed when loop has ended

	once   sync.Once   // end
	ended  atomic.Bool // set once, after broken: loop ends
	broken atomic.Bool // the connection broke: nothing can be answered any more

	delivering atomic.Bool  // loop passes a run to the handler: it applies answers afterwards
	acks       atomic.Int64 // acknowledged messages, after answers, that the queue has not released yet
	refused    atomic.Bool  // answers is not empty

	// Guarded by queue.mu.
	answers []answer // answers up to the last Nack that the queue has not received yet
	taken   []run    // unanswered messages, the oldest first
	held    int      // messages in taken
	left    bool     // the unanswered messages are returned

	deliveries []drivers.Delivery // used only by loop
}

// answer is the answer to the n oldest unanswered messages.
type answer struct {
	n    int
	nack bool
}

func newConsumer(c *conn, q *queue, spec drivers.ConsumerSpec, handle drivers.Handler) *consumer {
	if tap, _ := c.session.broker.tapped(); tap != nil {
		handle = tapDeliveries(tap, handle)
	}
	return &consumer{
		Ended: c, conn: c, queue: q, spec: spec, handle: handle,
		wake: make(chan struct{}, 1), answered: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{}),
		deliveries: make([]drivers.Delivery, min(spec.Batch, maxTaken)),
	}
}

func (c *consumer) start() {
	c.queue.mu.Lock()
	c.queue.consumers++
	c.queue.mu.Unlock()
	go c.loop()
}

func (c *consumer) loop() {
	defer close(c.done)
	defer func() {
		if c.broken.Load() {
			c.leave()
		}
	}()
	for !c.ended.Load() {
		r, next := c.next()
		if len(r.slots) > 0 {
			c.deliver(r)
		} else {
			c.park(next)
		}
	}
}

// next takes the messages that are ready. If there are none, it parks the consumer in the queue's waiting list, so that
// no message is missed. It applies the answers since the last call in the same critical section. The second result is
// the time at which a delayed message will be ready, or 0.
func (c *consumer) next() (run, int64) {
	q := c.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	c.apply()
	limit := maxTaken
	if c.spec.Prefetch > 0 && c.spec.Ack != drivers.AckAutomatic {
		limit = min(limit, c.spec.Prefetch-c.held)
	}
	if limit == 0 {
		return run{}, 0 // messages must be answered first
	}
	r, next := q.take(limit, c.conn.session.broker.now)
	switch {
	case len(r.slots) == 0:
		c.parked = true
		q.waiting = append(q.waiting, c)
		return r, next
	case q.ready > 0:
		q.wake() // another consumer may take the rest
	}
	c.taken = extend(c.taken, r)
	c.held += len(r.slots)
	return r, next
}

// park waits for a message, for the time next (if it is not 0), for an answer, or for the end.
func (c *consumer) park(next int64) {
	var timer <-chan time.Time
	if next > 0 {
		t := time.NewTimer(time.Duration(next - c.conn.session.broker.now()))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-c.wake:
		return
	case <-c.answered:
	case <-c.stop:
	case <-timer:
	}
	c.unpark()
}

// unpark removes the consumer from the queue's waiting list, or consumes the wake-up that came in the meantime.
func (c *consumer) unpark() {
	q := c.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if !c.parked {
		select {
		case <-c.wake:
		default:
		}
		return
	}
	c.parked = false
	q.waiting = slices.DeleteFunc(q.waiting, func(w *consumer) bool { return w == c })
}

// deliver passes a run to the handler in batches.
func (c *consumer) deliver(r run) {
	redelivered := drivers.No
	if r.redelivered {
		redelivered = drivers.Yes
	}
	c.delivering.Store(true)
	for at := 0; at < len(r.slots) && !c.ended.Load(); {
		n := min(len(c.deliveries), len(r.slots)-at)
		for i, s := range r.slots[at : at+n] {
			end := s.at + s.size
			d := &c.deliveries[i]
			d.Body, d.Redelivered, d.Stream = r.buf[s.at:end:end], redelivered, c.queue.number
		}
		c.handle(c.deliveries[:n])
		if c.spec.Ack == drivers.AckAutomatic { // also after Cut
			c.acks.Add(int64(n))
		}
		if c.refused.Load() {
			c.queue.mu.Lock()
			c.apply()
			c.queue.mu.Unlock()
		}
		at += n
	}
	c.delivering.Store(false)
}

// Ack accepts the n oldest unanswered messages. The queue releases them with the next take, which follows at once
// unless a run is being delivered.
func (c *consumer) Ack(n int) {
	if c.broken.Load() {
		return
	}
	c.acks.Add(int64(n))
	c.hurry()
}

// Nack returns the n oldest unanswered messages to the queue, when the handler returns.
func (c *consumer) Nack(n int) {
	if c.broken.Load() {
		return
	}
	c.queue.mu.Lock()
	c.answers = append(c.answers, answer{n: int(c.acks.Swap(0))}, answer{n: n, nack: true})
	c.refused.Store(true)
	c.queue.mu.Unlock()
	c.hurry()
}

// hurry wakes loop, unless it delivers messages.
func (c *consumer) hurry() {
	if c.delivering.Load() {
		return
	}
	select {
	case c.answered <- struct{}{}:
	default:
	}
}

// apply passes the answers to the queue. The caller holds queue.mu.
func (c *consumer) apply() {
	for _, a := range c.answers {
		c.pass(a)
	}
	c.answers = c.answers[:0]
	c.refused.Store(false)
	if n := c.acks.Swap(0); n > 0 {
		c.pass(answer{n: int(n)})
	}
}

func (c *consumer) pass(a answer) {
	for a.n > 0 && len(c.taken) > 0 { // more answers than messages are a fault of the caller
		first := &c.taken[0]
		r := first.part(0, min(a.n, len(first.slots)))
		first.slots = first.slots[len(r.slots):]
		if len(first.slots) == 0 {
			c.taken = c.taken[:copy(c.taken, c.taken[1:])]
		}
		a.n -= len(r.slots)
		c.held -= len(r.slots)
		if a.nack {
			c.queue.giveBack(r)
		} else {
			c.queue.release(r)
		}
	}
}

// end makes loop end.
func (c *consumer) end() {
	c.once.Do(func() {
		c.ended.Store(true)
		close(c.stop)
	})
}

func (c *consumer) cut() {
	c.broken.Store(true)
	c.end()
}

func (c *consumer) abandon() { _ = c.Close() }

// Stop prevents further calls of the handler, and waits for the running one.
func (c *consumer) Stop() {
	c.end()
	<-c.done
}

// Close stops, and returns the unanswered messages to the queue.
func (c *consumer) Close() error {
	c.Stop()
	c.conn.drop(c)
	c.leave()
	return nil
}

// leave applies the answers, and returns the unanswered messages to the queue.
func (c *consumer) leave() {
	q := c.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.left {
		return
	}
	c.left = true
	c.apply()
	for _, r := range c.taken {
		q.giveBack(r)
	}
	c.taken, c.held = nil, 0
	q.consumers--
	if q.ready > 0 {
		q.wake() // this consumer may have received a wake-up without taking the message
	}
}
