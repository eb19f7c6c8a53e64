package eventstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
	"google.golang.org/grpc/metadata"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
)

// maxAcknowledged is the maximum number of events in one acknowledgement.
const maxAcknowledged = 2000

type consumer struct {
	name          string // name under which the server lists the consumer
	stream, group string
	spec          legacy.ConsumerSpec
	link          *link
	leave         func()
	handle        legacy.Handler
	sub           *kurrentdb.PersistentSubscription
	cancel        context.CancelFunc // ends the subscription
	inbox         chan *kurrentdb.EventAppeared

	batch     []drivers.Delivery
	events    []*kurrentdb.ResolvedEvent // events of batch
	unacked   []*kurrentdb.ResolvedEvent // accepted, to be acknowledged every n or at an interval
	answered  int64                      // number of acknowledged and rejected events
	answering atomic.Int64               // start of sending the current answer, on the clock of start; 0: none

	notice *legacy.Notice
	stop   chan struct{}
	lost   chan struct{} // closed when receive, and with it the subscription, has ended
	ran    chan struct{} // closed when run has ended
	once   sync.Once
}

// Consumer joins the group of its subscription and queue. Setup created it, so no message is missed.
func (s *session) Consumer(ctx context.Context, spec legacy.ConsumerSpec, handle legacy.Handler) (legacy.Consumer,
	error) {
	c, err := s.consumer(ctx, spec, handle)
	if err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	return c, nil
}

func (s *session) consumer(ctx context.Context, spec legacy.ConsumerSpec, handle legacy.Handler) (*consumer, error) {
	on, leave, err := s.join(ctx, spec.Node, spec.Connection)
	if err != nil {
		return nil, err
	}
	s.used(spec.Topology)
	c := &consumer{
		name: uuid.NewString(), stream: streamName(spec.Topology, spec.Queue),
		group: groupName(spec.Topology, spec.Subscription), spec: spec, link: on, leave: leave, handle: handle,
		notice: legacy.NewNotice(spec.OnClosed), inbox: make(chan *kurrentdb.EventAppeared, spec.Prefetch),
		stop: make(chan struct{}), lost: make(chan struct{}), ran: make(chan struct{}),
	}
	if err := c.subscribe(ctx); err != nil {
		leave()
		return nil, err
	}
	go c.receive()
	go c.run()
	on.Join(c)
	return c, nil
}

// subscribe joins the group. ctx limits the joining only, not the subscription.
func (c *consumer) subscribe(ctx context.Context) error {
	own, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), "connection-name", c.name))
	stop := context.AfterFunc(ctx, cancel)
	sub, err := c.link.client.SubscribeToPersistentSubscription(own, c.stream, c.group,
		kurrentdb.SubscribeToPersistentSubscriptionOptions{BufferSize: uint32(c.spec.Prefetch)})
	if !stop() {
		err = fmt.Errorf("%w (over one connection EventStoreDB takes %d calls at a time, subscriptions included)",
			errors.Join(ctx.Err(), err), callsPerConnection)
	}
	if err != nil {
		cancel()
		if ctx.Err() == nil {
			err = c.link.explain(ctx, err)
		}
		return fmt.Errorf("join persistent subscription %s to stream %s at %s: %w", c.group, c.stream, c.link.address,
			err)
	}
	c.sub, c.cancel = sub, cancel
	return nil
}

// Broke reports the end of the link or of the subscription.
func (c *consumer) Broke(cause error) { c.notice.Broke(fmt.Errorf("%w: %w", drivers.ErrClosed, cause)) }

// Abandon prevents a call of OnClosed, for a session that is being closed.
func (c *consumer) Abandon() { c.notice.End() }

// receive puts the events that the server sends into the inbox, until the subscription ends. The server sends no more
// than the prefetch, and events whose answers are overdue.
func (c *consumer) receive() {
	defer close(c.lost)
	for {
		e := c.sub.Recv()
		if e.SubscriptionDropped != nil {
			c.Broke(fmt.Errorf("%s: subscription dropped: %w", c.link.address, e.SubscriptionDropped.Error))
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
func (c *consumer) pass(e *kurrentdb.EventAppeared) {
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

// settle answers the batch that was handled, or stores its events for a later acknowledgement. Errors of sending are
// ignored: they end the subscription, which receive reports.
func (c *consumer) settle(refused error) {
	c.answering.Store(int64(time.Since(start)))
	defer c.answering.Store(0)
	switch {
	case refused != nil:
		c.answered += int64(len(c.events))
		_ = c.sub.Nack("refused", kurrentdb.NackActionRetry, c.events...)
	case c.spec.Ack == drivers.AckEach:
		c.answered += int64(len(c.events))
		for i := range c.events {
			_ = c.sub.Ack(c.events[i : i+1]...)
		}
	default:
		c.unacked = append(c.unacked, c.events...)
		if c.spec.Ack == drivers.AckEvery && (len(c.unacked) >= c.spec.AckEvery || len(c.unacked) >= c.spec.Prefetch) {
			c.acknowledge()
		}
	}
}

// start is the zero of the clock of answering.
var start = time.Now()

// acknowledge acknowledges all events that were accepted and not yet acknowledged.
func (c *consumer) acknowledge() {
	for rest := c.unacked; len(rest) > 0; {
		n := min(len(rest), maxAcknowledged)
		c.answered += int64(n)
		_ = c.sub.Ack(rest[:n]...)
		rest = rest[n:]
	}
	clear(c.unacked)
	c.unacked = c.unacked[:0]
}

// Close waits for the handler and acknowledges the accepted events. The server delivers the others to another consumer.
func (c *consumer) Close() error {
	c.once.Do(func() {
		c.notice.End()
		close(c.stop)
		c.finish()
		c.link.Part(c)
		c.leave()
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
	if c.link.Err() == nil {
		hard := time.AfterFunc(grace, c.cancel)
		c.acknowledge()
		if c.answered > 0 {
			c.awaitAnswers()
		}
		hard.Stop()
	}
	_ = c.sub.Close() // never returns an error
	<-c.lost
}

// awaitAnswers waits until the server has processed all answers. The server does not confirm them, and closing the
// subscription may overtake them. But it reports how many events it has sent to a subscriber, and how many of those are
// unanswered.
func (c *consumer) awaitAnswers() {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for wait := time.Millisecond; ; wait *= 2 {
		<-pause.C
		groups, err := c.link.client.ListPersistentSubscriptionsForStream(ctx, c.stream,
			kurrentdb.ListPersistentSubscriptionsOptions{})
		if err != nil {
			_ = c.link.verdict(ctx, err) // breaks the link if necessary
			return
		}
		processed := true // also if the server does not list this subscriber
		for _, group := range groups {
			for _, one := range group.Connections {
				if one.ConnectionName == c.name {
					processed = one.TotalItemsProcessed-one.InFlightMessages >= c.answered
				}
			}
		}
		if processed {
			return
		}
		pause.Reset(wait)
	}
}
