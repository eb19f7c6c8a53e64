package overhead

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"lockstep/pkg/drivers"
	_ "lockstep/pkg/drivers/kafka"
)

// kafkaBrokers names a Kafka broker.
const kafkaBrokers = "LOCKSTEP_KAFKA_BROKERS"

func kafkaAt(b *testing.B) []string {
	brokers := os.Getenv(kafkaBrokers)
	if brokers == "" {
		b.Skipf("%s is not set: the harness overhead for Kafka needs a Kafka (go run ./test/lab run kafka -- …)",
			kafkaBrokers)
	}
	return strings.Split(brokers, ",")
}

// BenchmarkKafka uses a topic of one partition, acks all, and a commit per batch of at most 100 messages. It compares
// each client of the driver with a bare loop over the same library, and franz-go also with the bare loop over kafka-go,
// which has the lowest cost.
func BenchmarkKafka(b *testing.B) {
	brokers := kafkaAt(b)
	lean := func(b *testing.B, w work) sample { return bareKafka(b, brokers, w, kafkaRequests) }
	own := func(b *testing.B, w work) sample { return bareFranz(b, brokers, w) }
	for _, c := range []struct {
		client, against string
		bare            func(*testing.B, work) sample
	}{{"kafka-go", "kafka-go", lean}, {"franz", "franz-go", own}, {"franz", "kafka-go", lean}} {
		b.Run(c.client+"-by-"+c.against, func(b *testing.B) {
			options, err := json.Marshal(map[string]any{"brokers": brokers, "client": c.client})
			must(b, err)
			fmt.Printf("\nthe engine through client %q, by a bare loop over %s\n", c.client, c.against)
			compare(b, subject{name: "kafka", options: options, bare: c.bare})
		})
	}
}

// BenchmarkKafkaLibraries compares bare loops: kafka-go's requests, its Writer and Reader, and franz-go.
func BenchmarkKafkaLibraries(b *testing.B) {
	brokers := kafkaAt(b)
	loops := []struct {
		name string
		run  func(w work) sample
	}{
		{"kafka-go, requests", func(w work) sample { return bareKafka(b, brokers, w, kafkaRequests) }},
		{"kafka-go, Writer", func(w work) sample { return bareKafka(b, brokers, w, kafkaWriter) }},
		{"franz-go", func(w work) sample { return bareFranz(b, brokers, w) }},
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out,
		"\nbare loops over Kafka's libraries: medians of %d rounds\n\tloop\tmsg/s\tby the first (quartiles)\tCPU ns/msg\n", pairs/2)
	for _, mode := range []drivers.Mode{drivers.ConfirmWindow, drivers.ConfirmEach} {
		for _, size := range []int{100, 1024} {
			w := work{mode: mode, size: size, n: 1000}
			for range 3 {
				w.n = min(most, max(1000, int(float64(w.n)/loops[0].run(w).elapsed.Seconds()*sampleTime.Seconds())))
			}
			rates, ratios, floors := make([][]float64, len(loops)), make([][]float64, len(loops)),
				make([][]float64, len(loops))
			for range pairs / 2 {
				var first time.Duration
				for i, loop := range loops {
					s := taken(loop.name, func() sample { return loop.run(w) })
					first = cmp.Or(first, s.elapsed)
					rates[i] = append(rates[i], float64(w.n)/s.elapsed.Seconds())
					ratios[i] = append(ratios[i], float64(first)/float64(s.elapsed))
					floors[i] = append(floors[i], float64(s.cpu)/float64(w.n))
				}
			}
			for i, loop := range loops {
				fmt.Fprintf(out, "%s\t%s\t%.0f\t%.3f (%.3f–%.3f)\t%.0f\n", w, loop.name, quantile(rates[i], 0.5),
					quantile(ratios[i], 0.5), quantile(ratios[i], 0.25), quantile(ratios[i], 0.75),
					quantile(floors[i], 0.5))
			}
		}
	}
	_ = out.Flush()
	b.ReportMetric(0, "ns/op")
}

// kafkaTopic creates a topic for one sample. Its consumer group has the same name.
func kafkaTopic(b *testing.B, brokers []string) (name string, remove func()) {
	tasks++
	name = "lockstep-tax-bare-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(tasks)
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

// bareKafka receives with a consumer group of kafka-go, like the driver, and publishes with the given sender.
func bareKafka(b *testing.B, brokers []string, w work,
	way func(*testing.B, []string, string, work) kafkaSender) sample {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topic, remove := kafkaTopic(b, brokers)
	defer remove()
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{ID: topic, Brokers: brokers, Topics: []string{topic},
		JoinGroupBackoff: 100 * time.Millisecond,
		StartOffset:      kafka.FirstOffset})
	must(b, err)
	defer func() { must(b, group.Close()) }()
	var generation *kafka.Generation
	for generation == nil { // the coordinator may be starting
		if generation, err = group.Next(ctx); err != nil {
			must(b, ctx.Err())
		}
	}
	dial := func() (*kafka.Conn, error) { return kafka.DialLeader(ctx, "tcp", brokers[0], topic, 0) }
	conn, err := dial()
	must(b, err)
	to := way(b, brokers, topic, w)
	defer to.close()

	received := make(chan error, 1)
	before, start := cpuTime(b), time.Now()
	go func() { received <- receiveKafka(conn, dial, generation, topic, start.Add(patience), w.n) }()
	must(b, to.send(w))
	if err := <-received; err != nil {
		b.Fatalf("%s: %v", w, err)
	}
	return sample{elapsed: time.Since(start), cpu: cpuTime(b) - before}
}

// receiveKafka commits after each 100 messages, and at the end of a fetch.
func receiveKafka(conn *kafka.Conn, dial func() (*kafka.Conn, error), generation *kafka.Generation, topic string,
	deadline time.Time, n int) error {
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	body := make([]byte, 64<<10)
	for received := 0; received < n; {
		if err := conn.SetReadDeadline(deadline); err != nil {
			return err
		}
		batch := conn.ReadBatchWith(kafka.ReadBatchConfig{MinBytes: 1, MaxBytes: 1 << 20,
			MaxWait: 500 * time.Millisecond})
		for uncommitted, more := 0, true; more; {
			_, err := batch.Read(body)
			if more = err == nil; more {
				received++
				uncommitted++
			}
			if uncommitted == prefetch || !more && uncommitted > 0 {
				if err := generation.CommitOffsets(map[string]map[int]int64{topic: {0: int64(received)}}); err != nil {
					return err
				}
				uncommitted = 0
			}
		}
		err := batch.Close()
		// the library sometimes loses its position at the end of a log
		if errors.Is(err, io.ErrNoProgress) {
			_ = conn.Close()
			if conn, err = dial(); err == nil {
				_, err = conn.Seek(int64(received), kafka.SeekAbsolute|kafka.SeekDontCheck)
			}
		}
		if err != nil && !errors.Is(err, kafka.RequestTimedOut) {
			return fmt.Errorf("the bare loop received %d of %d messages: %w", received, n, err)
		}
	}
	return nil
}

// kafkaSender is a publisher of a bare loop.
type kafkaSender struct {
	send  func(w work) error
	close func()
}

// kafkaRequests has one request in flight. The next one contains the messages that arrived meanwhile. It is the
// cheapest way that the library supports.
func kafkaRequests(b *testing.B, brokers []string, topic string, w work) kafkaSender {
	transport := &kafka.Transport{MetadataTopics: []string{topic}, MetadataTTL: 4 * time.Second}
	c := &kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport, Timeout: patience}
	acks := kafka.RequireAll
	if !w.mode.Confirmed() {
		acks = kafka.RequireNone
	}
	_,
		err := c.ListOffsets(context.Background(),
		&kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(0)}}})
	must(b, err)
	produce := func(bodies *bodyReader) error {
		r, err := c.Produce(context.Background(), &kafka.ProduceRequest{Topic: topic, RequiredAcks: acks,
			Records: bodies})
		if err == nil && r != nil {
			err = r.Error
		}
		return err
	}
	send := func(w work) error {
		body := make([]byte, w.size)
		if w.mode == drivers.ConfirmEach {
			for range w.n {
				if err := produce(&bodyReader{bodies: [][]byte{body}}); err != nil {
					return err
				}
			}
			return nil
		}
		g, queue, failed := newGate(), make(chan []byte, window), make(chan error, 1)
		go func() { failed <- drainKafka(queue, g, produce) }()
		for range w.n {
			g.enter()
			queue <- body
		}
		close(queue)
		return <-failed
	}
	return kafkaSender{send: send, close: transport.CloseIdleConnections}
}

// drainKafka repeatedly sends all queued messages.
func drainKafka(queue <-chan []byte, g *gate, produce func(*bodyReader) error) error {
	for bodies := new(bodyReader); ; {
		first, more := <-queue
		if !more {
			return nil
		}
		bodies.bodies, bodies.next = append(bodies.bodies[:0], first), 0
		for waiting := len(queue); waiting > 0; waiting-- {
			bodies.bodies = append(bodies.bodies, <-queue)
		}
		if err := produce(bodies); err != nil {
			return err
		}
		for range bodies.bodies {
			g.leave()
		}
	}
}

// bodyReader passes bodies to the library as records.
type bodyReader struct {
	bodies [][]byte
	next   int
	record kafka.Record
	value  closable
}

type closable struct{ bytes.Reader }

func (*closable) Close() error { return nil }

func (r *bodyReader) ReadRecord() (*kafka.Record, error) {
	if r.next == len(r.bodies) {
		return nil, io.EOF
	}
	r.value.Reset(r.bodies[r.next])
	r.next++
	r.record.Value = &r.value
	return &r.record, nil
}

// kafkaWriter publishes as the library's documentation shows.
func kafkaWriter(_ *testing.B, brokers []string, topic string, w work) kafkaSender {
	transport := &kafka.Transport{MetadataTopics: []string{topic}}
	g, failed := newGate(), make(chan error, 1)
	writer := &kafka.Writer{Addr: kafka.TCP(brokers...), Topic: topic, Transport: transport, MaxAttempts: 1,
		RequiredAcks: kafka.RequireAll,
		BatchSize:    window, BatchTimeout: time.Millisecond, Async: w.mode != drivers.ConfirmEach}
	if w.mode == drivers.ConfirmEach {
		writer.BatchSize = 1
	}
	writer.Completion = func(messages []kafka.Message, err error) {
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
		for range messages {
			g.leave()
		}
	}
	send := func(w work) error {
		body := make([]byte, w.size)
		for range w.n {
			g.enter()
			if err := writer.WriteMessages(context.Background(), kafka.Message{Value: body}); err != nil {
				return err
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
	return kafkaSender{send: send, close: func() {
		_ = writer.Close()
		transport.CloseIdleConnections()
	}}
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
	acks := kgo.AllISRAcks()
	if !w.mode.Confirmed() {
		acks = kgo.NoAck()
	}
	to, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.DefaultProduceTopic(topic),
		kgo.ProducerLinger(0), kgo.RequiredAcks(acks),
		kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(5), kgo.RecordRetries(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(b, err)
	defer to.Close()
	must(b, to.Ping(ctx))
	select {
	case <-joined:
	case <-ctx.Done():
		b.Fatal("the bare loop does not join its group")
	}

	received := make(chan error, 1)
	before, start := cpuTime(b), time.Now()
	go func() { received <- receiveFranz(ctx, from, w.n) }()
	must(b, publishFranz(to, w))
	if err := <-received; err != nil {
		b.Fatalf("%s: %v", w, err)
	}
	return sample{elapsed: time.Since(start), cpu: cpuTime(b) - before}
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
		g.enter()
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
