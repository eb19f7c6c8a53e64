package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/pkg/drivers"
)

// franzClient is a client of franz-go. It makes one attempt per request. The callback of a record receives the result.
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

func (s *session) newFranzClient(_ context.Context, l *link, spec drivers.PublisherSpec) (client, error) {
	o := &s.options
	c := &franzClient{session: s, link: l, topic: topicName(spec.Topology, spec.Queue),
		producers: map[*franzProducer]struct{}{}}
	acks, linger := o.acksFor(spec.Mode.Confirmed()), o.Linger.std()
	switch {
	case holds(spec.Mode):
		linger = held
	case spec.Mode == drivers.ConfirmEach || perMessage(spec.Mode):
		linger = 0
	}
	options := append(s.franzOptions(clientID),
		kgo.Dialer(l.dial), kgo.ConnIdleTimeout(idle), kgo.MetadataMaxAge(signOfLife),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.DefaultProduceTopicAlways(), kgo.DefaultProduceTopic(c.topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordRetries(0), kgo.ProduceRequestTimeout(o.ConfirmTimeout.std()),
		kgo.RecordDeliveryTimeout(o.ConfirmTimeout.std()+linger),
		kgo.RequestTimeoutOverhead(time.Second), kgo.RetryTimeout(o.ConfirmTimeout.std()),
		kgo.ProducerLinger(linger), kgo.ProducerBatchMaxBytes(int32(o.BatchBytes)),
		kgo.MaxBufferedRecords(math.MaxInt32),
		kgo.ProducerBatchCompression(compressions[o.Compression].franz), kgo.RequiredAcks(franzAcks(acks)),
	)
	if !o.Idempotence || acks != acksAll {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(o.InFlight))
	}
	var err error
	if c.library, err = kgo.NewClient(options...); err != nil {
		return nil, fmt.Errorf("make a client of franz-go: %w", err)
	}
	l.watch(c, func(error) { go c.abort() })
	return c, nil
}

func franzAcks(acks int16) kgo.Acks {
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
func (c *franzClient) producer(ctx context.Context, spec drivers.PublisherSpec) (producer, error) {
	if !perMessage(spec.Mode) {
		if err := c.learn(ctx); err != nil {
			return nil, err
		}
		if err := c.knock(ctx); err != nil {
			return nil, err
		}
	}
	o := &franzProducer{client: c, tell: spec.OnConfirm, confirms: spec.Mode.Confirmed() && spec.OnConfirm != nil,
		lingers: holds(spec.Mode) || c.session.options.Linger > 0 && spec.Mode != drivers.ConfirmEach &&
			!perMessage(spec.Mode),
		room: newRoom(!spec.Mode.Confirmed(), spec.Waiting), emptied: make(chan struct{}, 1)}
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

// learn returns when the library has the metadata of the topic. The library loads it for topics of records, and neither
// lingers nor flushes before. So learn produces a record to a partition that does not exist, which is never sent.
func (c *franzClient) learn(ctx context.Context) error {
	refused := make(chan error, 1)
	c.library.Produce(context.Background(), &kgo.Record{Partition: -1},
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
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = c.topic
	for p := range c.session.options.Partitions {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = int32(p), -1
		topic.Partitions = append(topic.Partitions, partition)
	}
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, prompt{c.library})
	if err != nil {
		return fmt.Errorf("query the leaders of topic %s: %w", c.topic, err)
	}
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("query the leader of partition %d of topic %s: %w", p.Partition, c.topic, err)
			}
		}
	}
	return nil
}
