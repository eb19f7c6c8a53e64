package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
)

// franzClient is a client of franz-go. The callback of a record receives the result.
type franzClient struct {
	session *session
	link    *link
	library *kgo.Client
	topic   string

	mu        sync.Mutex
	producers map[*franzProducer]struct{}
	ending    sync.Once
}

// held is the linger time if batches are flushed explicitly. It is the maximum that franz-go allows.
const held = time.Minute

func (s *session) newFranzClient(_ context.Context, l *link, spec legacy.PublisherSpec) (client, error) {
	o := &s.options
	c := &franzClient{session: s, link: l, topic: topicName(spec.Topology, spec.Queue),
		producers: map[*franzProducer]struct{}{}}
	acks, linger := o.acksFor(spec.Mode.Confirmed()), o.Linger.Std()
	switch {
	case spec.Mode == drivers.ConfirmBatch: // the engine flushes at the end of each batch
		linger = held
	case spec.Mode == drivers.ConfirmEach || perMessage(spec.Mode):
		linger = 0
	}
	options := append(s.franzOptions(clientID),
		kgo.Dialer(l.dial), kgo.ConnIdleTimeout(idle), kgo.MetadataMaxAge(signOfLife),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.DefaultProduceTopicAlways(), kgo.DefaultProduceTopic(c.topic),
		kgo.RecordPartitioner(partitioner(spec.Keyed)),
		kgo.ProducerLinger(linger), kgo.ProducerBatchMaxBytes(int32(o.BatchBytes)),
		kgo.MaxBufferedRecords(math.MaxInt32),
		kgo.ProducerBatchCompression(compressions[o.Compression].franz), kgo.RequiredAcks(franzAcks(acks)),
	)
	if o.persists() {
		options = append(options, kgo.WithHooks((*retryHook)(l)))
	} else {
		options = append(options, kgo.RecordRetries(0), kgo.ProduceRequestTimeout(o.ConfirmTimeout.Std()),
			kgo.RecordDeliveryTimeout(o.ConfirmTimeout.Std()+linger),
			kgo.RequestTimeoutOverhead(time.Second), kgo.RetryTimeout(o.ConfirmTimeout.Std()))
	}
	if !o.idempotent(acks) {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(o.InFlight))
	}
	var err error
	if c.library, err = kgo.NewClient(options...); err != nil {
		return nil, fmt.Errorf("make a client of franz-go: %w", err)
	}
	l.watch(c, func(error) { go c.abort() })
	return c, nil
}

// retryHook counts the produce requests whose connection broke before the response. The library makes them again.
type retryHook link

const produceKey = 0 // of requests in Kafka's protocol

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (h *retryHook) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if l := (*link)(h); key == produceKey && e2e.Err() != nil && !l.over.Load() && l.session.env.Retried != nil {
		l.session.env.Retried(1)
	}
}

func franzAcks(acks acks) kgo.Acks {
	switch acks {
	case 0:
		return kgo.NoAck()
	case 1:
		return kgo.LeaderAck()
	}
	return kgo.AllISRAcks()
}

// abort closes the library's client, which settles all records. No record may be passed to the client afterwards,
// because it would never settle it.
func (c *franzClient) abort() {
	c.ending.Do(func() {
		c.mu.Lock()
		for o := range c.producers {
			o.shut()
		}
		c.mu.Unlock()
		c.library.Close()
	})
}

func (c *franzClient) close() {
	c.link.close()
	c.abort()
}

// producer makes the library load the topic's metadata. Unless the publisher is for a single message, it also waits for
// answers from the partitions' leaders.
func (c *franzClient) producer(ctx context.Context, spec legacy.PublisherSpec) (producer, error) {
	if !perMessage(spec.Mode) {
		if err := c.learn(ctx); err != nil {
			return nil, err
		}
		if err := c.knock(ctx); err != nil {
			return nil, err
		}
	}
	o := &franzProducer{client: c, onConfirms: spec.OnConfirms, confirms: spec.Mode.Confirmed(), keyed: spec.Keyed,
		lingers: spec.Mode == drivers.ConfirmBatch || c.session.options.Linger > 0 &&
			spec.Mode != drivers.ConfirmEach && !perMessage(spec.Mode),
		emptied: make(chan struct{}, 1)}
	o.room = newRoom(!spec.Mode.Confirmed(), spec.Waiting, o.flush)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.producers[o] = struct{}{}
	return o, nil
}

func (c *franzClient) leaveProducer(o *franzProducer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.producers, o)
}

// nowhere is the partition of a record that the partitioners refuse.
const nowhere = -1

// partitioner selects the partition in the record, or with the default of the library: messages without keys stay on a
// partition for 64 KiB (KIP-794).
func partitioner(keyed bool) kgo.Partitioner {
	if keyed {
		return kgo.ManualPartitioner()
	}
	return unkeyed{kgo.UniformBytesPartitioner(64<<10, true, true, nil)}
}

// unkeyed is a partitioner that refuses records to nowhere.
type unkeyed struct{ kgo.Partitioner }

func (u unkeyed) ForTopic(topic string) kgo.TopicPartitioner {
	return unkeyedTopic{u.Partitioner.ForTopic(topic).(kgo.TopicBackupPartitioner)}
}

type unkeyedTopic struct{ kgo.TopicBackupPartitioner }

func (u unkeyedTopic) PartitionByBackup(r *kgo.Record, n int, backup kgo.TopicBackupIter) int {
	if r.Partition == nowhere {
		return nowhere
	}
	return u.TopicBackupPartitioner.PartitionByBackup(r, n, backup)
}

// learn returns when the library has the metadata of the topic. The library loads it for topics of records, and neither
// lingers nor flushes before. So learn produces a record that is never sent.
func (c *franzClient) learn(ctx context.Context) error {
	refused := make(chan error, 1)
	c.library.Produce(context.Background(), &kgo.Record{Partition: nowhere},
		func(_ *kgo.Record, err error) { refused <- err })
	select {
	case err := <-refused:
		var reported *kerr.Error
		if errors.As(err, &reported) || errors.Is(err, kgo.ErrClientClosed) {
			return fmt.Errorf("request the metadata of topic %s: %w", c.topic, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("request the metadata of topic %s: %w", c.topic, ctx.Err())
	}
}

// knock requests the end of the log from every leader.
func (c *franzClient) knock(ctx context.Context) error {
	ends, err := query(ctx, func(ctx context.Context) (kadm.ListedOffsets, error) {
		return kadm.NewClient(c.library).ListEndOffsets(ctx, c.topic)
	})
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("query the leaders of topic %s: %w", c.topic, err)
	}
	return nil
}
