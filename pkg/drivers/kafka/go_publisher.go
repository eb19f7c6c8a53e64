package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// attempts returns the number of attempts per request of kafka-go's Writer. 0 is its default, ten.
func (o *options) attempts() int {
	if o.persists() {
		return 0
	}
	return 1
}

// goBatch is the default number of messages of a Writer's batch.
const goBatch = 100

// goProducer makes a Writer. Unless the publisher is for a single message, it also waits for answers from the
// partitions' leaders.
func (c *conn) goProducer(ctx context.Context, spec drivers.PublisherSpec) (producer, error) {
	o := &c.session.options
	addresses, topic := kafka.TCP(o.Brokers...), topicName(spec.Topology, spec.Queue)
	library := &kafka.Client{Addr: addresses, Transport: c.transport}
	if !spec.Mode.PerMessage() {
		if err := awaitCached(ctx, library, topic); err != nil {
			return nil, err
		}
		if err := c.knock(ctx, library, topic); err != nil {
			return nil, err
		}
	}
	p := &goProducer{conn: c, confirms: kit.Confirms{OnConfirms: spec.OnConfirms}, confirmed: spec.Mode.Confirmed(),
		quota: newSendQuota(c, spec, func() {})}
	p.quota.limit = max(maxWaiting, 2*int64(max(o.BatchSize, goBatch)*o.Partitions)) // so that batches can fill: there is no flush
	p.writer = &kafka.Writer{Addr: addresses, Topic: topic, Transport: c.transport, Async: true, MaxAttempts: o.attempts(),
		BatchSize: o.BatchSize, BatchBytes: int64(o.BatchBytes), BatchTimeout: max(o.Linger.Std(), time.Nanosecond),
		ReadTimeout: o.ConfirmTimeout.Std(), WriteTimeout: o.ConfirmTimeout.Std(),
		RequiredAcks: kafka.RequiredAcks(o.acksFor(spec.Mode.Confirmed())), Compression: compressions[o.Compression].goes,
		Completion: p.completed}
	switch {
	case spec.Mode == drivers.ConfirmEach || spec.Mode.PerMessage():
		p.writer.BatchSize = 1
	case spec.Mode == drivers.ConfirmBatch:
		p.writer.BatchSize = spec.Batch
	}
	if spec.Keyed {
		p.writer.Balancer = kafka.BalancerFunc(func(m kafka.Message, partitions ...int) int {
			return partitions[m.WriterData.(goRecord).key%uint32(len(partitions))]
		})
	}
	return p, nil
}

// awaitCached waits until the metadata that the library has cached contains the topic. The library refreshes it within
// signOfLife. A Writer rejects messages to other topics, also if the topic was deleted and created again meanwhile.
func awaitCached(ctx context.Context, library *kafka.Client, topic string) error {
	return kit.Poll(ctx, askEvery, func() (done bool, err error) {
		metadata, err := library.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		if err == nil {
			err = metadata.Topics[0].Error
		}
		missing := errors.Is(err, kafka.UnknownTopicOrPartition) || errors.Is(err, kafka.LeaderNotAvailable)
		if err != nil {
			err = fmt.Errorf("find topic %s: %w", topic, kerrOf(err))
		}
		return !missing, err
	})
}

// knock requests the end of the log from every leader. It repeats this while the metadata that the library has cached
// names the leaders of a deleted topic of the same name.
func (c *conn) knock(ctx context.Context, library *kafka.Client, topic string) error {
	var ends []kafka.OffsetRequest
	for p := range c.session.options.Partitions {
		ends = append(ends, kafka.LastOffsetOf(p))
	}
	return kit.Poll(ctx, askEvery, func() (done bool, err error) {
		response, err := library.ListOffsets(ctx,
			&kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: ends}})
		if err != nil {
			return true, fmt.Errorf("query the leaders of topic %s: %w", topic, kerrOf(err))
		}
		for _, p := range response.Topics[topic] {
			if p.Error != nil {
				moved := errors.Is(p.Error, kafka.NotLeaderForPartition) || errors.Is(p.Error, kafka.UnknownTopicOrPartition)
				return !moved, fmt.Errorf("query the leader of partition %d of topic %s: %w", p.Partition, topic,
					kerrOf(p.Error))
			}
		}
		return true, nil
	})
}

// kerrOf returns kafka-go's error of a broker as that of franz-go.
func kerrOf(err error) error {
	var code kafka.Error
	if errors.As(err, &code) {
		return kerr.ErrorForCode(int16(code))
	}
	return err
}

// goProducer passes one publisher's messages to a Writer, which reports the result of each batch.
type goProducer struct {
	conn      *conn
	writer    *kafka.Writer
	confirms  kit.Confirms
	confirmed bool // the mode has confirms
	quota     *sendQuota

	mu   sync.Mutex // locked while a message is passed to the Writer: a Close at the same time would wait for ever
	over bool

	confirming sync.Mutex // a Writer reports the batches of several partitions at the same time
}

// goRecord accompanies a message through the Writer.
type goRecord struct {
	token uint64
	key   uint32
}

func (p *goProducer) send(ctx context.Context, m drivers.Message) error {
	if err := p.quota.enter(ctx, len(m.Body)); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := error(drivers.ErrClosed)
	if !p.over {
		err = p.writer.WriteMessages(p.conn.ctx,
			kafka.Message{Value: bytes.Clone(m.Body), WriterData: goRecord{m.Token, m.Key}})
	}
	if err == nil {
		return nil
	}
	p.quota.exit(1, len(m.Body))
	if p.over || p.conn.over.Load() {
		return fmt.Errorf("publish: %w: %w", drivers.ErrClosed, kerrOf(err))
	}
	return fmt.Errorf("publish: %w", kerrOf(err))
}

func (p *goProducer) completed(messages []kafka.Message, err error) {
	if err != nil {
		err = verdict(p.conn, kerrOf(err))
	}
	p.confirming.Lock()
	defer p.confirming.Unlock()
	size := 0
	for _, m := range messages {
		size += len(m.Value)
		if p.confirmed {
			p.confirms.Add(m.WriterData.(goRecord).token, err)
		}
	}
	p.confirms.Report()
	p.quota.exit(len(messages), size)
}

// flush does nothing: a Writer sends a batch when it is full or has waited for linger.
func (p *goProducer) flush() {}

func (p *goProducer) end() {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.writer.Close()
	}()
	p.quota.empties(done)
	if n := p.writer.Stats().Retries; n > 0 {
		p.conn.session.env.Retried(n)
	}
}
