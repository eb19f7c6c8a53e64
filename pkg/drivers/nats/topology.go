package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// Each queue is a stream of its own, so that it has its own leader and its own order. Its bindings are subjects. Each
// subscription to it is a durable consumer, which Setup creates, so that no later message is missed. With interest
// retention, which is the default, a message is removed when all subscriptions have acknowledged it. The names contain
// "_", which a topology's name cannot contain.

// pollInterval is the interval at which changes are polled until they have taken effect.
const pollInterval = 10 * time.Millisecond

func streamName(t drivers.Topology, queue int) string {
	if t.Existing != "" {
		return drivers.QueueName(t.Existing, queue)
	}
	return t.Name + "_q" + strconv.Itoa(queue)
}

func subject(t drivers.Topology, queue, key int) string {
	return t.Name + "_q" + strconv.Itoa(queue) + ".k" + strconv.Itoa(key)
}

func durableName(subscription int) string { return "s" + strconv.Itoa(subscription) }

// automaticName and allName are the names of the durable consumers without acknowledgements, and with acknowledgements
// that include all earlier messages. They need their own names, because the acknowledgement policy of a consumer cannot
// be changed.
func automaticName(subscription int) string { return durableName(subscription) + "_automatic" }
func allName(subscription int) string       { return durableName(subscription) + "_all" }

func (s *session) streamConfig(t drivers.Topology, queue int) jetstream.StreamConfig {
	o := &s.options
	c := jetstream.StreamConfig{
		Name: streamName(t, queue), Subjects: []string{streamName(t, queue) + ".*"},
		Retention: jetstream.InterestPolicy, Discard: jetstream.DiscardNew,
		Storage: o.storage(t.Persistent), Replicas: o.Replicas, MaxBytes: -1, MaxMsgs: -1, MaxConsumers: -1,
	}
	if o.MaxBytes > 0 {
		c.MaxBytes = o.MaxBytes
	}
	if o.MaxMessages > 0 {
		c.MaxMsgs = o.MaxMessages
	}
	switch {
	case t.Consumers == 0 || o.Retention == retentionLimits:
		c.Retention = jetstream.LimitsPolicy
	case o.Retention == retentionWorkQueue:
		c.Retention = jetstream.WorkQueuePolicy
	}
	if t.Consumers == 0 && !o.bounded() {
		c.MaxBytes = unconsumedBytes
	}
	if o.discardsOld(t.Consumers) {
		c.Discard = jetstream.DiscardOld
	}
	return c
}

// consumerConfig sets no limits in the server: each client enforces the prefetch by its requests. Several bindings are
// one wildcard: a list of subjects would cost the server a search for each message.
func (s *session) consumerConfig(t drivers.Topology, queue, subscription int) jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{
		Durable: durableName(subscription), AckPolicy: jetstream.AckExplicitPolicy, AckWait: s.options.AckWait.Std(),
		DeliverPolicy: jetstream.DeliverAllPolicy, MaxAckPending: -1, MaxDeliver: -1, MaxWaiting: 1 << 14,
		MemoryStorage: !s.options.file(t.Persistent),
	}
	if t.Bindings > 1 {
		c.FilterSubject = streamName(t, queue) + ".*"
	}
	return c
}

// Setup creates streams and consumers. Existing streams are emptied.
func (s *session) Setup(ctx context.Context, t drivers.Topology) error {
	js, err := s.management(ctx)
	if err != nil {
		return fmt.Errorf("set up %s: %w", t.Name, err)
	}
	s.task.Store(&t)
	err = kit.Each(t.Queues, func(queue int) error { return s.declareQueue(ctx, js, t, queue) })
	if err == nil && len(s.endpoints) > 1 {
		err = s.reachable(ctx, t)
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", t.Name, explain(err))
	}
	return nil
}

func (s *session) declareQueue(ctx context.Context, js jetstream.JetStream, t drivers.Topology, queue int) error {
	config := s.streamConfig(t, queue)
	stream, err := s.createStream(ctx, js, config)
	// it exists with other settings
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		if err = js.DeleteStream(ctx, config.Name); err == nil {
			stream, err = s.createStream(ctx, js, config)
		}
	}
	if err != nil {
		return fmt.Errorf("create stream %s: %w", config.Name, err)
	}
	if stream.CachedInfo().State.Msgs > 0 {
		if err := stream.Purge(ctx); err != nil {
			return fmt.Errorf("empty stream %s: %w", config.Name, err)
		}
	}
	for subscription := range t.Subscriptions {
		if t.Consumers == 0 {
			break
		}
		c, err := stream.CreateOrUpdateConsumer(ctx, s.consumerConfig(t, queue, subscription))
		if err != nil {
			return fmt.Errorf("create consumer %s of stream %s: %w", durableName(subscription), config.Name, err)
		}
		if err := settled(ctx, c); err != nil {
			return fmt.Errorf("create consumer %s of stream %s: %w", durableName(subscription), config.Name, err)
		}
	}
	return s.lead(ctx, js, t, queue, stream)
}

// maxCreates is how often a stream is created whose store the server could not create.
const maxCreates = 20

// createStream creates a stream. After an account's last stream was deleted, the server removes the account's folders
// in the background. A stream that is created meanwhile fails if its folder was about to be made there: it is created
// again.
func (s *session) createStream(ctx context.Context, js jetstream.JetStream,
	config jetstream.StreamConfig) (stream jetstream.Stream, err error) {
	creates := 0
	failed := kit.Poll(ctx, pollInterval, func() (bool, error) {
		creates++
		if stream, err = js.CreateStream(ctx, config); creates == maxCreates || !storeFailed(err) {
			return true, nil
		}
		s.env.Event(drivers.EventNotice, fmt.Sprintf("create stream %s again: %v", config.Name, err))
		return false, nil
	})
	return stream, errors.Join(err, failed)
}

// storeFailed reports whether the server could not create the store of a stream. The error's number is that of others,
// too.
func storeFailed(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.Description == "error creating store for stream"
}

// settled waits until all replicas have the consumer. A stream keeps no messages for a consumer that its replica does
// not have.
func settled(ctx context.Context, c jetstream.Consumer) error {
	return kit.Poll(ctx, pollInterval, func() (bool, error) {
		info := c.CachedInfo()
		all := info.Cluster == nil || info.Cluster.Leader != ""
		if info.Cluster != nil {
			for _, peer := range info.Cluster.Replicas {
				all = all && (peer.Current || peer.Offline)
			}
		}
		if all {
			return true, nil
		}
		_, err := c.Info(ctx)
		return err != nil, err
	})
}

// reachable waits until every reachable server can route to every stream, which takes a moment after creation. Its test
// messages are not stored, because they expect another stream.
func (s *session) reachable(ctx context.Context, t drivers.Topology) error {
	for _, e := range s.endpoints {
		c, err := s.dial(ctx, e, s.env.Dial)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			continue
		}
		err = kit.Each(t.Queues, func(queue int) error {
			return kit.Poll(ctx, pollInterval, func() (bool, error) {
				m := client.NewMsg(subject(t, queue, 0))
				m.Header.Set(jetstream.ExpectedStreamHeader, t.Name)
				_, err := c.nc.RequestMsgWithContext(ctx, m)
				return !errors.Is(err, client.ErrNoResponders), err
			})
		})
		_ = c.Close()
		if err != nil {
			return fmt.Errorf("reach streams through %s: %w", e.Address, err)
		}
	}
	return nil
}

// Verify requests the settings of existing streams and of their consumers, which must be pull consumers with explicit
// acknowledgements and the option ackWait.
func (s *session) Verify(ctx context.Context, t drivers.Topology) error {
	js, err := s.management(ctx)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	s.task.Store(&t)
	err = kit.Each(t.Queues, func(queue int) error {
		if err := s.exists(ctx, t, queue); err != nil {
			return err
		}
		stream, name := streamName(t, queue), drivers.QueueName(s.options.Consumer, queue)
		subject := drivers.QueueName(s.options.Subject, queue)
		passes := func(filter string) bool { return server.SubjectMatchesFilter(subject, filter) }
		found, err := js.Stream(ctx, stream)
		if err != nil {
			return fmt.Errorf("find stream %s: %w", stream, err)
		}
		if of := found.CachedInfo().Config.Subjects; subject != "" && !slices.ContainsFunc(of, passes) {
			return fmt.Errorf("stream %s: it stores the subjects %q, not %q; set subject to one of them", stream, of, subject)
		}
		if t.Consumers == 0 {
			return nil
		}
		c, err := js.Consumer(ctx, stream, name)
		if err != nil {
			return fmt.Errorf("find consumer %s of stream %s: %w", name, stream, err)
		}
		config, wait := c.CachedInfo().Config, s.options.AckWait.Std()
		if config.AckPolicy != jetstream.AckExplicitPolicy || config.DeliverSubject != "" || config.AckWait != wait {
			return fmt.Errorf("consumer %s of stream %s: it must be a pull consumer with explicit acknowledgements within %v "+
				"(acknowledgements %v, within %v, delivers to %q); set ackWait", name, stream, wait, config.AckPolicy,
				config.AckWait, config.DeliverSubject)
		}
		if config.MaxRequestBatch > 0 || config.MaxRequestExpires > 0 && config.MaxRequestExpires < pullExpires ||
			config.MaxDeliver > 0 || c.CachedInfo().Paused {
			return fmt.Errorf("consumer %s of stream %s: it has settings with which messages do not arrive (max_batch %d, max_expires %v, "+
				"max_deliver %d, paused %v); remove them", name, stream, config.MaxRequestBatch, config.MaxRequestExpires,
				config.MaxDeliver, c.CachedInfo().Paused)
		}
		filters := config.FilterSubjects
		if config.FilterSubject != "" {
			filters = []string{config.FilterSubject}
		}
		if subject != "" && len(filters) > 0 && !slices.ContainsFunc(filters, passes) {
			return fmt.Errorf("consumer %s of stream %s: its filter %q excludes the subject %q; set subject to one that it delivers",
				name, stream, filters, subject)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("verify: %w", explain(err))
	}
	return nil
}

// Teardown deletes the streams, and with them their consumers.
func (s *session) Teardown(ctx context.Context, t drivers.Topology) error {
	js, err := s.management(ctx)
	if err != nil {
		return fmt.Errorf("tear down %s: %w", t.Name, err)
	}
	err = kit.Each(t.Queues, func(queue int) error {
		err := js.DeleteStream(ctx, streamName(t, queue))
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("delete stream %s: %w", streamName(t, queue), err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("tear down %s: %w", t.Name, explain(err))
	}
	return nil
}

// explain adds a fix to the library's errors that lack one.
func explain(err error) error {
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return fmt.Errorf("%w: start the server with JetStream (nats-server -js), and allow the account to use it", err)
	}
	return err
}

// exists returns an error if the stream of a queue does not exist. It checks each queue once per session.
func (s *session) exists(ctx context.Context, t drivers.Topology, queue int) error {
	name := streamName(t, queue)
	s.mu.Lock()
	_, known := s.known[name]
	s.mu.Unlock()
	if known {
		return nil
	}
	js, err := s.management(ctx)
	if err != nil {
		return err
	}
	if _, err := js.Stream(ctx, name); err != nil {
		if s.options.Embedded && errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("find stream %s: %w (embedded: true is a server inside one process; give urls for a fleet of several)", name, err)
		}
		return fmt.Errorf("find stream %s: %w", name, explain(err))
	}
	s.mu.Lock()
	s.known[name] = struct{}{}
	s.mu.Unlock()
	return nil
}
