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

	"example.org/lockstep/lockstep/pkg/drivers"
)

// franzClient is a client of franz-go, while it has publishers. The callback of a record receives the result.
type franzClient struct {
	conn      *conn
	key       clientKey
	library   *kgo.Client
	producers map[*franzProducer]struct{} // guarded by conn.mu
	unwatch   func() bool                 // the end of the connection does not end the client any more
	ending    sync.Once
}

// clientKey has the properties of publishers that share a client.
type clientKey struct {
	mode  drivers.Mode
	keyed bool
}

// held is the linger time if batches are flushed explicitly. It is the maximum that franz-go allows.
const held = time.Minute

// franz gives o the client for publishers like that of the spec.
func (c *conn) franz(o *franzProducer, spec drivers.PublisherSpec) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := clientKey{spec.Mode, spec.Keyed}
	f := c.clients[key]
	if f == nil {
		var err error
		if f, err = c.newFranz(key); err != nil {
			return err
		}
		c.clients[key] = f
		f.unwatch = context.AfterFunc(c.ctx, f.abort)
	}
	o.client = f
	f.producers[o] = struct{}{}
	return nil
}

func (c *conn) newFranz(key clientKey) (*franzClient, error) {
	o := &c.session.options
	f := &franzClient{conn: c, key: key, producers: map[*franzProducer]struct{}{}}
	acks, linger := o.acksFor(key.mode.Confirmed()), o.Linger.Std()
	switch {
	case key.mode == drivers.ConfirmBatch: // the engine flushes at the end of each batch
		linger = held
	case key.mode == drivers.ConfirmEach || key.mode.PerMessage():
		linger = 0
	}
	options := append(c.session.franzOptions(clientID),
		kgo.Dialer(c.dial), kgo.ConnIdleTimeout(idle), kgo.MetadataMaxAge(signOfLife),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RecordPartitioner(partitioner(key.keyed)),
		kgo.ProducerLinger(linger), kgo.ProducerBatchMaxBytes(int32(o.BatchBytes)),
		kgo.MaxBufferedRecords(math.MaxInt32),
		kgo.ProducerBatchCompression(compressions[o.Compression].franz), kgo.RequiredAcks(franzAcks(acks)),
	)
	if o.persists() {
		options = append(options, kgo.WithHooks((*retryHook)(c)))
	} else {
		// Without AllowIdempotentProduceCancellation, a request without an answer is made again, whatever the limits.
		options = append(options, kgo.RecordRetries(0), kgo.ProduceRequestTimeout(o.ConfirmTimeout.Std()),
			kgo.RecordDeliveryTimeout(o.ConfirmTimeout.Std()+linger),
			kgo.RequestTimeoutOverhead(time.Second), kgo.RetryTimeout(o.ConfirmTimeout.Std()),
			kgo.AllowIdempotentProduceCancellation())
	}
	if !o.idempotent(acks) {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(o.InFlight))
	}
	var err error
	if f.library, err = kgo.NewClient(options...); err != nil {
		return nil, fmt.Errorf("make a client of franz-go: %w", err)
	}
	return f, nil
}

// retryHook counts the produce requests whose connection broke before the response. The library makes them again.
type retryHook conn

const produceKey = 0 // of requests in Kafka's protocol

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (h *retryHook) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == produceKey && e2e.Err() != nil && !h.over.Load() {
		h.session.env.Retried(1)
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
func (f *franzClient) abort() {
	f.ending.Do(func() {
		f.conn.mu.Lock()
		for o := range f.producers {
			o.shut()
		}
		f.conn.mu.Unlock()
		f.library.Close()
	})
}

// leave removes a publisher. The last one closes the client, which must not know a topic when Setup creates it again.
func (f *franzClient) leave(o *franzProducer) {
	f.conn.mu.Lock()
	delete(f.producers, o)
	last := len(f.producers) == 0
	if last && f.conn.clients[f.key] == f {
		delete(f.conn.clients, f.key)
	}
	f.conn.mu.Unlock()
	if last {
		f.unwatch()
		f.abort()
	}
}

// franzProducer makes the library load the topic's metadata. Unless the publisher is for a single message, it also
// waits for answers from the partitions' leaders.
func (c *conn) franzProducer(ctx context.Context, spec drivers.PublisherSpec) (producer, error) {
	o := &franzProducer{topic: topicName(spec.Topology, spec.Queue), onConfirms: spec.OnConfirms,
		confirms: spec.Mode.Confirmed(), keyed: spec.Keyed,
		lingers: spec.Mode == drivers.ConfirmBatch || c.session.options.Linger > 0 &&
			spec.Mode != drivers.ConfirmEach && !spec.Mode.PerMessage(),
		emptied: make(chan struct{}, 1)}
	o.quota = newSendQuota(c, spec, o.flush)
	err := c.franz(o, spec)
	if err != nil || spec.Mode.PerMessage() {
		return o, err
	}
	if err = o.client.learn(ctx, o.topic); err == nil {
		err = o.client.knock(ctx, o.topic)
	}
	if err != nil {
		o.client.leave(o)
	}
	return o, err
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
func (f *franzClient) learn(ctx context.Context, topic string) error {
	refused := make(chan error, 1)
	f.library.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: nowhere},
		func(_ *kgo.Record, err error) { refused <- err })
	var err error
	select {
	case err = <-refused:
		if !errors.As(err, new(*kerr.Error)) && !errors.Is(err, kgo.ErrClientClosed) {
			return nil
		}
	case <-ctx.Done():
		err = ctx.Err()
	case <-f.conn.ctx.Done():
		err = f.conn.why()
	}
	return fmt.Errorf("request the metadata of topic %s: %w", topic, err)
}

// knock requests the end of the log from every leader.
func (f *franzClient) knock(ctx context.Context, topic string) error {
	ends, err := query(ctx, func(ctx context.Context) (kadm.ListedOffsets, error) {
		return kadm.NewClient(f.library).ListEndOffsets(ctx, topic)
	})
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("query the leaders of topic %s: %w", topic, err)
	}
	return nil
}
