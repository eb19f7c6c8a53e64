package eventstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/google/uuid"
	"google.golang.org/grpc/metadata"

	"lockstep/pkg/drivers"
)

type consumer struct {
	session *session
	name    string // which the server lists it by
	spec    drivers.ConsumerSpec
	link    *link
	leave   func()
	handle  drivers.Handler
	sub     *esdb.PersistentSubscription
	cancel  context.CancelFunc // of the subscription
	inbox   chan *esdb.EventAppeared

	batch     []drivers.Delivery
	events    []*esdb.ResolvedEvent // of the batch
	unacked   []*esdb.ResolvedEvent // accepted, to be acknowledged every n or at an interval
	answered  int64                 // how many events were acknowledged or refused
	answering atomic.Int64          // since when an answer is being sent; 0: none is

	notice    *drivers.Notice
	abandoned atomic.Bool
	stop      chan struct{}
	lost      chan struct{} // receive is over, and with it the subscription
	ran       chan struct{} // run is over
	once      sync.Once
}

// Consumer joins the group of its subscription and queue. That has been there since Setup, so that nothing is missed.
func (s *session) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer,
	error) {
	c, err := s.consume(ctx, spec, handle)
	if err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	return c, nil
}

func (s *session) consume(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (*consumer, error) {
	if err := checkConsumer(spec); err != nil {
		return nil, err
	}
	if err := s.checkLeads(ctx, spec.Node); err != nil {
		return nil, err
	}
	on, leave, err := s.join(ctx, spec.Node, spec.Connection)
	if err != nil {
		return nil, err
	}
	c := &consumer{
		session: s, name: uuid.NewString(), spec: spec, link: on, leave: leave, handle: handle,
		notice: drivers.NewNotice(spec.OnClosed),
		inbox:  make(chan *esdb.EventAppeared, spec.Prefetch), stop: make(chan struct{}), lost: make(chan struct{}),
		ran: make(chan struct{}),
	}
	if err := c.subscribe(ctx); err != nil {
		leave()
		return nil, err
	}
	go c.receive()
	go c.run()
	if err := s.enrol(c, spec.Topology); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	on.watch(c, c.broke)
	return c, nil
}

func checkConsumer(spec drivers.ConsumerSpec) error {
	switch spec.Ack {
	case drivers.AckEach, drivers.AckEvery, drivers.AckInterval:
	default:
		return fmt.Errorf("acknowledgement %q: persistent subscriptions know explicit ones: %w", spec.Ack,
			drivers.ErrUnsupported)
	}
	switch {
	case spec.Prefetch < 1:
		return fmt.Errorf("a prefetch of %d: a subscriber has a buffer of a size: %w", spec.Prefetch,
			drivers.ErrUnsupported)
	case spec.Batch < 1:
		return fmt.Errorf("a receive batch of %d: it must be 1 or more", spec.Batch)
	case spec.Ack == drivers.AckEvery && spec.AckEvery < 1:
		return fmt.Errorf("acknowledge every %d messages: it must be 1 or more", spec.AckEvery)
	case spec.Ack == drivers.AckInterval && spec.AckInterval <= 0:
		return fmt.Errorf("acknowledge every %v: it must be more than 0", spec.AckInterval)
	case spec.Topology.Consumers == 0:
		return errors.New("the topology was declared for no consumers, so it has no persistent subscriptions")
	}
	return checkTopology(spec.Topology)
}

// subscribe joins the group. The subscription outlives ctx, which is for joining.
func (c *consumer) subscribe(ctx context.Context) error {
	stream, group := streamName(c.spec.Topology, c.spec.Queue), groupName(c.spec.Topology, c.spec.Subscription)
	own, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), "connection-name", c.name))
	stop := context.AfterFunc(ctx, cancel)
	sub, err := c.link.client.SubscribeToPersistentSubscription(own, stream, group,
		esdb.SubscribeToPersistentSubscriptionOptions{BufferSize: uint32(c.spec.Prefetch)})
	if !stop() {
		err = errors.Join(ctx.Err(), err)
		err = fmt.Errorf("%w (over one connection EventStoreDB takes %d calls at a time, subscriptions included)", err,
			callsPerConnection)
	}
	if err != nil {
		cancel()
		if ctx.Err() == nil {
			err = c.link.explain(err)
		}
		return fmt.Errorf("join persistent subscription %s to stream %s at %s: %w", group, stream, c.link.address, err)
	}
	c.sub, c.cancel = sub, cancel
	return nil
}

func (c *consumer) broke(cause error) { c.notice.Broke(fmt.Errorf("%w: %w", drivers.ErrClosed, cause)) }

// receive takes what the server pushes, which is no more than the prefetch and what timed out, until the subscription
// is over.
func (c *consumer) receive() {
	defer close(c.lost)
	for {
		e := c.sub.Recv()
		if e.SubscriptionDropped != nil {
			c.broke(fmt.Errorf("%s: subscription dropped: %w", c.link.address, e.SubscriptionDropped.Error))
			return
		}
		if e.EventAppeared == nil {
			continue
		}
		select {
		case c.inbox <- e.EventAppeared:
		case <-c.stop:
			return
		}
	}
}

// run hands deliveries over and answers for them until it is told to stop or the subscription is over.
func (c *consumer) run() {
	defer close(c.ran)
	var interval <-chan time.Time
	if c.spec.Ack == drivers.AckInterval {
		ticker := time.NewTicker(c.spec.AckInterval)
		defer ticker.Stop()
		interval = ticker.C
	}
	for {
		select {
		case <-c.stop: // before what is in the inbox
			return
		default:
		}
		select {
		case e := <-c.inbox:
			c.pass(e)
		case <-interval:
			c.acknowledge()
		case <-c.lost:
			return
		case <-c.stop:
			return
		}
	}
}

// pass hands over an event, and what else is there already, up to the batch.
func (c *consumer) pass(e *esdb.EventAppeared) {
	c.batch, c.events = c.batch[:0], c.events[:0]
	for {
		again := drivers.No
		if e.RetryCount > 0 {
			again = drivers.Yes
		}
		c.batch = append(c.batch, drivers.Delivery{Body: e.Event.Event.Data, Redelivered: again,
			Stream: uint32(c.spec.Queue)})
		c.events = append(c.events, e.Event)
		if len(c.batch) >= c.spec.Batch {
			break
		}
		select {
		case e = <-c.inbox:
			continue
		default:
		}
		break
	}
	c.settle(c.handle(c.batch))
}

// Close acknowledges what was accepted; the server gives what was not to somebody else.
func (c *consumer) Close() error {
	c.once.Do(func() {
		c.notice.End()
		c.link.unwatch(c)
		close(c.stop)
		c.finish()
		c.leave()
		c.session.discharge(c)
	})
	return nil
}

// finish waits for the handler, however long that takes; for the server it waits within the grace.
func (c *consumer) finish() {
	look := time.NewTicker(grace / 20)
	defer look.Stop()
	for running := true; running; {
		select {
		case <-c.ran:
			running = false
		case <-look.C:
			if since := c.answering.Load(); since > 0 && time.Since(start)-time.Duration(since) > grace {
				c.cancel()
			}
		}
	}
	if c.link.cause() == nil {
		hard := time.AfterFunc(grace, c.cancel)
		c.acknowledge()
		if c.answered > 0 && !c.abandoned.Load() {
			c.awaitAnswers()
		}
		hard.Stop()
	}
	_ = c.sub.Close() // never fails
	<-c.lost
}

func (c *consumer) abandon() {
	c.abandoned.Store(true)
	_ = c.Close() // never fails
}
