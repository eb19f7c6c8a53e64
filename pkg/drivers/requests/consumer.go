package requests

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Received is a received message.
type Received[K any] struct {
	drivers.Delivery
	Key K // identifies the message in Settle
}

// Receive requests up to n messages and waits for the answer. If it returns no message, pause is the time before the
// next request. An error breaks the connection, also after pause. Bodies belong to the consumer. Each Receive is called
// from one goroutine at a time. ctx ends when the consumer stops waiting for the answer.
type Receive[K any] func(ctx context.Context, n int) (messages []Received[K], pause time.Duration, err error)

// Settling is the answer to the messages of one request.
type Settling int

// The values of Settling.
const (
	Accepted  Settling = iota // acknowledged
	Rejected                  // rejected, or passed to the handler and not answered
	Unhandled                 // not passed to the handler, because the consumer was stopped
)

// ConsumerPlan configures a Consumer.
type ConsumerPlan[K any] struct {
	Conn   *Conn
	Spec   drivers.ConsumerSpec
	Handle drivers.Handler
	// Receiver returns the function of one receiver. The receivers request messages concurrently.
	Receiver  func() Receive[K]
	Receivers int
	// MaxReceived is the maximum number of messages of one Receive.
	MaxReceived int
	// Settle sends one request for up to MaxSettled messages: an acknowledgement, or a return to the queue. Settlers
	// is the maximum number of concurrent calls. An error breaks the connection. Nil: the broker needs no answers, and
	// messages of a consumer that is being stopped are passed to the handler.
	Settle     func(ctx context.Context, keys []K, how Settling) error
	Settlers   int
	MaxSettled int
	// ReceivePatience and Patience are the maximum times for the answers to Receive and Settle. After that the
	// connection counts as broken.
	ReceivePatience, Patience time.Duration
}

// Consumer is a drivers.Consumer that receives with the functions of ConsumerPlan.Receiver. It ends with its
// connection. At most Spec.Prefetch messages are requested, waiting for the handler, or without an answer that was
// sent. So a slot of the prefetch is used for one round trip per message, if the handler is fast. It has more than 20
// fields: the queue of messages, and the state of its receivers and settlers.
type Consumer[K any] struct {
	drivers.Ended // of plan.Conn

	plan     ConsumerPlan[K]
	stop     chan struct{} // closed by Stop
	stopping sync.Once
	closing  sync.Once

	receiving, settling       context.Context // of the calls of Receive and of Settle
	endReceiving, endSettling context.CancelFunc

	received  chan []Received[K] // from the receivers to deliver
	receivers sync.WaitGroup
	delivered chan struct{} // closed when deliver has ended
	settlers  sync.WaitGroup

	mu         sync.Mutex
	ended      bool       // by Stop: see over
	finished   bool       // no further messages become due
	slots      *sync.Cond // free or ended changed
	free       int        // unused slots of the prefetch
	awake      *sync.Cond // wakes or ended changed
	polling    bool       // one receiver requests messages although it found none
	resting    int        // receivers that wait until another one finds messages
	wakes      int        // resting receivers that may continue
	work       *sync.Cond // due or finished changed
	unanswered []K        // messages that were passed to the handler
	due        [Unhandled + 1][]K
}

// NewConsumer creates and starts a consumer.
func NewConsumer[K any](plan ConsumerPlan[K]) *Consumer[K] {
	c := &Consumer[K]{Ended: plan.Conn, plan: plan, stop: make(chan struct{}), received: make(chan []Received[K]),
		delivered: make(chan struct{}), free: plan.Spec.Prefetch}
	if c.free == 0 {
		c.free = math.MaxInt
	}
	c.slots, c.awake, c.work = sync.NewCond(&c.mu), sync.NewCond(&c.mu), sync.NewCond(&c.mu)
	c.receiving, c.endReceiving = context.WithCancel(plan.Conn.working)
	c.settling, c.endSettling = context.WithCancel(plan.Conn.working)
	for range max(1, plan.Receivers) {
		c.receivers.Go(func() { c.receive(plan.Receiver()) })
	}
	go c.deliver()
	if plan.Settle != nil {
		for range max(1, plan.Settlers) {
			c.settlers.Go(c.settle)
		}
	}
	return c
}

// over reports whether no further Receive may begin, and no message be passed to the handler. The caller has locked mu.
func (c *Consumer[K]) over() bool { return c.ended || c.receiving.Err() != nil }

// breakAfter returns a watchdog that breaks the connection.
func (c *Consumer[K]) breakAfter(patience time.Duration) *Watchdog {
	return NewWatchdog(patience, func() { c.plan.Conn.Broke(fmt.Errorf("no answer for %v", patience)) })
}

// receive requests messages until the consumer is stopped or the connection ends.
func (c *Consumer[K]) receive(request Receive[K]) {
	watch := c.breakAfter(c.plan.ReceivePatience)
	defer watch.Close()
	for {
		n := c.reserve()
		if n == 0 {
			return
		}
		watch.Begin()
		messages, pause, err := request(c.receiving, n)
		watch.End()
		c.release(n - len(messages))
		switch {
		case len(messages) > 0:
			c.wakeOne()
			c.received <- messages
		case err != nil && c.receiving.Err() == nil:
			c.pause(pause)
			c.plan.Conn.Broke(err)
		case err == nil && pause > 0:
			c.rest(pause)
		}
	}
}

// reserve waits for free slots and reserves them for one request. It returns 0 when the consumer ends.
func (c *Consumer[K]) reserve() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.free == 0 && !c.ended {
		c.slots.Wait()
	}
	if c.over() {
		return 0
	}
	n := min(c.free, c.plan.MaxReceived)
	c.free -= n
	return n
}

func (c *Consumer[K]) release(n int) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free += n
	c.slots.Broadcast()
}

// rest waits after a request that found nothing. One receiver continues after the pause. The others wait until a
// receiver finds messages. Each request that finds messages wakes one of them, so that their number doubles per round
// trip while there are messages, and an empty queue has one request per pause.
func (c *Consumer[K]) rest(pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.polling {
		c.polling = true
		c.mu.Unlock()
		c.pause(pause)
		c.mu.Lock()
		c.polling = false
		return
	}
	c.resting++
	for c.wakes == 0 && !c.ended {
		c.awake.Wait()
	}
	c.resting--
	c.wakes = max(0, c.wakes-1)
}

func (c *Consumer[K]) wakeOne() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resting > c.wakes {
		c.wakes++
		c.awake.Signal()
	}
}

// pause waits for d, or until the consumer ends.
func (c *Consumer[K]) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.stop:
	case <-c.receiving.Done():
	}
}

// deliver passes messages to the handler, in batches of those that are available.
func (c *Consumer[K]) deliver() {
	defer close(c.delivered)
	var pending []Received[K]
	var deliveries []drivers.Delivery
	for {
		for more := true; more && len(pending) < c.plan.Spec.Batch; {
			select {
			case next := <-c.received:
				pending = append(pending, next...)
				more = next != nil
			default:
				more = false
			}
		}
		if len(pending) == 0 {
			next, open := <-c.received
			if !open {
				return
			}
			pending = append(pending, next...)
			continue
		}
		batch := pending[:min(len(pending), c.plan.Spec.Batch)]
		if c.handles(batch) {
			deliveries = deliveries[:0]
			for i := range batch {
				deliveries = append(deliveries, batch[i].Delivery)
			}
			c.plan.Handle(deliveries)
			clear(deliveries) // bodies can be large
			if c.plan.Settle == nil {
				c.release(len(batch))
			}
		}
		pending = slices.Delete(pending, 0, len(batch))
	}
}

// handles reports whether a batch is passed to the handler. Otherwise it is returned to the queue.
func (c *Consumer[K]) handles(batch []Received[K]) bool {
	if c.plan.Settle == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	to, over := &c.unanswered, c.over()
	if over {
		to = &c.due[Unhandled]
	}
	for i := range batch {
		*to = append(*to, batch[i].Key)
	}
	if over {
		c.signal(len(batch))
	}
	return !over
}

// Ack implements drivers.Consumer.
func (c *Consumer[K]) Ack(n int) { c.answer(n, Accepted) }

// Nack implements drivers.Consumer.
func (c *Consumer[K]) Nack(n int) { c.answer(n, Rejected) }

// answer makes the oldest unanswered messages due.
func (c *Consumer[K]) answer(n int, how Settling) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due[how] = append(c.due[how], c.unanswered[:n]...)
	c.unanswered = slices.Delete(c.unanswered, 0, n)
	c.signal(n)
}

// signal wakes as many settlers as n due messages need. The caller has locked mu.
func (c *Consumer[K]) signal(n int) {
	for ; n > 0; n -= c.plan.MaxSettled {
		c.work.Signal()
	}
}

// settle sends the requests for due messages, until there will be no more.
func (c *Consumer[K]) settle() {
	watch := c.breakAfter(c.plan.Patience)
	defer watch.Close()
	for {
		keys, how := c.next()
		if len(keys) == 0 {
			return
		}
		if c.settling.Err() != nil {
			continue
		}
		watch.Begin()
		err := c.plan.Settle(c.settling, keys, how)
		watch.End()
		if err != nil && c.settling.Err() == nil {
			c.plan.Conn.Broke(err)
		}
	}
}

// next waits for due messages, and frees their slots: a request for further messages can be sent with theirs.
func (c *Consumer[K]) next() (keys []K, how Settling) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for how := range c.due {
			if n := min(len(c.due[how]), c.plan.MaxSettled); n > 0 {
				keys = slices.Clone(c.due[how][:n])
				c.due[how] = slices.Delete(c.due[how], 0, n)
				c.free += n
				c.slots.Broadcast()
				return keys, Settling(how)
			}
		}
		if c.finished {
			return nil, 0
		}
		c.work.Wait()
	}
}

// Stop waits for the running requests for messages, up to grace, and for the handler.
func (c *Consumer[K]) Stop() {
	c.stopping.Do(func() {
		close(c.stop)
		c.mu.Lock()
		c.ended = true
		c.slots.Broadcast()
		c.awake.Broadcast()
		c.mu.Unlock()
		hard := time.AfterFunc(grace, c.endReceiving)
		c.receivers.Wait()
		hard.Stop()
		close(c.received)
		<-c.delivered
	})
}

// Close sends all answers, up to grace, and returns the unanswered messages to the queue.
func (c *Consumer[K]) Close() error {
	c.Stop()
	c.closing.Do(func() {
		c.mu.Lock()
		c.due[Rejected] = append(c.due[Rejected], c.unanswered...)
		c.unanswered, c.finished = nil, true
		c.work.Broadcast()
		c.mu.Unlock()
		hard := time.AfterFunc(grace, c.endSettling)
		c.settlers.Wait()
		hard.Stop()
		c.endReceiving()
		c.endSettling()
	})
	return nil
}

// Concurrent returns how many concurrent requests of up to perRequest messages keep limit messages in flight. limit 0
// means unlimited. Requests are often not full: they contain the messages or slots that are available when they begin.
// So there are twice as many as would be enough, and 10 or more, but never more than messages.
func Concurrent(limit, perRequest int) int {
	if limit == 0 {
		return 10
	}
	return min(limit, max(10, 2*((limit+perRequest-1)/perRequest)))
}
