package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/pkg/drivers"
)

const (
	// signOfLife is the interval at which the libraries send a request to a broker when there is nothing else to send.
	// So it is the time within which a link detects that it broke.
	signOfLife = 4 * time.Second
	// idle is the time after which franz-go closes unused connections. It is less than the brokers' default of ten
	// minutes.
	idle = 9 * time.Minute
)

// compression is a compression codec in both libraries.
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

// goClient publishes with kafka-go's protocol package, over one connection per leader. The library's Writer is not
// used: it flushes only by time, costs more per message, and sends each partition's batches in separate requests. The
// library's Transport is not used either: it may send requests without answers over several connections, so that they
// overtake each other.
type goClient struct {
	session *session
	link    *link
	topic   string
}

func (s *session) newGoClient(_ context.Context, l *link, spec drivers.PublisherSpec) (client, error) {
	return &goClient{session: s, link: l, topic: topicName(spec.Topology, spec.Queue)}, nil
}

func (c *goClient) close() { c.link.close() }

// producer requests the leaders of the partitions. Unless the publisher is for a single message, it also connects to
// them.
func (c *goClient) producer(ctx context.Context, spec drivers.PublisherSpec) (producer, error) {
	leaders, err := c.leaders(ctx)
	if err != nil {
		return nil, err
	}
	o := newGoProducer(c, spec, leaders)
	if !perMessage(spec.Mode) {
		for _, s := range o.all {
			if err := c.connect(ctx, s); err != nil {
				return nil, err
			}
		}
	}
	o.start()
	return o, nil
}

// leaders returns the address of each partition's leader, according to the first broker that answers.
func (c *goClient) leaders(ctx context.Context) ([]string, error) {
	var errs []error
	for _, address := range c.session.options.Brokers {
		conn, err := c.session.goDial(ctx, c.link, address)
		if err == nil {
			defer func() { _ = conn.Close() }()
			return c.ask(ctx, conn, address)
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (c *goClient) ask(ctx context.Context, conn *goConn, address string) ([]string, error) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	answer, err := conn.ask(&metadata.Request{TopicNames: []string{c.topic}})
	if err != nil {
		return nil, fmt.Errorf("query %s for topic %s: %w", address, c.topic, err)
	}
	response := answer.(*metadata.Response)
	at := slices.IndexFunc(response.Topics, func(t metadata.ResponseTopic) bool { return t.Name == c.topic })
	if at < 0 {
		return nil, fmt.Errorf("query %s for topic %s: the answer is of other topics", address, c.topic)
	}
	topic := response.Topics[at]
	if err := failure(topic.ErrorCode, nil); err != nil {
		return nil, fmt.Errorf("query %s for topic %s: %w", address, c.topic, err)
	}
	leaders := make([]string, c.session.options.Partitions)
	for _, p := range topic.Partitions {
		for _, b := range response.Brokers {
			if b.NodeID == p.LeaderID && int(p.PartitionIndex) < len(leaders) {
				leaders[p.PartitionIndex] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
			}
		}
	}
	if p := slices.Index(leaders, ""); p >= 0 {
		return nil, fmt.Errorf("partition %d of topic %s has no leader", p, c.topic)
	}
	return leaders, nil
}

// connect opens a sender's connection, and checks that the broker leads the sender's partitions.
func (c *goClient) connect(ctx context.Context, s *sender) error {
	conn, err := c.session.goDial(ctx, c.link, s.leader)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	topic := listoffsets.RequestTopic{Topic: c.topic}
	for _, p := range s.partitions {
		topic.Partitions = append(topic.Partitions,
			listoffsets.RequestPartition{Partition: p, CurrentLeaderEpoch: -1, Timestamp: -1})
	}
	answer, err := conn.ask(&listoffsets.Request{ReplicaID: -1, Topics: []listoffsets.RequestTopic{topic}})
	if err != nil {
		return fmt.Errorf("query %s for the ends of the partitions of topic %s: %w", s.leader, c.topic, err)
	}
	for _, t := range answer.(*listoffsets.Response).Topics {
		for _, p := range t.Partitions {
			if err := failure(p.ErrorCode, nil); err != nil {
				return fmt.Errorf("query %s for the end of partition %d of topic %s: %w", s.leader, p.Partition, c.topic, err)
			}
		}
	}
	s.conn = conn
	return nil
}

// produce sends batches to the leader of their partitions. It returns one error per batch, in the same order. The
// second result is an error of the whole request.
func (c *goClient) produce(conn *goConn, acks int16, batches []*batch) ([]error, error) {
	attributes := compressions[c.session.options.Compression].goes
	partitions := make([]produce.RequestPartition, len(batches))
	for i, b := range batches {
		partitions[i] = produce.RequestPartition{Partition: b.partition,
			RecordSet: protocol.RecordSet{Attributes: attributes, Records: b}}
	}
	answer, err := conn.ask(&produce.Request{
		Acks: acks, Timeout: int32(conn.timeout.Milliseconds()),
		Topics: []produce.RequestTopic{{Topic: c.topic, Partitions: partitions}},
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

// answered returns the broker's error for a partition's batch. missing is set if the response does not contain the
// partition.
func answered(response *produce.Response, partition int32) (rejected, missing error) {
	for _, topic := range response.Topics {
		for i := range topic.Partitions {
			if p := &topic.Partitions[i]; p.Partition == partition {
				return failure(p.ErrorCode, &p.ErrorMessage), nil
			}
		}
	}
	return nil, fmt.Errorf("the response has no result for partition %d", partition)
}
