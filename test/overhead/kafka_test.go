package overhead

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.org/lockstep/lockstep/pkg/drivers"
	_ "example.org/lockstep/lockstep/pkg/drivers/kafka"
)

// kafkaBrokers names a Kafka broker.
const kafkaBrokers = "LOCKSTEP_KAFKA_BROKERS"

// BenchmarkKafka uses a topic of one partition, acks all, and a commit per batch of at most 100 messages. It compares
// each client of the driver with a bare loop over the same library, with the same settings.
func BenchmarkKafka(b *testing.B) {
	brokers := strings.Split(labAddress(b, kafkaBrokers, "kafka"), ",")
	for client, bare := range map[string]func(*testing.B, []string, work) sample{"franz-go": bareFranz,
		"kafka-go": bareKafka} {
		b.Run(client, func(b *testing.B) {
			options, err := json.Marshal(map[string]any{"brokers": brokers, "client": client, "commit": "blocking"})
			must(b, err)
			compare(b, subject{name: "kafka", options: options,
				bare: func(b *testing.B, w work) sample { return bare(b, brokers, w) }})
		})
	}
}

// kafkaTopic creates a topic for one sample. Its consumer group has the same name.
func kafkaTopic(b *testing.B, brokers []string) (name string, remove func()) {
	tasks++
	name = "lockstep-overhead-bare-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(tasks)
	transport := &kafka.Transport{MetadataTopics: []string{name}}
	c := kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport, Timeout: patience}
	made, err := c.CreateTopics(context.Background(), &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: name, NumPartitions: 1, ReplicationFactor: 1}},
	})
	must(b, err)
	must(b, made.Errors[name])
	for { // until the partition has a leader
		ends, err := c.ListOffsets(context.Background(),
			&kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{name: {kafka.LastOffsetOf(0)}}})
		if err == nil && len(ends.Topics[name]) == 1 && ends.Topics[name][0].Error == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return name, func() {
		_, err := c.DeleteGroups(context.Background(), &kafka.DeleteGroupsRequest{GroupIDs: []string{name}})
		must(b, err)
		_, err = c.DeleteTopics(context.Background(), &kafka.DeleteTopicsRequest{Topics: []string{name}})
		must(b, err)
		transport.CloseIdleConnections()
	}
}

// bareKafka uses a Writer and a Reader, as the documentation of kafka-go shows.
func bareKafka(b *testing.B, brokers []string, w work) sample {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topic, remove := kafkaTopic(b, brokers)
	defer remove()
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: brokers, GroupID: topic, Topic: topic,
		StartOffset: kafka.FirstOffset, MaxWait: 500 * time.Millisecond, JoinGroupBackoff: 100 * time.Millisecond})
	defer func() { must(b, reader.Close()) }()
	for reader.Stats().Rebalances == 0 { // until it has joined its group
		must(b, ctx.Err())
		time.Sleep(time.Millisecond)
	}
	transport := &kafka.Transport{MetadataTopics: []string{topic}}
	defer transport.CloseIdleConnections()
	acks := kafka.RequireAll
	if !w.mode.Confirmed() {
		acks = kafka.RequireNone
	}
	g, failed := newGate(), make(chan error, 1)
	writer := &kafka.Writer{Addr: kafka.TCP(brokers...), Topic: topic, Transport: transport, MaxAttempts: 1,
		RequiredAcks: acks, BatchTimeout: linger, Async: true,
		Completion: func(messages []kafka.Message, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
			for range messages {
				g.leave()
			}
		}}
	if w.mode == drivers.ConfirmEach {
		writer.BatchSize = 1
	}
	defer func() { must(b, writer.Close()) }()

	received := make(chan error, 1)
	before, start := cpuTime(b), time.Now()
	go func() { received <- receiveKafka(ctx, reader, w.n) }()
	body := make([]byte, w.size)
	for i := range w.n {
		g.enter()
		must(b, writer.WriteMessages(ctx, kafka.Message{Value: body}))
		if w.mode == drivers.ConfirmEach {
			g.wait(int64(i + 1))
		}
	}
	select {
	case err := <-failed:
		must(b, err)
	case err := <-received:
		must(b, err)
	}
	return sample{elapsed: time.Since(start), cpu: cpuTime(b) - before}
}

// linger is the default of the driver.
const linger = 5 * time.Millisecond

// receiveKafka commits after each 100 messages.
func receiveKafka(ctx context.Context, reader *kafka.Reader, n int) error {
	for received := 1; received <= n; received++ {
		m, err := reader.FetchMessage(ctx)
		if err == nil && (received%prefetch == 0 || received == n) {
			err = reader.CommitMessages(ctx, m)
		}
		if err != nil {
			return fmt.Errorf("the bare loop received %d of %d messages: %w", received-1, n, err)
		}
	}
	return nil
}

// bareFranz has one client per side, with the driver's settings.
func bareFranz(b *testing.B, brokers []string, w work) sample {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topic, remove := kafkaTopic(b, brokers)
	defer remove()
	joined := make(chan struct{})
	from, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.ConsumerGroup(topic),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(500*time.Millisecond), kgo.Balancers(kgo.RangeBalancer()),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { close(joined) }))
	must(b, err)
	defer from.Close()
	options := []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.DefaultProduceTopic(topic),
		kgo.RecordRetries(0), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(linger),
		kgo.MaxBufferedRecords(window)} // beyond it, Produce blocks and does not linger
	switch {
	case w.mode == drivers.ConfirmEach:
		options = append(options, kgo.ProducerLinger(0))
	case !w.mode.Confirmed():
		options = append(options, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	}
	to, err := kgo.NewClient(options...)
	must(b, err)
	defer to.Close()
	must(b, to.Ping(ctx))
	select {
	case <-joined:
	case <-ctx.Done():
		b.Fatal("the bare loop does not join its group")
	}

	return timed(b, w, func() error { return receiveFranz(ctx, from, w.n) },
		func() error { return publishFranz(to, w) })
}

func receiveFranz(ctx context.Context, c *kgo.Client, n int) error {
	for received := 0; received < n; {
		fetches := c.PollRecords(ctx, prefetch)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("the bare loop received %d of %d messages: %w", received, n, err)
		}
		received += fetches.NumRecords()
		if err := c.CommitUncommittedOffsets(ctx); err != nil {
			return err
		}
	}
	return nil
}

func publishFranz(c *kgo.Client, w work) error {
	body, failed := make([]byte, w.size), make(chan error, 1)
	g := newGate()
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
		g.leave()
	}
	for i := range w.n {
		c.Produce(context.Background(), &kgo.Record{Value: body}, promise)
		if w.mode == drivers.ConfirmEach {
			g.wait(int64(i + 1))
		}
	}
	g.wait(int64(w.n))
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
