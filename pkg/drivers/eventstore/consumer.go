package eventstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
	"google.golang.org/grpc/metadata"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// maxAnswered is the maximum number of events in one acknowledgement or rejection.
const maxAnswered = 2000

// consumer is a subscriber of a group. It can end before its connection: when the server drops the subscription.
type consumer struct {
	kit.State
	conn   *conn
	name   string // name under which the server lists the consumer
	stream string
	group  string
	spec   drivers.ConsumerSpec
	handle drivers.Handler
	sub    *kurrentdb.PersistentSubscription
	cancel context.CancelFunc // ends the subscription
	inbox  chan *kurrentdb.EventAppeared

	batch []drivers.Delivery // used only by run

	mu         sync.Mutex
	unanswered []*kurrentdb.ResolvedEvent // events that were passed to the handler

	answered  int64        // number of acknowledged and rejected events; used by Ack, Nack and Close
	answering atomic.Int64 // start of sending the current answer, on the clock of start; 0: none

	stop              chan struct{} // closed by Stop
	lost              chan struct{} // closed when receive, and with it the subscription, has ended
	ran               chan struct{} // closed when run has ended
	stopping, closing sync.Once
}

// Consumer joins the group of its subscription and queue. Setup created it, so no message is missed.
func (c *conn) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer, error) {
	c.session.task.Store(&spec.Topology)
	n := &consumer{
		conn: c, name: uuid.NewString(), stream: streamName(spec.Topology, spec.Queue),
		group: groupName(spec.Topology, spec.Subscription), spec: spec, handle: handle,
		inbox: make(chan *kurrentdb.EventAppeared, spec.Prefetch),
		stop:  make(chan struct{}), lost: make(chan struct{}), ran: make(chan struct{}),
	}
	if err := n.subscribe(ctx); err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	go n.receive()
	go n.run()
	return n, nil
}

// subscribe joins the group. ctx limits the joining only. The subscription also ends when the connection is cut or
// closed.
func (c *consumer) subscribe(ctx context.Context) error {
	own, cancel := context.WithCancel(metadata.AppendToOutgoingContext(c.conn.Context(), "connection-name", c.name))
	stop := context.AfterFunc(ctx, cancel)
	sub, err := c.conn.client.SubscribeToPersistentSubscription(own, c.stream, c.group,
		kurrentdb.SubscribeToPersistentSubscriptionOptions{BufferSize: uint32(c.spec.Prefetch)})
	if !stop() {
		err = fmt.Errorf("%w (over one connection EventStoreDB takes %d calls at a time, subscriptions included)",
			errors.Join(ctx.Err(), err), callsPerConnection)
	}
	if err != nil {
		cancel()
		if ctx.Err() == nil {
			err = c.conn.explain(ctx, err)
		}
		return fmt.Errorf("join persistent subscription %s to stream %s at %s: %w", c.group, c.stream, c.conn.address,
			err)
	}
	c.sub, c.cancel = sub, cancel
	return nil
}

// receive puts the events that the server sends into the inbox, until the subscription ends. The server sends no more
// than the prefetch, and events whose answers are overdue.
func (c *consumer) receive() {
	defer close(c.lost)
	for {
		e := c.sub.Recv()
		switch {
		case e.SubscriptionDropped != nil:
			c.EndWith(c.conn, fmt.Errorf("%s: subscription dropped: %w", c.conn.address, e.SubscriptionDropped.Error))
			return
		case e.EventAppeared == nil:
			continue
		}
		select {
		case c.inbox <- e.EventAppeared:
		case <-c.ran:
			return
		}
	}
}

// run passes events to the handler until the consumer is stopped or the subscription ends.
func (c *consumer) run() {
	defer close(c.ran)
	for {
		select {
		case <-c.stop: // takes precedence over the inbox
			return
		default:
		}
		select {
		case e := <-c.inbox:
			c.pass(e)
		case <-c.lost:
			return
		case <-c.stop:
			return
		}
	}
}

// pass passes an event to the handler, together with others that are in the inbox already, up to the batch size.
func (c *consumer) pass(e *kurrentdb.EventAppeared) {
	c.batch = c.batch[:0]
	c.mu.Lock()
	for e != nil {
		again := drivers.No
		if e.RetryCount > 0 {
			again = drivers.Yes
		}
		c.batch = append(c.batch, drivers.Delivery{Body: e.Event.Event.Data, Redelivered: again,
			Stream: uint32(c.spec.Queue), Last: e.RetryCount >= int(c.conn.session.options.MaxRetries)})
		c.unanswered = append(c.unanswered, e.Event)
		e = nil
		if len(c.batch) < c.spec.Batch {
			select {
			case e = <-c.inbox:
			default:
			}
		}
	}
	c.mu.Unlock()
	c.handle(c.batch)
}

// Ack acknowledges events. Errors of sending end the subscription, which receive reports.
func (c *consumer) Ack(count int) { c.answer(count, c.sub.Ack) }

// Nack rejects events. The server sends them again.
func (c *consumer) Nack(count int) {
	c.answer(count, func(events ...*kurrentdb.ResolvedEvent) error {
		return c.sub.Nack("refused", kurrentdb.NackActionRetry, events...)
	})
}

// start is the zero of the clock of answering.
var start = time.Now()

// answer sends the answers to the oldest unanswered events: each by a request of its own, or all by a list. From Stop
// on, it waits for the server up to grace.
func (c *consumer) answer(count int, send func(...*kurrentdb.ResolvedEvent) error) {
	size := maxAnswered
	if c.spec.Ack == drivers.AckEach {
		size = 1
	}
	c.answering.Store(int64(time.Since(start))) // before the check of ran: Stop checks them in the other order
	defer c.answering.Store(0)
	select {
	case <-c.ran:
		hard := time.AfterFunc(grace, c.cancel)
		defer hard.Stop()
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered += int64(count)
	for events := range slices.Chunk(c.unanswered[:count], size) {
		_ = send(events...)
	}
	c.unanswered = slices.Delete(c.unanswered, 0, count)
}

// Stop waits for the handler without a limit, and for a running answer up to grace.
func (c *consumer) Stop() {
	c.stopping.Do(func() { close(c.stop) })
	look := time.NewTicker(grace / 20)
	defer look.Stop()
	for ran := c.ran; ran != nil || c.answering.Load() > 0; {
		select {
		case <-ran:
			ran = nil
		case <-look.C:
			if since := c.answering.Load(); since > 0 && time.Since(start)-time.Duration(since) > grace {
				c.cancel()
			}
		}
	}
}

// Close ends the subscription. The server delivers the unanswered events to another consumer.
func (c *consumer) Close() error {
	c.Stop()
	c.closing.Do(func() {
		c.End()
		if c.answered > 0 && c.conn.Err() == nil {
			hard := time.AfterFunc(grace, c.cancel)
			c.awaitAnswers()
			hard.Stop()
		}
		_ = c.sub.Close() // never returns an error
		<-c.lost
		c.cancel()
	})
	return nil
}

// awaitAnswers waits until the server has processed all answers. The server does not confirm them, and closing the
// subscription may overtake them. But it reports how many events it has sent to a subscriber, and how many of those are
// unanswered.
func (c *consumer) awaitAnswers() {
	ctx, cancel := context.WithTimeout(c.conn.Context(), grace)
	defer cancel()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for wait := time.Millisecond; ; wait *= 2 {
		<-pause.C
		groups, err := c.conn.client.ListPersistentSubscriptionsForStream(ctx, c.stream,
			kurrentdb.ListPersistentSubscriptionsOptions{})
		if err != nil {
			_ = c.conn.verdict(ctx, err) // breaks the connection if necessary
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
