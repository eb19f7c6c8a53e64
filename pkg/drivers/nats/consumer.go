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
)

// What consumers answer deliveries with. JetStream acknowledges an explicit consumer's messages one by one: "every" and
// "interval" send the acknowledgements of many messages at one time.
var (
	ack = []byte("+ACK")
	nak = []byte("-NAK")
)

type consumer struct {
	spec   drivers.ConsumerSpec
	link   *link
	leave  func()
	handle drivers.Handler
	sub    *client.Subscription
	inbox  chan *client.Msg
	pull   *puller
	acks   string // how reply subjects of first deliveries begin

	batch   []drivers.Delivery
	replies []string // of the batch
	unacked []string // accepted, to be acknowledged every n or at an interval

	notice *drivers.Notice
	closed atomic.Bool
	stop   chan struct{}
	ended  chan struct{} // run is over
	once   sync.Once
}

// Consumer attaches to the durable consumer of its subscription and queue. That has been there since Setup, so that nothing is missed.
func (s *session) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer, error) {
	c, err := s.attach(ctx, spec, handle)
	if err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	return c, nil
}

func (s *session) attach(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (*consumer, error) {
	if err := checkConsumer(spec); err != nil {
		return nil, err
	}
	stream := streamName(spec.Topology, spec.Queue)
	durable, err := s.durable(ctx, spec, stream)
	if err != nil {
		return nil, err
	}
	at, err := s.place(ctx, spec.Node, stream)
	if err != nil {
		return nil, err
	}
	on, leave, err := s.join(ctx, at, spec.Node, spec.Connection)
	if err != nil {
		return nil, err
	}
	c := &consumer{
		spec: spec, link: on, leave: leave, handle: handle, notice: drivers.NewNotice(spec.OnClosed), stop: make(chan struct{}), ended: make(chan struct{}),
		acks: "$JS.ACK." + stream + "." + durable + ".1.",
	}
	inbox := client.NewInbox()
	c.pull = newPuller(on.nc, "$JS.API.CONSUMER.MSG.NEXT."+stream+"."+durable, inbox, spec.Prefetch)
	c.inbox = make(chan *client.Msg, c.pull.room())
	if c.sub, err = on.nc.ChanSubscribe(inbox, c.inbox); err == nil {
		err = c.pull.more()
	}
	if err != nil {
		leave()
		return nil, fmt.Errorf("ask %s for messages: %w", on.address, err)
	}
	on.watch(c, c.notice.Broke)
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
	case spec.Topology.Consumers == 0:
		return errors.New("the topology was declared for no consumers, so its streams keep nothing for them")
	}
	return checkTopology(spec.Topology)
}

// durable names the durable consumer. One that acknowledges by sending takes the place of the one that Setup made.
func (s *session) durable(ctx context.Context, spec drivers.ConsumerSpec, stream string) (string, error) {
	if err := s.exists(ctx, spec.Topology, spec.Queue); err != nil || spec.Ack != drivers.AckAutomatic {
		return durableName(spec.Subscription), err
	}
	_, js, err := s.management(ctx)
	if err != nil {
		return "", err
	}
	config := s.consumerConfig(spec.Topology, spec.Queue, spec.Subscription)
	config.Durable, config.AckPolicy = automaticName(spec.Subscription), jetstream.AckNonePolicy
	config.AckWait, config.MaxAckPending = 0, 0
	made, err := js.CreateOrUpdateConsumer(ctx, stream, config)
	if err == nil {
		err = settled(ctx, made)
	}
	if err != nil {
		return "", fmt.Errorf("create consumer %s of stream %s: %w", config.Durable, stream, explain(err))
	}
	err = js.DeleteConsumer(ctx, stream, durableName(spec.Subscription))
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return "", fmt.Errorf("delete consumer %s of stream %s: %w", durableName(spec.Subscription), stream, err)
	}
	return config.Durable, nil
}

// run receives until it is told to stop or the link breaks. What needs a look at the time waits for the queue to be empty, or, under load,
// for the ticker of acknowledgements.
func (c *consumer) run() {
	defer close(c.ended)
	watch := time.NewTicker(watchInterval)
	defer watch.Stop()
	var interval <-chan time.Time
	if c.spec.Ack == drivers.AckInterval {
		ticker := time.NewTicker(c.spec.AckInterval)
		defer ticker.Stop()
		interval = ticker.C
	}
	for !c.closed.Load() {
		var m *client.Msg
		select {
		case m = <-c.inbox:
		default:
			select {
			case m = <-c.inbox:
			case <-interval:
				c.acknowledge()
				continue
			case <-watch.C:
				if c.pull.check() != nil {
					return
				}
				continue
			case <-c.stop:
				return
			case <-c.link.done:
				return
			}
		}
		c.receive(m)
		if interval != nil {
			select {
			case <-interval:
				c.acknowledge()
			default:
			}
		}
	}
}

// receive passes on a message, and what else is there already up to the batch.
func (c *consumer) receive(m *client.Msg) {
	c.batch, c.replies = c.batch[:0], c.replies[:0]
	for {
		if m.Header == nil || !c.pull.status(m) {
			c.batch = append(c.batch, drivers.Delivery{Body: m.Data, Redelivered: c.redelivered(m.Reply), Stream: uint32(c.spec.Queue)})
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
	_ = c.pull.more() // fails only with the link, which says so itself
}

// settle answers for the batch that was handled.
func (c *consumer) settle(refused error) {
	if c.spec.Ack == drivers.AckAutomatic {
		c.pull.done(len(c.replies))
		return
	}
	if refused != nil {
		c.answer(c.replies, nak)
		return
	}
	switch c.spec.Ack {
	case drivers.AckEach:
		c.answer(c.replies, ack)
	case drivers.AckEvery:
		c.unacked = append(c.unacked, c.replies...)
		if len(c.unacked) >= c.spec.AckEvery || c.pull.full(len(c.unacked)) {
			c.acknowledge()
		}
	case drivers.AckInterval:
		c.unacked = append(c.unacked, c.replies...)
	}
	if c.pull.unlimited {
		c.pull.done(len(c.replies))
	}
}

// acknowledge answers for all that was accepted until now.
func (c *consumer) acknowledge() {
	c.answer(c.unacked, ack)
	c.unacked = c.unacked[:0]
	_ = c.pull.more()
}

func (c *consumer) answer(replies []string, with []byte) {
	for _, reply := range replies {
		_ = c.link.nc.Publish(reply, with) // fails only with the link
	}
	if !c.pull.unlimited {
		c.pull.done(len(replies))
	}
}

// Close acknowledges what was accepted and gives back what has come but was not handled.
func (c *consumer) Close() error {
	c.once.Do(func() {
		c.closed.Store(true)
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

// giveBack ends the subscription in an order that misses nothing under way: behind the answer to the flush nothing comes any more.
func (c *consumer) giveBack() {
	_ = c.sub.Drain()
	if c.spec.Ack != drivers.AckAutomatic {
		c.answer(c.unacked, ack)
	}
	_ = c.link.nc.FlushTimeout(grace)
	for {
		select {
		case m := <-c.inbox:
			if m.Reply != "" && c.spec.Ack != drivers.AckAutomatic {
				c.answer([]string{m.Reply}, nak)
			}
			continue
		default:
		}
		break
	}
	_ = c.link.nc.FlushTimeout(grace)
}
