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
	// signOfLife is how often the libraries ask a broker something when there is nothing to send, and so how soon a
	// link finds out that it broke.
	signOfLife = 4 * time.Second
	// idle is after how long franz-go closes a connection that is not used: before brokers do, who by themselves wait
	// for ten minutes.
	idle = 9 * time.Minute
)

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

// goClient publishes by kafka-go's requests, over a connection of its own to each leader. The library's Writer is not
// used: it flushes by time alone, costs more for each message, and divides each partition's batches into requests of
// their own. Nor is its Transport: requests that are not answered may go over several of its connections, and overtake
// each other.
type goClient struct {
	session *session
	link    *link
	topic   string
}

func (s *session) newGoClient(_ context.Context, l *link, spec drivers.PublisherSpec) (client, error) {
	return &goClient{session: s, link: l, topic: topicName(spec.Topology, spec.Queue)}, nil
}

func (c *goClient) close() { c.link.close() }

// outlet asks who leads the partitions and, but for a single message, connects to the leaders.
func (c *goClient) outlet(ctx context.Context, spec drivers.PublisherSpec) (outlet, error) {
	leaders, err := c.leaders(ctx)
	if err != nil {
		return nil, err
	}
	o := newGoOutlet(c, spec, leaders)
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

// leaders lists the address of each partition's leader, as the first broker that answers knows them.
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
		return nil, fmt.Errorf("ask %s for topic %s: %w", address, c.topic, err)
	}
	response := answer.(*metadata.Response)
	at := slices.IndexFunc(response.Topics, func(t metadata.ResponseTopic) bool { return t.Name == c.topic })
	if at < 0 {
		return nil, fmt.Errorf("ask %s for topic %s: the answer is of other topics", address, c.topic)
	}
	topic := response.Topics[at]
	if err := failure(topic.ErrorCode, nil); err != nil {
		return nil, fmt.Errorf("ask %s for topic %s: %w", address, c.topic, err)
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

// connect gives a sender its connection, and has the broker say that it leads the sender's partitions.
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
		return fmt.Errorf("ask %s where partitions of topic %s end: %w", s.leader, c.topic, err)
	}
	for _, t := range answer.(*listoffsets.Response).Topics {
		for _, p := range t.Partitions {
			if err := failure(p.ErrorCode, nil); err != nil {
				return fmt.Errorf("ask %s where partition %d of topic %s ends: %w", s.leader, p.Partition, c.topic, err)
			}
		}
	}
	s.conn = conn
	return nil
}

// produce sends batches to the leader of their partitions, and gives the error of each, in their order. The other error
// is that of all.
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
