package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// consumer is one receiving thread. The methods are in the order of processing: a batch of deliveries is received and
// recorded, then processed, then answered as the acker decides. It has more than 20 fields, which these steps share.
type consumer struct {
	e              *Engine
	index          int // among all consumers of its subscription in the task
	conn           connKey
	spec           drivers.ConsumerSpec
	link           link[receiving]
	processor      *processor           // nil: every message is acknowledged at once
	lifetime       *lifetime            // nil: always active
	redeliverAfter time.Duration        // see plan.Cell
	departed       bool                 // disconnected by its lifetime, or not connected yet
	opening        atomic.Bool          // the consumer is active and is opening its link
	held           atomic.Pointer[held] // of the current link; nil: not measured
	exceeded       atomic.Int64         // see held
	done           chan struct{}
	redelivered    []redelivery // see receivedByOthers; used by the handler only
	repeated       []bool       // same

	mu sync.Mutex // guards the fields below; locked once per handler call, by snapshots, and by receivedByOthers

	deliveries *record.Recorder // nil until the start is known
	sources    []source         // by publisher
	// times of deliveries of new messages, ns since T0; 0: none
	firstDelivery, lastDelivery int64
	lastOther                   int64 // of another delivery: see record.Snapshot.LastOther
	activeSince                 int64 // ns since T0
	gaps                        gapDetector
}

// source is the state of one publisher's messages at one consumer.
type source struct {
	received *record.Set
	dropped  *record.Set       // nil: none yet
	flow     int               // of the publisher's messages to this subscription
	stream   uint32            // the stream to which next applies
	next     uint64            // highest sequence seen in this stream, plus one
	others   map[uint32]uint64 // next of the other streams
}

func newConsumer(e *Engine, subscription, i int) *consumer {
	w, a := e.work, e.cfg.Assignment
	c := &consumer{e: e, index: i, done: make(chan struct{}),
		processor:      newProcessor(w.Consumers, e.task, subscription, i),
		lifetime:       newLifetime(e.timeline, w.Consumers.Lifetime, i, a.Consumers.Total, int64(w.Measure)),
		redeliverAfter: a.Task.Cell.RedeliverAfter.D()}
	_, minGap := w.MinGap()
	c.gaps = newGapDetector(record.GapDelivery, record.ConsumerOwner(subscription, i), minGap)
	c.link = newLink(e, fmt.Sprintf("consumer %d", i), c.dial)
	number := connection(w.Topology, subscription*a.Consumers.Count+i-a.Consumers.First)
	c.spec = drivers.ConsumerSpec{
		Topology: e.topology, Subscription: subscription, Queue: queueOf(w, i, w.Consumers.Threads),
		Prefetch: w.Consumers.Prefetch, Batch: w.Consumers.Batch, Ack: drivers.Ack(w.Consumers.Ack),
		Nack: w.Consumers.Nack > 0,
	}
	c.conn = e.connKey(drivers.ConsumerRole, number,
		ordinal(w.Topology, number, w.Consumers.Threads*max(1, w.Topology.Subscriptions), a.Consumers.First,
			w.Consumers.Threads), subscription, c.spec.Queue)
	return c
}

// receiving is a connected consumer.
type receiving struct {
	lease     *lease
	acker     *acker
	interrupt *context.CancelFunc // ends the processing of the handler
}

// Close interrupts the simulated processing of messages, acknowledges the accepted ones, and closes the consumer.
func (r receiving) Close() error {
	(*r.interrupt)()
	return r.lease.close(func() error {
		r.acker.finish()
		return r.acker.consumer.Close()
	})
}

// Cut breaks the consumer's connection.
func (r receiving) Cut() { r.lease.Cut() }

// dial connects a consumer.
func (c *consumer) dial(ctx context.Context, onClosed func(error)) (receiving, error) {
	fail := func(err error) (receiving, error) {
		return receiving{}, fmt.Errorf("subscription %d: %w", c.spec.Subscription, err)
	}
	l, err := c.e.conns.acquire(ctx, c.conn, onClosed)
	if err != nil {
		return fail(err)
	}
	h := newHeld(c.e.work.Consumers, c.redeliverAfter.Nanoseconds(), &c.exceeded, c.e.timeline)
	c.held.Store(h)
	a := newAcker(c.e.work.Consumers, h)
	processing, interrupt := context.WithCancel(c.e.supervision)
	consumer, err := l.shared.conn.Consumer(ctx, c.spec, func(batch []drivers.Delivery) { c.handle(processing, a, batch) })
	if err != nil {
		interrupt()
		_ = l.close(func() error { return nil })
		return fail(err)
	}
	a.start(consumer, c.e.work.Consumers.AckInterval.D())
	l.watch(consumer)
	return receiving{l, a, &interrupt}, nil
}

// begin creates the consumer's part of the record. It is called when the start time is known.
func (c *consumer) begin(r *record.Collector) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliveries = r.Recorder()
	c.gaps.begin(-int64(c.e.timeline.warmup))
	c.sources = make([]source, c.e.cfg.Assignment.Publishers.Total)
	flows := record.FlowsOf(c.e.topology.Subscriptions, c.e.topology.Queues)
	for i := range c.sources {
		c.sources[i].received = c.deliveries.Set(record.SetKey{Kind: record.SetReceived,
			Subscription: c.spec.Subscription, Publisher: i})
		c.sources[i].flow = flows.Of(c.spec.Subscription, queueOf(c.e.work, i, c.e.work.Publishers.Threads))
	}
}

// handle receives deliveries from the driver. Deliveries wait until the start time is known to this agent. They stay
// unanswered if the consumer is closed before that. Messages are recorded, then processed, then answered. The end of
// ctx ends the processing.
func (c *consumer) handle(ctx context.Context, a *acker, batch []drivers.Delivery) {
	if !a.known { // the first call
		select {
		case <-c.e.started:
		case <-ctx.Done():
			a.gone = true
		}
	}
	if !a.begin(ctx) {
		return
	}
	if c.processor.refuses() {
		c.refuse(a.held, batch)
		a.refuse(len(batch))
	} else {
		c.receiveBatch(a.held, batch)
		if c.processor.process(ctx, len(batch)) {
			a.held.elapse()
		}
		a.accept(len(batch))
	}
	a.end()
}

// refuse counts the messages of the task in a refused batch. They are recorded as received when they are delivered
// again, or as dropped if the broker does not deliver them again.
func (c *consumer) refuse(h *held, batch []drivers.Delivery) {
	now := c.e.timeline.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	w, sent := c.deliveries.Window(now, c.e.timeline.contains(now)), unknownSend
	for i := range batch {
		body := batch[i].Body
		env, err := open(body, c.e.task)
		if err != nil || body[1] != kindMessage || int(env.publisher) >= len(c.sources) {
			continue
		}
		sent = min(sent, env.send-c.e.clockCorrection(env))
		w.Counts[record.Nacked]++
		if batch[i].Last {
			s := &c.sources[env.publisher]
			if s.dropped == nil {
				s.dropped = c.deliveries.Set(record.SetKey{Kind: record.SetDropped, Subscription: c.spec.Subscription,
					Publisher: int(env.publisher)})
			}
			s.dropped.Add(env.sequence)
		}
	}
	h.receive(len(batch), sent, now)
}

// receiveBatch records the deliveries of one handler call, which arrived together: they have the same delivery time.
func (c *consumer) receiveBatch(h *held, batch []drivers.Delivery) {
	now, sent := c.e.timeline.now(), unknownSend
	repeated := c.receivedByOthers(batch)
	c.mu.Lock()
	for i := range batch {
		sent = min(sent, c.receive(&batch[i], repeated != nil && repeated[i], now))
	}
	c.mu.Unlock()
	h.receive(len(batch), sent, now)
}

// redelivery identifies a redelivered message of a batch.
type redelivery struct {
	index     int // in the batch
	publisher int
	sequence  uint64
}

// receivedByOthers returns which redelivered messages other consumers of their queue at this agent have received. It is
// nil if no message is redelivered. Others add nothing meanwhile: the broker has ended their deliveries of these
// messages. The result is valid until the next call.
func (c *consumer) receivedByOthers(batch []drivers.Delivery) []bool {
	c.redelivered = c.redelivered[:0]
	for i := range batch {
		if batch[i].Redelivered != drivers.Yes {
			continue
		}
		if env, err := open(batch[i].Body, c.e.task); err == nil && batch[i].Body[1] == kindMessage {
			c.redelivered = append(c.redelivered, redelivery{i, int(env.publisher), env.sequence})
		}
	}
	if len(c.redelivered) == 0 {
		return nil
	}
	c.repeated = append(c.repeated[:0], make([]bool, len(batch))...)
	for _, o := range c.e.consumers {
		if o == c || o.spec.Subscription != c.spec.Subscription || o.spec.Queue != c.spec.Queue {
			continue
		}
		o.mu.Lock()
		for _, r := range c.redelivered {
			if r.publisher < len(o.sources) && o.sources[r.publisher].received.Contains(r.sequence) {
				c.repeated[r.index] = true
			}
		}
		o.mu.Unlock()
	}
	return c.repeated
}

// receive verifies and records one delivery at now. In a cell without publishers, every delivery counts. It returns the
// send time by the clock of this agent, or unknownSend. repeated: another consumer has received the message. The caller
// holds mu.
func (c *consumer) receive(d *drivers.Delivery, repeated bool, now int64) (sent int64) {
	if len(c.sources) == 0 {
		c.arrived(now)
		w := c.deliveries.Window(now, c.e.timeline.contains(now))
		w.Counts[record.Received]++
		w.Counts[record.Unique]++
		w.Counts[record.ReceivedBytes] += int64(len(d.Body))
		if d.Redelivered == drivers.Yes {
			w.Counts[record.Redelivered]++
		}
		return unknownSend
	}
	env, err := open(d.Body, c.e.task)
	if err != nil || int(env.publisher) >= len(c.sources) {
		w := c.deliveries.Window(now, false)
		switch existing := c.e.topology.Existing != ""; {
		case existing && !claims(d.Body, c.e.task):
			w.Counts[record.Foreign]++
			c.lastOther = now
			c.endGap(now)
		case errors.Is(err, errForeign):
			w.Counts[record.Foreign]++
		default:
			w.Counts[record.Corrupt]++
		}
		return unknownSend
	}
	correction := c.e.clockCorrection(env)
	sent = env.send - correction
	if d.Body[1] != kindMessage {
		c.e.bindings.receive(c.e, env, d.Body, now)
		return sent
	}
	w := c.deliveries.Window(now, c.e.timeline.belongs(env.intended, env.send))
	w.Counts[record.Received]++
	if d.Redelivered == drivers.Yes {
		w.Counts[record.Redelivered]++
	}
	s := &c.sources[env.publisher]
	if added := s.received.Add(env.sequence); !added || repeated {
		w.Counts[record.Duplicated]++
		c.lastOther = now
		c.endGap(now)
		return sent
	}
	c.arrived(now)
	w.Counts[record.Unique]++
	w.Counts[record.ReceivedBytes] += int64(len(d.Body))
	w.Deliver(s.flow)
	w.Record(record.EndToEnd, now+correction-env.intended)
	if d.Redelivered != drivers.Yes && s.late(d.Stream, env.sequence) {
		w.Counts[record.Reordered]++
	}
	return sent
}

// arrived records the time of the delivery of a new message. The caller holds mu.
func (c *consumer) arrived(now int64) {
	if c.firstDelivery == 0 {
		c.firstDelivery = cmp.Or(now, 1)
	}
	c.lastDelivery = now
	c.endGap(now)
}

// endGap records that the consumer received something. The caller holds mu.
func (c *consumer) endGap(now int64) {
	if c.gaps.ends(now) {
		c.gaps.keep(c.deliveries, now, c.waitsSince())
	}
	c.gaps.came(now)
}

// late reports whether a message with a higher sequence was seen before in this stream (RFC 4737, section 3: s <
// NextExp).
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

// waitsSince returns the time since which the consumer, while active, has waited for the next message. The caller holds
// mu.
func (c *consumer) waitsSince() int64 {
	if c.lifetime == nil {
		return c.gaps.last
	}
	return max(c.gaps.last, c.activeSince)
}

// supervise reopens the link whenever it breaks, until ctx ends. It also disconnects and connects the link at the times
// of the lifetime.
func (c *consumer) supervise(ctx context.Context) {
	defer close(c.done)
	change := make(chan struct{}, 1)
	alarm := clock.NewAlarm(change)
	defer alarm.Stop()
	for {
		if c.lifetime != nil && !c.followLifetime(ctx, alarm) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-change:
			continue
		case <-c.link.broken:
		}
		c.opening.Store(true)
		if _, ok := c.link.reopen(ctx); !ok {
			return
		}
		c.opening.Store(false)
		c.e.journal.count(record.Reconnects, 1)
	}
}

// followLifetime disconnects or connects the consumer if its lifetime requires it, and sets the alarm for the next
// change. It returns false if ctx ended before the consumer could connect.
func (c *consumer) followLifetime(ctx context.Context, alarm *clock.Alarm) bool {
	active, until := c.lifetime.activeAt(c.e.timeline.now())
	switch {
	case active && c.departed:
		c.opening.Store(true)
		connected := c.link.openWithRetry(ctx)
		c.opening.Store(false)
		if !connected {
			return false
		}
		c.departed = false
		c.mu.Lock()
		c.activeSince = c.e.timeline.now()
		c.mu.Unlock()
		c.e.journal.count(record.Connects, 1)
		c.e.journal.lifetime(c.link.name, eventJoined)
	case !active && !c.departed:
		c.depart()
		c.e.journal.count(record.Disconnects, 1)
		c.e.journal.lifetime(c.link.name, eventLeft)
	}
	alarm.Set(c.lifetime.wake(until))
	return true
}

// depart closes the link in an orderly way. Handled messages are acknowledged; the broker delivers the rest to other
// consumers.
func (c *consumer) depart() {
	c.departed = true
	c.link.disconnect()
}

// cutOff reports whether the consumer is active but has no link. Messages for it may then still be at the broker.
func (c *consumer) cutOff() bool { return c.link.down.Load() || c.opening.Load() }

// flush passes all recorded deliveries to the collector. It returns the times of the first and the last delivery of a
// new message, of the last other delivery, and of the last interruption of deliveries, ns since T0.
func (c *consumer) flush() (first, last, other, interrupted int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deliveries != nil {
		c.deliveries.Flush()
	}
	interrupted = c.exceeded.Load()
	if h := c.held.Load(); h != nil {
		if now := c.e.timeline.now(); h.overdue(now) {
			interrupted = max(1, now)
		}
	}
	if at := max(c.link.lastBreak(), c.e.reconnecting.Load()); at != 0 {
		interrupted = max(interrupted, at-c.e.timeline.origin.Load(), 1)
	}
	return c.firstDelivery, c.lastDelivery, c.lastOther, interrupted
}

// finish records the open gap at the end. The consumer is closed.
func (c *consumer) finish(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deliveries != nil {
		c.gaps.finish(c.deliveries, now, c.waitsSince())
	}
}
