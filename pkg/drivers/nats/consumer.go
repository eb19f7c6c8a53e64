package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// consumer ends with its connection.
type consumer struct {
	drivers.Ended // of conn

	conn   *conn
	spec   drivers.ConsumerSpec
	handle drivers.Handler
	sub    *client.Subscription
	inbox  chan *client.Msg
	acks   string // prefix of the reply subjects of first deliveries; "": not known which are first ones
	all    bool   // an acknowledgement includes all earlier messages

	batch []drivers.Delivery // used only by run

	mu         sync.Mutex // guards pull and unanswered
	pull       *puller
	unanswered []string // reply subjects

	look, ending atomic.Bool // set by attend for run: check the pull requests, end
	nudged       atomic.Bool // a nudge is in the inbox

	stop              chan struct{} // closed by Stop
	left              chan struct{} // closed when run has ended
	ended             chan struct{} // closed when attend has ended, too
	stopping, closing sync.Once
}

// Consumer connects to the durable consumer of its subscription and queue. Setup created it, so no message is missed.
func (c *conn) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer, error) {
	stream := streamName(spec.Topology, spec.Queue)
	durable, restored, err := c.session.durable(ctx, spec, stream)
	if err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	n := &consumer{
		Ended: c, conn: c, spec: spec, handle: handle, all: c.session.acknowledgesAll(spec),
		stop: make(chan struct{}), left: make(chan struct{}), ended: make(chan struct{}),
	}
	if !restored {
		n.acks = "$JS.ACK." + stream + "." + durable + ".1."
	}
	inbox := client.NewInbox()
	n.pull = newPuller(c.nc, "$JS.API.CONSUMER.MSG.NEXT."+stream+"."+durable, inbox, spec.Prefetch)
	n.inbox = make(chan *client.Msg, n.pull.capacity())
	if n.sub, err = c.nc.ChanSubscribe(inbox, n.inbox); err == nil {
		err = n.pull.more()
	}
	if err != nil {
		return nil, fmt.Errorf("connect consumer: query %s for messages: %w", c.address, err)
	}
	go n.run()
	return n, nil
}

// acknowledgesAll reports whether an acknowledgement of the consumer may include all earlier messages. That needs a
// consumer that is alone and rejects nothing. Work queues require explicit acknowledgements.
func (s *session) acknowledgesAll(spec drivers.ConsumerSpec) bool {
	t := spec.Topology
	return (spec.Ack == drivers.AckEvery || spec.Ack == drivers.AckInterval) && !spec.Nack &&
		t.Consumers == t.Queues*t.Subscriptions && t.Existing == "" && s.options.Retention != retentionWorkQueue
}

// durable returns the name of the durable consumer. If acknowledgements are not explicit, it replaces the consumer that
// Setup created. restored states that the consumer may deliver messages again without marking them.
func (s *session) durable(ctx context.Context, spec drivers.ConsumerSpec, stream string) (name string, restored bool,
	err error) {
	first := durableName(spec.Subscription)
	if err := s.exists(ctx, spec.Topology, spec.Queue); err != nil {
		return "", false, err
	}
	if spec.Topology.Existing != "" {
		return s.existingConsumer(ctx, spec, stream)
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
	js, err := s.management(ctx)
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

// existingConsumer is durable for an existing stream. It returns an error if the consumer delivers fewer unacknowledged
// messages than the prefetches of all threads: then acknowledgements that wait for more messages would never be sent.
func (s *session) existingConsumer(ctx context.Context, spec drivers.ConsumerSpec, stream string) (name string,
	restored bool, err error) {
	name = drivers.QueueName(s.options.Consumer, spec.Queue)
	js, err := s.management(ctx)
	if err != nil {
		return "", false, err
	}
	c, err := js.Consumer(ctx, stream, name)
	if err != nil {
		return "", false, fmt.Errorf("find consumer %s of stream %s: %w", name, stream, err)
	}
	threads := (spec.Topology.Consumers + spec.Topology.Queues - 1) / spec.Topology.Queues
	if limit := c.CachedInfo().Config.MaxAckPending; limit > 0 && (spec.Prefetch == 0 || spec.Prefetch*threads > limit) {
		return "", false, fmt.Errorf("consumer %s of stream %s: at most %d messages are unacknowledged, and %d threads have a "+
			"prefetch of %d (0: unlimited); lower consumers.prefetch", name, stream, limit, threads, spec.Prefetch)
	}
	return name, false, nil
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

// restore creates a consumer again that has unacknowledged messages of an earlier consumer, so that it begins with
// them. Otherwise it would first deliver new messages, and their acknowledgement would include the earlier ones.
// Meanwhile another consumer makes the stream keep the messages. exists is false if there is no such consumer, restored
// if it has no such messages.
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

// run receives until the consumer is stopped or the connection ends. It waits only for its inbox, which costs less per
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
	for !c.ending.Load() {
		c.receive(<-c.inbox)
		if c.look.Load() && c.look.Swap(false) && c.check() != nil {
			return
		}
	}
}

func (c *consumer) check() (err error) {
	c.locked(func() { err = c.pull.check() })
	return err
}

// attend sets the flags of run, by time and when the connection ends.
func (c *consumer) attend() {
	watch := time.NewTicker(watchInterval)
	defer watch.Stop()
	for !c.ending.Load() {
		select {
		case <-watch.C:
			c.look.Store(true)
		case <-c.stop:
			c.ending.Store(true)
		case <-c.Done():
			select {
			case c.inbox <- last:
				return
			case <-c.left:
				return
			case <-c.stop:
				c.ending.Store(true)
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
	c.batch = c.batch[:0]
	c.mu.Lock()
	for {
		switch {
		case m == nudge:
			c.nudged.Store(false)
		case m == last:
			c.ending.Store(true)
		case m.Header == nil || !c.pull.status(m):
			c.batch = append(c.batch, drivers.Delivery{Body: m.Data, Redelivered: c.redelivered(m.Reply),
				Stream: uint32(c.spec.Queue)})
			if c.spec.Ack != drivers.AckAutomatic {
				c.unanswered = append(c.unanswered, m.Reply)
			}
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
	n := len(c.batch)
	c.pull.received(n)
	c.mu.Unlock()
	if n > 0 {
		c.handle(c.batch)
	}
	c.locked(func() {
		if c.pull.unlimited || c.spec.Ack == drivers.AckAutomatic {
			c.pull.done(n)
		}
		_ = c.pull.more() // fails only if the connection is broken
	})
}

// Stop ends the calls of the handler. It waits up to grace for a running call of the library: see locked.
func (c *consumer) Stop() {
	c.stopping.Do(func() { close(c.stop) })
	c.locked(func() {})
	<-c.ended
}

// These are the answers to deliveries. If an acknowledgement includes the earlier messages, only the last of several is
// answered. JetStream acknowledges the messages of an explicit consumer one by one.
var (
	ack = []byte("+ACK")
	nak = []byte("-NAK")
)

func (c *consumer) Ack(n int) {
	first := 0
	if c.all {
		first = max(0, n-1)
	}
	c.locked(func() {
		c.answer(c.unanswered[first:n], ack)
		c.forget(n)
	})
}

// Nack rejects messages. The server delivers them again.
func (c *consumer) Nack(n int) {
	c.locked(func() {
		c.answer(c.unanswered[:n], nak)
		c.forget(n)
	})
}

// locked calls do, which uses the library, with mu locked. A blocked write blocks every call of the library. From Stop
// on, locked therefore breaks the connection after grace, also while another call has locked mu. Stop ends a call that
// began before it, because it locks mu, too.
func (c *consumer) locked(do func()) {
	c.limited(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.limited(do) // Stop may have been called while this call waited for mu
	})
}

// limited calls do. From Stop on, it breaks the connection after grace.
func (c *consumer) limited(do func()) {
	select {
	case <-c.stop:
		c.conn.guarded(grace, do)
	default:
		do()
	}
}

func (c *consumer) answer(replies []string, with []byte) {
	for _, reply := range replies {
		_ = c.conn.nc.Publish(reply, with) // fails only if the connection is broken
	}
}

// forget removes answered messages, and requests as many others. The caller holds mu.
func (c *consumer) forget(n int) {
	c.unanswered = slices.Delete(c.unanswered, 0, n)
	if !c.pull.unlimited {
		c.pull.done(n)
	}
	_ = c.pull.more() // fails only if the connection is broken
}

// Close ends the subscription, and returns unanswered and unhandled messages to the broker.
func (c *consumer) Close() error {
	c.Stop()
	c.closing.Do(func() {
		if !c.conn.over() {
			c.conn.guarded(3*grace, c.giveBack) // it waits twice for up to grace
		}
	})
	return nil
}

// giveBack rejects unanswered and unhandled messages. No message arrives after the answer to the first flush, so none
// is missed.
func (c *consumer) giveBack() {
	_ = c.sub.Drain()
	_ = c.conn.nc.FlushTimeout(grace)
	if c.spec.Ack == drivers.AckAutomatic {
		return
	}
	c.answer(c.unanswered, nak)
	for {
		select {
		case m := <-c.inbox:
			if m.Reply != "" {
				c.answer([]string{m.Reply}, nak)
			}
			continue
		default:
		}
		break
	}
	_ = c.conn.nc.FlushTimeout(grace)
}

// redelivered reads the number of deliveries from a reply subject:
// $JS.ACK.[domain.account.]stream.consumer.deliveries.…
func (c *consumer) redelivered(reply string) drivers.Tristate {
	if c.acks != "" && strings.HasPrefix(reply, c.acks) {
		return drivers.No
	}
	parts := strings.Split(reply, ".")
	at := 4
	if len(parts) >= 11 {
		at = 6
	}
	if len(parts) <= at || parts[0] != "$JS" {
		return drivers.NotSaid
	}
	switch {
	case parts[at] != "1":
		return drivers.Yes
	case c.acks == "":
		return drivers.NotSaid
	}
	return drivers.No
}
