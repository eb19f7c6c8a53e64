package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// consumer is one receiving thread. Its lock is taken once for each handler call; it keeps the driver's goroutine
// and the snapshots apart.
type consumer struct {
	e     *Engine
	index int // among all of its subscription in the task
	spec  drivers.ConsumerSpec
	link  link[handling]
	works *worker // nil: all is acknowledged at once
	slow  bool    // what it has prefetched may take it longer than the broker waits for acknowledgements
	turns *turns  // nil: always there
	there int64   // since when, ns since T0; guarded by mu
	gone  bool    // it left, or has not joined yet

	mu          sync.Mutex
	receipts    *record.Recorder // nil until the start is known
	sources     []source         // by publisher
	lastReceipt int64
	interrupted int64 // see record.Snapshot.LastInterrupted, without broken links
	wait        wait

	opening atomic.Bool // it is to be there, and opens its link
	done    chan struct{}
}

// source is what one consumer knows of one publisher's messages.
type source struct {
	received *record.Set
	flow     int               // of its messages
	stream   uint32            // the stream of next
	next     uint64            // one more than the greatest sequence seen in it
	others   map[uint32]uint64 // next of the other streams
}

func (e *Engine) newConsumer(subscription, i int) *consumer {
	w := e.work
	c := &consumer{e: e, index: i, done: make(chan struct{}), works: e.newWorker(subscription, i)}
	if process, after := w.Consumers.Process, e.redeliverAfter; after > 0 {
		mean := max(process.Mean.D(), (process.Least.D()+process.Most.D())/2)
		c.slow = mean*time.Duration(max(1, w.Consumers.Prefetch, w.Consumers.Batch)) >= after
	}
	_, least := w.LeastGap()
	c.wait = newWait(record.GapReceipt, record.ConsumerOwner(subscription, i), least)
	c.turns = newTurns(w.Consumers.Presence, i, e.assignment.Consumers.Total, int64(w.Measure))
	c.link.e, c.link.name, c.link.dial = e, fmt.Sprintf("consumer %d", i), c.dial
	local := i - e.assignment.Consumers.First
	c.spec = drivers.ConsumerSpec{
		Topology: e.topology, Subscription: subscription, Queue: queueOf(w, i, w.Consumers.Threads),
		Prefetch: w.Consumers.Prefetch, Batch: w.Consumers.Batch, Ack: drivers.Ack(w.Consumers.Ack),
		AckEvery: w.Consumers.AckEvery, AckInterval: w.Consumers.AckInterval.D(), Node: drivers.Node(w.Consumers.Node),
		Connection: consumerConnections + connection(w.Topology, subscription*e.assignment.Consumers.Count+local),
	}
	return c
}

// handling is a connection of a consumer.
type handling struct {
	drivers.Consumer
	interrupt *context.CancelFunc // ends what the handler takes its time over
}

func (h handling) Close() error {
	(*h.interrupt)()
	return h.Consumer.Close()
}

// dial opens one connection.
func (c *consumer) dial(ctx context.Context, onClosed func(error)) (handling, error) {
	spec := c.spec
	spec.OnClosed = onClosed
	busy, interrupt := context.WithCancel(c.e.supervision)
	conn, err := c.e.session.Consumer(ctx, spec, func(batch []drivers.Delivery) error { return c.handle(busy, batch) })
	if err != nil {
		interrupt()
		return handling{}, fmt.Errorf("subscription %d: %w", spec.Subscription, err)
	}
	return handling{conn, &interrupt}, nil
}

// apart reports whether the consumer is to receive and has no link to do so: what does not come to it may still be at the broker.
func (c *consumer) apart() bool { return c.link.down.Load() || c.opening.Load() }

func (c *consumer) record(r *record.Collector, publishers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receipts = r.Recorder()
	c.wait.begin(-c.e.warmup)
	c.sources = make([]source, publishers)
	for i := range c.sources {
		c.sources[i].received = c.receipts.Set(record.SetKey{Kind: record.SetReceived, Subscription: c.spec.Subscription, Publisher: i})
		c.sources[i].flow = record.FlowsOf(c.e.topology.Subscriptions, c.e.topology.Queues).Of(c.spec.Subscription, queueOf(c.e.work, i, c.e.work.Publishers.Threads))
	}
}

var errNotStarted = errors.New("closed before the start")

// handle takes deliveries from the driver. What arrives before this agent knows the start waits for it. What it takes over messages it
// takes after they were received and before they are acknowledged; busy ends it.
func (c *consumer) handle(busy context.Context, batch []drivers.Delivery) error {
	select {
	case <-c.e.started:
	default:
		select {
		case <-c.e.started:
		case <-c.e.closed:
			return errNotStarted
		case <-busy.Done():
			return errNotStarted
		}
	}
	if c.works.refuses() {
		c.refuse(batch)
		return errRefused
	}
	c.account(batch)
	c.works.work(busy, len(batch))
	return nil
}

func (c *consumer) receive(d *drivers.Delivery) {
	now := c.e.now()
	env, err := open(d.Body, c.e.task)
	if err != nil || int(env.publisher) >= len(c.sources) {
		w := c.receipts.Window(now, false)
		if errors.Is(err, errForeign) {
			w.Counts[record.Foreign]++
		} else {
			w.Counts[record.Corrupt]++
		}
		return
	}
	if d.Body[1] != kindMessage {
		c.e.arrivals.take(c.e, env, d.Body, now)
		return
	}
	c.lastReceipt = now
	if c.wait.over(now) {
		if limit := int64(c.e.redeliverAfter); limit > 0 && now-c.waits() > limit {
			c.interrupted = max(1, now) // what was in warm-up counts too
		}
		c.wait.note(c.receipts, now, c.waits())
	}
	c.wait.came(now)
	w := c.receipts.Window(now, c.e.belongs(env.due, env.send))
	w.Counts[record.Received]++
	if d.Redelivered == drivers.Yes {
		w.Counts[record.Redelivered]++
	}
	s := &c.sources[env.publisher]
	if !s.received.Add(env.sequence) {
		w.Counts[record.Duplicated]++
		return
	}
	w.Counts[record.Unique]++
	w.Counts[record.ReceivedBytes] += int64(len(d.Body))
	w.Deliver(s.flow)
	w.Record(record.Processing, now+c.e.lead(env)-env.due)
	if d.Redelivered != drivers.Yes && s.late(d.Stream, env.sequence) {
		w.Counts[record.Reordered]++
	}
}

// late tells whether a later message of this stream was seen before (RFC 4737, section 3: s < NextExp).
func (s *source) late(stream uint32, sequence uint64) bool {
	if stream != s.stream {
		if s.others == nil {
			s.others = map[uint32]uint64{}
		}
		s.others[s.stream] = s.next
		s.stream, s.next = stream, s.others[stream]
	}
	if sequence < s.next {
		return true
	}
	s.next = sequence + 1
	return false
}

// supervise opens the link again whenever it breaks, and has the consumer leave and join, until ctx ends.
func (c *consumer) supervise(ctx context.Context) {
	defer close(c.done)
	turn := make(chan struct{}, 1)
	alarm := clock.NewAlarm(turn)
	defer alarm.Stop()
	for {
		if c.turns != nil && !c.attend(ctx, alarm) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-turn:
			continue
		case <-c.link.broken:
		}
		c.opening.Store(true)
		if !c.link.reopen(ctx) {
			return
		}
		c.opening.Store(false)
		c.e.countOwn(record.Reconnects)
	}
}

// endWait keeps what this consumer, which is closed, still waited for at the end.
func (c *consumer) endWait(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.receipts != nil {
		c.wait.end(c.receipts, now, c.waits())
	}
}

// flush hands over all that was received. It returns when the last message came, and when deliveries were last interrupted.
func (c *consumer) flush() (receipt, interrupted int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.receipts != nil {
		c.receipts.Flush()
	}
	interrupted = c.interrupted
	if at := c.link.lastBreak(); at != 0 {
		interrupted = max(interrupted, at-c.e.origin.Load(), 1)
	}
	return c.lastReceipt, interrupted
}
