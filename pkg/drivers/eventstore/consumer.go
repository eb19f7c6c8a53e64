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
	name    string // name under which the server lists the consumer
	spec    drivers.ConsumerSpec
	link    *link
	leave   func()
	handle  drivers.Handler
	sub     *esdb.PersistentSubscription
	cancel  context.CancelFunc // ends the subscription
	inbox   chan *esdb.EventAppeared

	batch     []drivers.Delivery
	events    []*esdb.ResolvedEvent // events of batch
	unacked   []*esdb.ResolvedEvent // accepted, to be acknowledged every n or at an interval
	answered  int64                 // number of acknowledged and rejected events
	answering atomic.Int64          // start of sending the current answer, on the clock of start; 0: none

	notice    *drivers.Notice
	abandoned atomic.Bool
	stop      chan struct{}
	lost      chan struct{} // closed when receive, and with it the subscription, has ended
	ran       chan struct{} // closed when run has ended
	once      sync.Once
}

// Consumer joins the group of its subscription and queue. Setup created it, so no message is missed.
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
		return fmt.Errorf("acknowledgement %q: persistent subscriptions support explicit ones only: %w", spec.Ack,
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

// subscribe joins the group. ctx limits the joining only, not the subscription.
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

// receive puts the events that the server sends into the inbox, until the subscription ends. The server sends no more
// than the prefetch, and events whose answers are overdue.
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

// run delivers and answers events until the consumer is closed or the subscription ends.
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
		case <-c.stop: // takes precedence over the inbox
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

// pass passes an event to the handler, together with others that are in the inbox already, up to the batch size.
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

// Close waits for the handler and acknowledges the accepted events. The server delivers the others to another consumer.
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

// finish waits for the handler without a limit, and for the server up to grace.
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
	_ = c.sub.Close() // never returns an error
	<-c.lost
}

func (c *consumer) abandon() {
	c.abandoned.Store(true)
	_ = c.Close() // never returns an error
}
