package loopback

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/pkg/drivers"
)

// maxTaken is the maximum number of messages that a consumer takes at a time, like a receive buffer.
const maxTaken = 256

// consumer passes deliveries to its handler from one goroutine.
type consumer struct {
	session *session
	queue   *queue
	spec    drivers.ConsumerSpec
	handle  drivers.Handler

	wake   chan struct{} // capacity 1
	parked bool          // listed in queue.waiting; guarded by queue.mu
	stop   chan struct{}
	done   chan struct{}

	mu     sync.Mutex
	ended  atomic.Bool // set once, under mu, after broken
	notice *drivers.Notice
	broken atomic.Bool // the link broke: nothing can be acknowledged any more

	// Used only by the goroutine of loop.
	deliveries []drivers.Delivery
	accepted   []run // handled and not yet acknowledged
	unacked    int   // messages in accepted
	settled    []run // acknowledged; next releases them in the queue
	nextAck    time.Time
}

func newConsumer(s *session, q *queue, spec drivers.ConsumerSpec, handle drivers.Handler) *consumer {
	if tap, _ := s.broker.tapped(); tap != nil {
		handle = tapDeliveries(tap, handle)
	}
	return &consumer{
		session: s, queue: q, spec: spec, handle: handle,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		notice:     drivers.NewNotice(spec.OnClosed),
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
	for !c.ended.Load() {
		if c.spec.Ack == drivers.AckInterval {
			c.ackIfDue(time.Now())
		}
		r, next := c.next()
		if len(r.slots) > 0 {
			c.deliver(r)
		} else {
			c.park(next)
		}
	}
	c.leave()
}

// next takes the messages that are ready. If there are none, it parks the consumer in the queue's waiting list, so that
// no message is missed. It releases what was settled since the last call in the same critical section. The second
// result is the time at which a delayed message will be ready, or 0.
func (c *consumer) next() (run, int64) {
	most := maxTaken
	if c.spec.Prefetch > 0 && c.spec.Ack != drivers.AckAutomatic {
		most = min(most, c.spec.Prefetch-c.unacked)
	}
	q := c.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range c.settled {
		q.release(r)
	}
	c.settled = c.settled[:0]
	if most == 0 {
		return run{}, 0 // the consumer must acknowledge first
	}
	r, next := q.take(most, c.session.broker.now)
	switch {
	case len(r.slots) == 0:
		c.parked = true
		q.waiting = append(q.waiting, c)
	case q.ready > 0:
		q.wake() // another consumer may take the rest
	}
	return r, next
}

// park waits for a message, for the time next (if it is not 0), for the next acknowledgement, or for the end.
func (c *consumer) park(next int64) {
	var timer <-chan time.Time
	if wait, ok := c.patience(next); ok {
		t := time.NewTimer(wait)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-c.wake:
		return
	case <-c.stop:
	case <-timer:
	}
	c.unpark()
}

// patience returns how long a parked consumer may sleep. It returns false if no time limits the wait.
func (c *consumer) patience(next int64) (wait time.Duration, ok bool) {
	if next > 0 {
		wait, ok = time.Duration(next-c.session.broker.now()), true
	}
	if c.unacked > 0 && c.spec.Ack == drivers.AckInterval {
		if due := time.Until(c.nextAck); !ok || due < wait {
			wait, ok = due, true
		}
	}
	return wait, ok
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
	for i, w := range q.waiting {
		if w == c {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			return
		}
	}
}

// deliver passes a run to the handler in batches and settles it.
func (c *consumer) deliver(r run) {
	redelivered := drivers.No
	if r.redelivered {
		redelivered = drivers.Yes
	}
	// no acknowledgements are counted in these modes: settle many batches at once
	lazy := c.spec.Ack == drivers.AckEach || c.spec.Ack == drivers.AckAutomatic
	from, at := 0, 0
	for at < len(r.slots) && !c.ended.Load() {
		n := min(len(c.deliveries), len(r.slots)-at)
		for i, s := range r.slots[at : at+n] {
			end := s.at + s.size
			d := &c.deliveries[i]
			d.Body, d.Redelivered, d.Stream = r.buf[s.at:end:end], redelivered, c.queue.number
		}
		err := c.handle(c.deliveries[:n])
		if refused := err != nil || c.broken.Load(); refused || !lazy {
			c.accept(r.part(from, at))
			c.settle(r.part(at, at+n), refused)
			from = at + n
		}
		at += n
	}
	c.accept(r.part(from, at))
	c.giveBack(r.part(at, len(r.slots)))
}

// giveBack returns messages that were not accepted, for any consumer. With AckAutomatic, handled messages are not
// returned, but those left in the receive buffer are.
func (c *consumer) giveBack(r run) {
	if len(r.slots) == 0 {
		return
	}
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	c.queue.giveBack(r)
}

// settle gives rejected messages back and accepts all others. With AckAutomatic, nothing is rejected.
func (c *consumer) settle(r run, refused bool) {
	if refused && c.spec.Ack != drivers.AckAutomatic {
		c.giveBack(r)
		return
	}
	c.accept(r)
}

// accept acknowledges handled messages now, or counts them for a later acknowledgement.
func (c *consumer) accept(r run) {
	if len(r.slots) == 0 {
		return
	}
	if c.spec.Ack == drivers.AckEach || c.spec.Ack == drivers.AckAutomatic {
		c.settled = extend(c.settled, r)
		return
	}
	if c.spec.Ack == drivers.AckInterval && c.unacked == 0 {
		c.nextAck = time.Now().Add(c.spec.AckInterval)
	}
	c.accepted = extend(c.accepted, r)
	c.unacked += len(r.slots)
	if c.spec.Ack == drivers.AckEvery && (c.unacked >= c.spec.AckEvery || c.unacked == c.spec.Prefetch) {
		c.ack()
	}
}

func (c *consumer) ackIfDue(now time.Time) {
	if c.unacked > 0 && !now.Before(c.nextAck) {
		c.ack()
	}
}

// ack acknowledges all accepted messages. The queue releases them with the next take.
func (c *consumer) ack() {
	c.settled = append(c.settled, c.accepted...)
	c.accepted, c.unacked = c.accepted[:0], 0
}

// leave acknowledges the accepted messages, unless the link broke. Then it gives them back.
func (c *consumer) leave() {
	q := c.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.consumers--
	for _, r := range c.settled {
		q.release(r)
	}
	for _, r := range c.accepted {
		if c.broken.Load() {
			q.giveBack(r)
		} else {
			q.release(r)
		}
	}
	if q.ready > 0 {
		q.wake() // this consumer may have received a wake-up without taking the message
	}
}

// end stops the goroutine. It reports whether this call was the first.
func (c *consumer) end(broken bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended.Load() {
		return false
	}
	c.broken.Store(broken)
	c.ended.Store(true)
	close(c.stop)
	return true
}

func (c *consumer) cut() {
	if c.end(true) {
		c.session.drop(c)
		c.notice.Broke(fmt.Errorf("loopback consumer was cut: %w", drivers.ErrClosed))
	}
}

func (c *consumer) abandon() { _ = c.Close() }

func (c *consumer) Close() error {
	c.notice.End()
	if c.end(false) {
		c.session.drop(c)
	}
	<-c.done
	return nil
}
