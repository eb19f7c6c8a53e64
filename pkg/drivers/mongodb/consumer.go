package mongodb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	client "go.mongodb.org/mongo-driver/v2/mongo/options"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/requests"
)

// consumer claims one message after the other, and passes each to the handler immediately. Collecting a batch would
// delay the first message.
type consumer struct {
	spec       drivers.ConsumerSpec
	link       *link
	leave      func()
	log        *slog.Logger
	from       *mongo.Collection
	handle     drivers.Handler
	notice     *drivers.Notice
	visibility time.Duration
	poll       time.Duration
	patience   time.Duration
	sorted     bool

	delivery [1]drivers.Delivery
	unacked  []bson.ObjectID // accepted and not yet deleted
	due      time.Time       // time of the next acknowledgement at an interval

	ctx    context.Context // of all requests
	cancel context.CancelFunc
	watch  *requests.Watchdog
	stop   chan struct{}
	broken chan struct{}
	break1 sync.Once
	ended  chan struct{}
	once   sync.Once
}

// refusedPause delays the break of a consumer whose claims are rejected. Otherwise it would be reconnected and rejected
// in a tight loop.
const refusedPause = 200 * time.Millisecond

// Consumer connects a consumer. Setup created its collection, so no message is missed.
func (s *session) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer,
	error) {
	c, err := s.consumer(ctx, spec, handle)
	if err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	return c, nil
}

func (s *session) consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (*consumer, error) {
	if err := checkConsumer(spec); err != nil {
		return nil, err
	}
	if err := s.exist(ctx, spec.Topology, spec.Queue); err != nil {
		return nil, err
	}
	on, leave, err := s.take(ctx, spec.Connection)
	if err != nil {
		return nil, err
	}
	o := &s.options
	c := &consumer{
		spec: spec, link: on, leave: leave, log: s.env.Log, handle: handle, notice: drivers.NewNotice(spec.OnClosed),
		visibility: o.times.visibility, poll: o.times.poll, patience: o.times.confirm,
		sorted: o.Order == orderInsertion,
		from: on.client.Database(o.Database).Collection(collectionName(spec.Topology, spec.Subscription, spec.Queue),
			client.Collection().SetWriteConcern(o.writeConcern(spec.Topology.Persistent))),
		stop: make(chan struct{}), broken: make(chan struct{}), ended: make(chan struct{}),
	}
	c.delivery[0].Stream = uint32(spec.Queue)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.watch = requests.NewWatchdog(c.patience, func() {
		c.link.Broke(fmt.Errorf("no answer from %s for %v", c.link.address, c.patience))
		c.cancel()
	})
	on.Join(c)
	go c.run()
	return c, nil
}

func checkConsumer(spec drivers.ConsumerSpec) error {
	switch spec.Ack {
	case drivers.AckEach, drivers.AckEvery, drivers.AckInterval, drivers.AckAutomatic:
	default:
		return fmt.Errorf("acknowledgement %q: %w", spec.Ack, drivers.ErrUnsupported)
	}
	switch {
	case spec.Batch < 1:
		return fmt.Errorf("a receive batch of %d: it must be 1 or more", spec.Batch)
	case spec.Prefetch < 0:
		return fmt.Errorf("a prefetch of %d: it must be 0 (unlimited) or more", spec.Prefetch)
	case spec.Ack == drivers.AckEvery && spec.AckEvery < 1:
		return fmt.Errorf("acknowledge every %d messages: it must be 1 or more", spec.AckEvery)
	case spec.Ack == drivers.AckInterval && spec.AckInterval <= 0:
		return fmt.Errorf("acknowledge every %v: it must be more than 0", spec.AckInterval)
	case spec.Subscription < 0 || spec.Subscription >= spec.Topology.Subscriptions:
		return fmt.Errorf("subscription %d of %d", spec.Subscription, spec.Topology.Subscriptions)
	}
	return nil
}

// Broke ends the consumer because its link broke. Without it, the library would continue on another connection.
func (c *consumer) Broke(cause error) {
	c.break1.Do(func() { close(c.broken) })
	c.cancel()
	c.notice.Broke(fmt.Errorf("%w: %w", drivers.ErrClosed, cause))
}

// Abandon ends the consumer because its session is closed.
func (c *consumer) Abandon() {
	c.notice.End()
	c.break1.Do(func() { close(c.broken) })
	c.cancel()
}

// over reports whether no more messages may be claimed.
func (c *consumer) over() bool {
	select {
	case <-c.stop:
		return true
	case <-c.broken:
		return true
	default:
		return false
	}
}

// run claims and delivers until the consumer is closed or the link breaks.
func (c *consumer) run() {
	defer close(c.ended)
	if c.spec.Ack == drivers.AckInterval {
		c.due = time.Now().Add(c.spec.AckInterval)
	}
	for !c.over() {
		if err := c.step(); err != nil {
			if refused(err) {
				c.pause(refusedPause) // otherwise a consumer that reconnects would be rejected in a loop
			}
			c.link.Broke(err)
			return
		}
	}
}

// step acknowledges if it is due, and claims and delivers one message if there is one and the prefetch allows it.
func (c *consumer) step() error {
	now := time.Now()
	if !c.due.IsZero() && !now.Before(c.due) {
		if err := c.acknowledge(); err != nil {
			return err
		}
		c.due = now.Add(c.spec.AckInterval)
	}
	if c.full() {
		c.pause(c.due.Sub(now))
		return nil
	}
	m, found, err := c.claim(now)
	if err != nil {
		return fmt.Errorf("claim from %s at %s: %w", c.from.Name(), c.link.address, err)
	}
	if !found {
		c.pause(c.poll)
		return nil
	}
	return c.deliver(m)
}

// full reports whether the prefetch is used up. That happens only with AckInterval, since the other modes acknowledge
// before.
func (c *consumer) full() bool {
	return c.spec.Prefetch > 0 && len(c.unacked) >= c.spec.Prefetch
}

// pause waits for d, or until acknowledgements are due or the consumer ends.
func (c *consumer) pause(d time.Duration) {
	if !c.due.IsZero() {
		d = min(d, time.Until(c.due))
	}
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.stop:
	case <-c.broken:
	}
}

// lease is a claimed message and the time that the claim set. The claim is valid while the document has this time.
type lease struct {
	claimed
	until bson.DateTime
}

// claim claims one message that no consumer has claimed, or whose claim has expired.
func (c *consumer) claim(now time.Time) (lease, bool, error) {
	l := lease{until: bson.NewDateTimeFromTime(now.Add(c.visibility))}
	filter := bson.D{{Key: fieldAt, Value: bson.D{{Key: "$lte", Value: bson.NewDateTimeFromTime(now)}}}}
	c.watch.Begin()
	var answer *mongo.SingleResult
	if c.spec.Ack == drivers.AckAutomatic {
		o := client.FindOneAndDelete()
		if c.sorted {
			o.SetSort(inOrder)
		}
		answer = c.from.FindOneAndDelete(c.ctx, filter, o)
	} else {
		o := client.FindOneAndUpdate()
		if c.sorted {
			o.SetSort(inOrder)
		}
		answer = c.from.FindOneAndUpdate(c.ctx, filter, bson.D{
			{Key: "$set", Value: bson.D{{Key: fieldAt, Value: l.until}}},
			{Key: "$inc", Value: bson.D{{Key: fieldCount, Value: 1}}},
		}, o)
	}
	c.watch.End()
	raw, err := answer.Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return l, false, nil
	}
	if err != nil {
		return l, false, err
	}
	l.claimed, err = readMessage(raw)
	return l, err == nil, err
}

// deliver passes one message to the handler and settles it. After Close, it returns the message to the queue instead.
func (c *consumer) deliver(l lease) error {
	automatic := c.spec.Ack == drivers.AckAutomatic
	select {
	case <-c.stop:
		if !automatic {
			return c.giveBack(l, -1)
		}
	default:
	}
	d := &c.delivery[0]
	d.Body, d.Redelivered = l.body, drivers.No
	if l.count > 0 {
		d.Redelivered = drivers.Yes
	}
	err := c.handle(c.delivery[:])
	d.Body = nil
	switch {
	case automatic:
		return nil
	case err != nil:
		return c.giveBack(l, 0)
	}
	c.unacked = append(c.unacked, l.id)
	if c.spec.Ack == drivers.AckEach || (c.spec.Ack == drivers.AckEvery &&
		(len(c.unacked) >= c.spec.AckEvery || c.full())) {
		return c.acknowledge()
	}
	return nil
}

// Close waits for the handler and acknowledges the messages that it accepted.
func (c *consumer) Close() error {
	c.once.Do(func() {
		c.notice.End()
		close(c.stop)
		hard := time.AfterFunc(grace, c.cancel)
		<-c.ended
		hard.Stop()
		c.cancel()
		if c.link.Err() == nil {
			c.finish()
		}
		c.watch.Close()
		c.link.Part(c)
		c.leave()
	})
	return nil
}
