package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
)

type consumer struct {
	spec   legacy.ConsumerSpec
	link   *link
	leave  func()
	handle legacy.Handler
	sub    *client.Subscription
	inbox  chan *client.Msg
	pull   *puller
	acks   string // prefix of the reply subjects of first deliveries; "": not known which are first ones
	all    bool   // an acknowledgement includes all earlier messages

	batch   []drivers.Delivery
	replies []string // reply subjects of batch
	unacked []string // replies of accepted messages that are not yet acknowledged

	notice          *legacy.Notice
	due, look, over atomic.Bool // set by attend for run: acknowledge, check the pull requests, end
	nudged          atomic.Bool // a nudge is in the inbox

	stop  chan struct{}
	left  chan struct{} // closed when run has ended
	ended chan struct{} // closed when attend has ended, too
	once  sync.Once
}

// Consumer connects to the durable consumer of its subscription and queue. Setup created it, so no message is missed.
func (s *session) Consumer(ctx context.Context, spec legacy.ConsumerSpec, handle legacy.Handler) (legacy.Consumer,
	error) {
	c, err := s.attach(ctx, spec, handle)
	if err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	return c, nil
}

func (s *session) attach(ctx context.Context, spec legacy.ConsumerSpec, handle legacy.Handler) (*consumer, error) {
	stream := streamName(spec.Topology, spec.Queue)
	durable, restored, err := s.durable(ctx, spec, stream)
	if err != nil {
		return nil, err
	}
	at, err := s.place(ctx, spec.Node, spec.Ordinal, stream)
	if err != nil {
		return nil, err
	}
	on, leave, err := s.join(ctx, at, spec.Node, spec.Connection)
	if err != nil {
		return nil, err
	}
	c := &consumer{
		spec: spec, link: on, leave: leave, handle: handle, notice: legacy.NewNotice(spec.OnClosed),
		stop: make(chan struct{}), left: make(chan struct{}), ended: make(chan struct{}),
		all: s.acknowledgesAll(spec),
	}
	if !restored {
		c.acks = "$JS.ACK." + stream + "." + durable + ".1."
	}
	inbox := client.NewInbox()
	c.pull = newPuller(on.nc, "$JS.API.CONSUMER.MSG.NEXT."+stream+"."+durable, inbox, spec.Prefetch)
	c.inbox = make(chan *client.Msg, c.pull.room())
	if c.sub, err = on.nc.ChanSubscribe(inbox, c.inbox); err == nil {
		err = c.pull.more()
	}
	if err != nil {
		leave()
		return nil, fmt.Errorf("query %s for messages: %w", on.address, err)
	}
	on.watch(c, c.notice.Broke)
	go c.run()
	return c, nil
}

// acknowledgesAll reports whether an acknowledgement of the consumer may include all earlier messages. That needs a
// consumer that is alone and rejects nothing. Work queues require explicit acknowledgements.
func (s *session) acknowledgesAll(spec legacy.ConsumerSpec) bool {
	t := spec.Topology
	return (spec.Ack == drivers.AckEvery || spec.Ack == drivers.AckInterval) && !spec.Nack &&
		t.Consumers == t.Queues*t.Subscriptions && s.options.Retention != retentionWorkQueue
}

// durable returns the name of the durable consumer. If acknowledgements are not explicit, it replaces the consumer that
// Setup created. restored states that the consumer may deliver messages again without marking them.
func (s *session) durable(ctx context.Context, spec legacy.ConsumerSpec, stream string) (name string, restored bool,
	err error) {
	first := durableName(spec.Subscription)
	if err := s.exists(ctx, spec.Topology, spec.Queue); err != nil {
		return "", false, err
	}
	config := s.consumerConfig(spec.Topology, spec.Queue, spec.Subscription)
	switch {
	case spec.Ack == drivers.AckAutomatic:
		config.Durable, config.AckPolicy = automaticName(spec.Subscription), jetstream.AckNonePolicy
		config.AckWait, config.MaxAckPending = 0, 0
	case s.acknowledgesAll(spec):
		config.Durable, config.AckPolicy = allName(spec.Subscription), jetstream.AckAllPolicy
	default:
		return first, false, nil
	}
	_, js, err := s.management(ctx)
	if err != nil {
		return "", false, err
	}
	exists := false
	if config.AckPolicy == jetstream.AckAllPolicy {
		exists, restored, err = restore(ctx, js, stream, config)
	}
	if err == nil && !exists {
		err = create(ctx, js, stream, config)
	}
	if err == nil {
		err = remove(ctx, js, stream, first)
	}
	return config.Durable, restored, err
}

func create(ctx context.Context, js jetstream.JetStream, stream string, config jetstream.ConsumerConfig) error {
	made, err := js.CreateOrUpdateConsumer(ctx, stream, config)
	if err == nil {
		err = settled(ctx, made)
	}
	if err != nil {
		return fmt.Errorf("create consumer %s of stream %s: %w", config.Durable, stream, explain(err))
	}
	return nil
}

func remove(ctx context.Context, js jetstream.JetStream, stream, name string) error {
	err := js.DeleteConsumer(ctx, stream, name)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("delete consumer %s of stream %s: %w", name, stream, err)
	}
	return nil
}

// restore creates a consumer again that has unacknowledged messages of an earlier link, so that it begins with them.
// Otherwise it would first deliver new messages, and their acknowledgement would include the earlier ones. Meanwhile
// another consumer makes the stream keep the messages. exists is false if there is no such consumer, restored if it has no
// such messages.
func restore(ctx context.Context, js jetstream.JetStream, stream string, config jetstream.ConsumerConfig) (exists,
	restored bool, err error) {
	old, err := js.Consumer(ctx, stream, config.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return false, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("find consumer %s of stream %s: %w", config.Durable, stream, err)
	}
	if old.CachedInfo().NumAckPending == 0 {
		return true, false, nil
	}
	config.DeliverPolicy = jetstream.DeliverByStartSequencePolicy
	config.OptStartSeq = old.CachedInfo().AckFloor.Stream + 1
	keeper := config
	keeper.Durable += "_keeper"
	for _, step := range []func() error{
		func() error { return create(ctx, js, stream, keeper) },
		func() error { return remove(ctx, js, stream, config.Durable) },
		func() error { return create(ctx, js, stream, config) },
		func() error { return remove(ctx, js, stream, keeper.Durable) },
	} {
		if err := step(); err != nil {
			return false, false, err
		}
	}
	return true, true, nil
}

// nudge and last are sent to a consumer's inbox and are not messages. nudge makes run check its flags. Nothing follows
// last.
var nudge, last = new(client.Msg), new(client.Msg)

// run receives until the consumer is closed or the link breaks. It waits only for its inbox, which costs less per
// message than a select over all events. attend handles the other events and sends a nudge to run.
func (c *consumer) run() {
	defer close(c.ended)
	attendEnded := make(chan struct{})
	go func() {
		defer close(attendEnded)
		c.attend()
	}()
	defer func() { <-attendEnded }()
	defer close(c.left)
	for !c.over.Load() {
		c.receive(<-c.inbox)
		if c.due.Load() && c.due.Swap(false) {
			c.acknowledge()
		}
		if c.look.Load() && c.look.Swap(false) && c.pull.check() != nil {
			return
		}
	}
}

// attend sets the flags of run, by time and when the link breaks.
func (c *consumer) attend() {
	watch := time.NewTicker(watchInterval)
	defer watch.Stop()
	var interval <-chan time.Time
	if c.spec.Ack == drivers.AckInterval {
		ticker := time.NewTicker(c.spec.AckInterval)
		defer ticker.Stop()
		interval = ticker.C
	}
	for !c.over.Load() {
		select {
		case <-interval:
			c.due.Store(true)
		case <-watch.C:
			c.look.Store(true)
		case <-c.stop:
			c.over.Store(true)
		case <-c.link.done:
			select {
			case c.inbox <- last:
				return
			case <-c.left:
				return
			case <-c.stop:
				c.over.Store(true)
			}
		case <-c.left:
			return
		}
		if c.nudged.Swap(true) {
			continue // run has not yet received the previous nudge
		}
		select {
		case c.inbox <- nudge:
		default: // the inbox is full: run sees the flags after its next message
			c.nudged.Store(false)
		}
	}
}

// receive passes a message to the handler, together with others that are in the inbox already, up to the batch size. It
// also handles nudge, last and status messages.
func (c *consumer) receive(m *client.Msg) {
	c.batch, c.replies = c.batch[:0], c.replies[:0]
	for {
		switch {
		case m == nudge:
			c.nudged.Store(false)
		case m == last:
			c.over.Store(true)
		case m.Header == nil || !c.pull.status(m):
			c.batch = append(c.batch, drivers.Delivery{Body: m.Data, Redelivered: c.redelivered(m.Reply),
				Stream: uint32(c.spec.Queue)})
			c.replies = append(c.replies, m.Reply)
		}
		if len(c.batch) >= c.spec.Batch {
			break
		}
		select {
		case m = <-c.inbox:
			continue
		default:
		}
		break
	}
	if n := len(c.batch); n > 0 {
		c.pull.received(n)
		c.settle(c.handle(c.batch))
	}
	_ = c.pull.more() // fails only if the link is broken, which OnClosed reports
}

// Node implements legacy.Located.
func (c *consumer) Node() string { return c.link.address }

// Close acknowledges accepted messages and returns unhandled ones to the broker.
func (c *consumer) Close() error {
	c.once.Do(func() {
		c.notice.End()
		close(c.stop)
		c.link.unwatch(c)
		<-c.ended
		if !c.link.broken() {
			c.link.guarded(c.giveBack)
		}
		c.leave()
	})
	return nil
}
