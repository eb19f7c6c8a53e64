package requests

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
)

// Received is a received message.
type Received[K any] struct {
	drivers.Delivery
	Key K // identifies the message in Settle
}

// Receive requests up to n messages and waits for the answer. If it returns no message, pause is the time before the
// next request. An error breaks the link, also after pause. Bodies belong to the consumer. Each Receive is called from
// one goroutine at a time. ctx ends when the consumer stops waiting for the answer.
type Receive[K any] func(ctx context.Context, n int) (messages []Received[K], pause time.Duration, err error)

// Settling is the result of the messages of one request.
type Settling int

// The values of Settling.
const (
	Accepted  Settling = iota // the handler accepted them
	Rejected                  // the handler rejected them
	Unhandled                 // they were not passed to the handler, because the consumer is being closed
)

// ConsumerPlan configures a Consumer.
type ConsumerPlan[K any] struct {
	Spec   legacy.ConsumerSpec
	Handle legacy.Handler
	// Receiver returns the function of one receiver. The receivers request messages concurrently.
	Receiver  func() Receive[K]
	Receivers int
	// Most is the maximum number of messages of one Receive.
	Most int
	// Settle sends one request for up to MostSettled messages: an acknowledgement, or a return to the queue. Settlers
	// is the maximum number of concurrent calls. An error breaks the link. Nil: the broker needs no acknowledgement,
	// and messages of a consumer that is being closed are passed to the handler.
	Settle      func(ctx context.Context, keys []K, how Settling) error
	Settlers    int
	MostSettled int
	// Grouped: received messages hold further ones back. They are acknowledged when no other message is waiting,
	// whatever Spec.Ack is.
	Grouped bool
	// ReceivePatience and Patience are the maximum times for the answers to Receive and Settle. After that the link
	// counts as broken.
	ReceivePatience, Patience time.Duration
	// Link is the state of the consumer's link. Leave is called at the end of Close.
	Link  *Link
	Leave func()
}

// Consumer is a legacy.Consumer that receives with the functions of ConsumerPlan.Receiver. At most Spec.Prefetch
// messages are requested, waiting for the handler, or without an acknowledgement that was sent. So a slot of the
// prefetch is used for one round trip per message, if the handler is fast.
type Consumer[K any] struct {
	plan   ConsumerPlan[K]
	notice *legacy.Notice
	stop   chan struct{} // closed by Close
	broken chan struct{} // closed by Broke and Abandon
	break1 sync.Once
	once   sync.Once

	ctx, settling       context.Context // of the calls of Receive and of Settle
	cancel, endSettling context.CancelFunc

	received  chan []Received[K] // from the receivers to deliver
	receivers sync.WaitGroup
	running   sync.WaitGroup // deliver, and acknowledgements at intervals
	settlers  sync.WaitGroup

	mu       sync.Mutex
	ended    bool        // no further Receive begins
	finished bool        // no further messages become due
	slots    *sync.Cond  // free or ended changed
	free     int         // unused slots of the prefetch
	awake    *sync.Cond  // wakes or ended changed
	polling  bool        // one receiver requests messages although it found none
	resting  int         // receivers that wait until another one finds messages
	wakes    int         // resting receivers that may continue
	work     *sync.Cond  // due or finished changed
	accepted []K         // handled, but not yet due
	grouped  *time.Timer // acknowledges what has waited for grouping; AckEach
	due      [Unhandled + 1][]K
}

// grouping is how long an acknowledgement may wait for further messages that are handled meanwhile, with AckEach.
const grouping = time.Millisecond

// NewConsumer creates and starts a consumer. It joins and leaves plan.Link.
func NewConsumer[K any](plan ConsumerPlan[K]) *Consumer[K] {
	c := &Consumer[K]{plan: plan, notice: legacy.NewNotice(plan.Spec.OnClosed), stop: make(chan struct{}),
		broken: make(chan struct{}), received: make(chan []Received[K]), free: plan.Spec.Prefetch}
	if c.free == 0 {
		c.free = math.MaxInt
	}
	c.grouped = time.AfterFunc(time.Hour, c.acknowledgeIdle)
	c.grouped.Stop()
	c.slots, c.awake, c.work = sync.NewCond(&c.mu), sync.NewCond(&c.mu), sync.NewCond(&c.mu)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.settling, c.endSettling = context.WithCancel(context.Background())
	plan.Link.Join(c)
	for range max(1, plan.Receivers) {
		c.receivers.Go(func() { c.receive(plan.Receiver()) })
	}
	c.running.Go(c.deliver)
	if plan.Settle == nil {
		return c
	}
	for range max(1, plan.Settlers) {
		c.settlers.Go(c.settle)
	}
	if plan.Spec.Ack == drivers.AckInterval {
		c.running.Go(c.acknowledgeAtIntervals)
	}
	return c
}

// Broke ends the consumer because its link broke. It waits for nothing.
func (c *Consumer[K]) Broke(cause error) {
	c.end()
	c.notice.Broke(fmt.Errorf("%w: %w", drivers.ErrClosed, cause))
}

// Abandon ends the consumer because its session is closed. OnClosed is not called.
func (c *Consumer[K]) Abandon() {
	c.notice.End()
	c.end()
}

func (c *Consumer[K]) end() {
	c.break1.Do(func() { close(c.broken) })
	c.cancel()
	c.wakeAll()
}

// wakeAll ends the waits of receivers, because no further request may begin.
func (c *Consumer[K]) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.slots.Broadcast()
	c.awake.Broadcast()
}

// breakAfter returns a watchdog that breaks the link.
func (c *Consumer[K]) breakAfter(patience time.Duration) *Watchdog {
	return NewWatchdog(patience, func() {
		c.plan.Link.Broke(fmt.Errorf("no answer for %v", patience))
		c.cancel()
		c.endSettling()
	})
}

// receive requests messages until the consumer is closed or the link breaks.
func (c *Consumer[K]) receive(request Receive[K]) {
	watch := c.breakAfter(c.plan.ReceivePatience)
	defer watch.Close()
	for {
		n := c.reserve()
		if n == 0 {
			return
		}
		watch.Begin()
		messages, pause, err := request(c.ctx, n)
		watch.End()
		c.release(n - len(messages))
		switch {
		case len(messages) > 0:
			c.wakeOne()
			c.received <- messages
		case err != nil && c.ctx.Err() == nil:
			c.pause(pause)
			c.plan.Link.Broke(err)
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
	if c.ended {
		return 0
	}
	n := min(c.free, c.plan.Most)
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
	case <-c.broken:
	}
}

// over reports whether no more messages may be passed to the handler.
func (c *Consumer[K]) over() bool {
	select {
	case <-c.stop:
		return true
	case <-c.broken:
		return true
	default:
		return false
	}
}

// deliver passes messages to the handler, in batches of those that are available.
func (c *Consumer[K]) deliver() {
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
			c.acknowledgeIdle()
			next, open := <-c.received
			if !open {
				return
			}
			pending = append(pending, next...)
			continue
		}
		batch := pending[:min(len(pending), c.plan.Spec.Batch)]
		if c.over() && c.plan.Settle != nil {
			c.enqueue(batch, Unhandled)
		} else {
			deliveries = deliveries[:0]
			for i := range batch {
				deliveries = append(deliveries, batch[i].Delivery)
			}
			switch err := c.plan.Handle(deliveries); {
			case c.plan.Settle == nil:
				c.release(len(batch))
			case err != nil:
				c.enqueue(batch, Rejected)
			default:
				c.accept(batch)
			}
			clear(deliveries) // bodies can be large
		}
		pending = slices.Delete(pending, 0, len(batch))
	}
}

// accept stores messages that the handler accepted, and acknowledges them if it is time.
func (c *Consumer[K]) accept(batch []Received[K]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.accepted) == 0 && c.plan.Spec.Ack == drivers.AckEach {
		c.grouped.Reset(grouping)
	}
	for i := range batch {
		c.accepted = append(c.accepted, batch[i].Key)
	}
	n, spec := len(c.accepted), &c.plan.Spec
	switch spec.Ack {
	case drivers.AckEach:
		if n >= c.plan.MostSettled {
			c.acknowledge()
		}
	case drivers.AckEvery:
		if n >= spec.AckEvery || (spec.Prefetch > 0 && n >= spec.Prefetch) {
			c.acknowledge()
		}
	}
}

// acknowledgeIdle acknowledges when no message is available for the handler, or when a message has waited for grouping.
func (c *Consumer[K]) acknowledgeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plan.Spec.Ack == drivers.AckEach || c.plan.Grouped {
		c.acknowledge()
	}
}

// acknowledge makes the accepted messages due. The caller has locked mu.
func (c *Consumer[K]) acknowledge() {
	if len(c.accepted) > 0 {
		c.due[Accepted] = append(c.due[Accepted], c.accepted...)
		c.accepted = c.accepted[:0]
		c.work.Broadcast()
	}
}

func (c *Consumer[K]) acknowledgeAtIntervals() {
	ticker := time.NewTicker(c.plan.Spec.AckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.mu.Lock()
			c.acknowledge()
			c.mu.Unlock()
		case <-c.stop:
			return
		case <-c.broken:
			return
		}
	}
}

func (c *Consumer[K]) enqueue(batch []Received[K], how Settling) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range batch {
		c.due[how] = append(c.due[how], batch[i].Key)
	}
	c.work.Broadcast()
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
		if c.plan.Link.Err() != nil || c.settling.Err() != nil {
			continue
		}
		watch.Begin()
		err := c.plan.Settle(c.settling, keys, how)
		watch.End()
		if err != nil && c.settling.Err() == nil {
			c.plan.Link.Broke(err)
		}
	}
}

// next waits for due messages, and frees their slots: a request for further messages can be sent with theirs.
func (c *Consumer[K]) next() (keys []K, how Settling) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for how := range c.due {
			if n := min(len(c.due[how]), c.plan.MostSettled); n > 0 {
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

// Close waits for the current requests and for the handler, acknowledges the messages that the handler accepted, and
// returns the others to the queue.
func (c *Consumer[K]) Close() error {
	c.once.Do(func() {
		c.notice.End()
		close(c.stop)
		c.wakeAll()
		hard := time.AfterFunc(grace, c.cancel)
		c.receivers.Wait()
		hard.Stop()
		close(c.received)
		c.running.Wait()
		c.grouped.Stop()
		c.mu.Lock()
		c.acknowledge()
		c.finished = true
		c.work.Broadcast()
		c.mu.Unlock()
		hard = time.AfterFunc(grace, c.endSettling)
		c.settlers.Wait()
		hard.Stop()
		c.cancel()
		c.endSettling()
		c.plan.Link.Part(c)
		c.plan.Leave()
	})
	return nil
}

// Concurrent returns how many concurrent requests of up to most messages keep limit messages in flight, with 0 for an
// unlimited number. Requests are often not full: they take the messages or slots that are available when they begin.
// So there are twice as many as would be enough, and 10 or more, but never more than messages.
func Concurrent(limit, most int) int {
	if limit == 0 {
		return 10
	}
	return min(limit, max(10, 2*((limit+most-1)/most)))
}
