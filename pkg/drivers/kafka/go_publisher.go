package kafka

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/pkg/drivers"
)

// metadataEvery is how old what clients know of a cluster gets, at most. It is also how soon a link finds out that it broke while
// nothing was sent.
const metadataEvery = 4 * time.Second

// idle is after how long a library closes a connection that is not used: before brokers do, who by themselves wait for ten minutes.
const idle = 9 * time.Minute

// compression is what the libraries call one.
type compression struct {
	goes  protocol.Attributes
	franz kgo.CompressionCodec
}

var compressions = map[string]compression{
	"none":   {0, kgo.NoCompression()},
	"gzip":   {protocol.Attributes(compress.Gzip), kgo.GzipCompression()},
	"snappy": {protocol.Attributes(compress.Snappy), kgo.SnappyCompression()},
	"lz4":    {protocol.Attributes(compress.Lz4), kgo.Lz4Compression()},
	"zstd":   {protocol.Attributes(compress.Zstd), kgo.ZstdCompression()},
}

// goClient is kafka-go's transport: a pool that opens a connection to a broker for each request that is under way at the same time.
// Lockstep's outlets keep one request under way to each leader. The library's Writer is not used: it can be told to flush by time
// alone, costs about three times as much for each message, and says of a batch that failed only that it failed.
type goClient struct {
	session   *session
	link      *link
	transport *kafka.Transport
	address   net.Addr
	topic     string
}

func (s *session) newGoClient(_ context.Context, l *link, spec drivers.PublisherSpec) (client, error) {
	topic := topicName(spec.Topology, spec.Queue)
	return &goClient{
		session: s, link: l, address: kafka.TCP(s.options.Brokers...), topic: topic,
		transport: &kafka.Transport{
			Dial: l.dial, ClientID: clientID, SASL: s.sasl, MetadataTTL: metadataEvery, MetadataTopics: []string{topic},
			DialTimeout: s.options.ConfirmTimeout.std(), IdleTimeout: idle, Context: l.ctx,
		},
	}, nil
}

func (c *goClient) close() {
	c.link.close()
	c.transport.CloseIdleConnections()
}

// outlet asks who leads the partitions and, but for a single message, whether they are there.
func (c *goClient) outlet(ctx context.Context, spec drivers.PublisherSpec) (outlet, error) {
	leaders, err := c.leaders(ctx)
	if err != nil {
		return nil, err
	}
	if !perMessage(spec.Mode) {
		if err := c.knock(ctx); err != nil {
			return nil, err
		}
	}
	return newGoOutlet(c, spec, leaders), nil
}

// leaders lists the leader of each partition, from what the transport knows, by which it will find its way.
func (c *goClient) leaders(ctx context.Context) ([]int32, error) {
	response, err := c.transport.RoundTrip(ctx, c.address, &metadata.Request{TopicNames: []string{c.topic}})
	if err != nil {
		return nil, fmt.Errorf("ask %s for metadata: %w", c.address, err)
	}
	topics := response.(*metadata.Response).Topics
	if len(topics) != 1 {
		return nil, fmt.Errorf("ask %s for topic %s: it answers with %d topics", c.address, c.topic, len(topics))
	}
	if err := failure(topics[0].ErrorCode, nil); err != nil {
		return nil, fmt.Errorf("ask %s for topic %s: %w", c.address, c.topic, err)
	}
	leaders := make([]int32, c.session.options.Partitions)
	for i := range leaders {
		at := slices.IndexFunc(topics[0].Partitions, func(p metadata.ResponsePartition) bool { return int(p.PartitionIndex) == i })
		if at < 0 {
			return nil, fmt.Errorf("topic %s has %d partitions, not %d", c.topic, len(topics[0].Partitions), len(leaders))
		}
		p := topics[0].Partitions[at]
		if err := failure(p.ErrorCode, nil); err != nil || p.LeaderID < 0 {
			return nil, fmt.Errorf("partition %d of topic %s has no leader: %w", i, c.topic, err)
		}
		leaders[i] = p.LeaderID
	}
	return leaders, nil
}

// knock has every leader answer once.
func (c *goClient) knock(ctx context.Context) error {
	asked := make([]kafka.OffsetRequest, c.session.options.Partitions)
	for i := range asked {
		asked[i] = kafka.LastOffsetOf(i)
	}
	library := kafka.Client{Addr: c.address, Transport: c.transport}
	response, err := library.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{c.topic: asked}})
	if err != nil {
		return fmt.Errorf("ask the leaders of topic %s: %w", c.topic, err)
	}
	for _, p := range response.Topics[c.topic] {
		if p.Error != nil {
			return fmt.Errorf("ask the leader of partition %d of topic %s: %w", p.Partition, c.topic, p.Error)
		}
	}
	return nil
}

// produce sends batches whose partitions have one leader, and gives the error of each, in their order. The other error is that of all.
func (c *goClient) produce(acks int16, batches []*batch) ([]error, error) {
	timeout := c.session.options.ConfirmTimeout.std()
	ctx, cancel := context.WithTimeout(c.link.ctx, timeout)
	defer cancel()
	attributes := compressions[c.session.options.Compression].goes
	partitions := make([]produce.RequestPartition, len(batches))
	for i, b := range batches {
		partitions[i] = produce.RequestPartition{Partition: b.partition, RecordSet: protocol.RecordSet{Attributes: attributes, Records: b}}
	}
	answer, err := c.transport.RoundTrip(ctx, c.address, &produce.Request{
		Acks: acks, Timeout: int32(timeout.Milliseconds()), Topics: []produce.RequestTopic{{Topic: c.topic, Partitions: partitions}},
	})
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(batches))
	if acks == 0 {
		return errs, nil
	}
	response := answer.(*produce.Response)
	for i, b := range batches {
		if errs[i], err = answered(response, b.partition); err != nil {
			return nil, err
		}
	}
	return errs, nil
}

// answered finds what the broker says to a partition's batch. The other error is that it says nothing.
func answered(response *produce.Response, partition int32) (said, missing error) {
	for _, topic := range response.Topics {
		for i := range topic.Partitions {
			if p := &topic.Partitions[i]; p.Partition == partition {
				return failure(p.ErrorCode, &p.ErrorMessage), nil
			}
		}
	}
	return nil, fmt.Errorf("the answer to a request says nothing of partition %d", partition)
}
