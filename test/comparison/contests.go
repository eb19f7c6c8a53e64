package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// contest compares Lockstep with one tool in one setting.
type contest struct {
	name     string // on the command line: broker-setting
	title    string
	consumes bool
	wanted   float64 // ratio of the rates
	open     func(ctx context.Context, s settings, size int) (sides, error)
}

// sides measure each side of a contest once.
type sides struct {
	ours, theirs func(ctx context.Context) (sample, error)
	settings     string // of both, for the documentation
	close        func() error
}

// javaProducer are the defaults of Kafka's producer, except for idempotence, which kafka-go does not have.
var javaProducer = []string{"acks=all", "linger.ms=5", "batch.size=16384"}

// contests are all contests. Lockstep must be as fast as the tools. Its consumers of Kafka and NATS may be a tenth
// slower.
var contests = []contest{
	{"rabbitmq-publish", "RabbitMQ, PerfTest", false, 1, rabbitmqPublish},
	{"kafka-linger", "Kafka, kafka-producer-perf-test; franz-go, linger 5 ms", false, 1,
		kafkaPublish(`client: "franz-go", acks: "all", idempotence: true, linger: "5ms", batchBytes: 16384`,
			append(javaProducer, "enable.idempotence=true")...)},
	{"kafka-default", "Kafka, kafka-producer-perf-test; franz-go, default settings of both", false, 1, kafkaPublish("")},
	{"kafka-go", "Kafka, kafka-producer-perf-test without idempotence; kafka-go", false, 1,
		kafkaPublish(`client: "kafka-go", acks: "all", linger: "5ms", batchBytes: 16384, batchSize: 1000`,
			append(javaProducer, "enable.idempotence=false")...)},
	{"nats-publish", "NATS, nats bench js pub async", false, 1, natsPublish},
	{"rabbitmq-consume", "RabbitMQ, PerfTest", true, 1, rabbitmqConsume},
	{"kafka-consume", "Kafka, kafka-consumer-perf-test; franz-go", true, 0.9, kafkaConsume},
	{"nats-consume", "NATS, nats bench js consume", true, 0.9, natsConsume},
}

const (
	prefetch  = 100    // of consumers of RabbitMQ
	pull      = 500    // messages at a time: the default of nats bench and of Kafka's consumer
	inFlight  = 20_000 // of publishers of Kafka; its tool has a buffer of 32 MiB
	queueName = "comparison"
)

func nothing() error { return nil }

// stock returns how many messages a queue contains before both sides consume from it: more than a consumer of the given
// rate takes.
func (s settings) stock(rate int) int {
	return rate * int((s.warmup + s.measure + 3*time.Second).Seconds())
}

// rateFor returns small for messages of 100 B, and large for larger ones.
func rateFor(size, small, large int) int {
	if size > 500 {
		return large
	}
	return small
}

func rabbitmqPublish(_ context.Context, s settings, size int) (sides, error) {
	url, perftest, err := variables("LOCKSTEP_RABBITMQ_URL", "LOCKSTEP_PERFTEST")
	if err != nil {
		return sides{}, err
	}
	ours := publishes("rabbitmq", fmt.Sprintf(`{url: %q, queue: {maxLength: 10000, overflow: "drop-head"}}`, url), 1000, size)
	command := []string{perftest, "-h", strings.TrimSuffix(url, "/") + "/%2f", "-x", "1", "-y", "0", "-u", queueName, "-f",
		"persistent", "-c", "1000", "-s", strconv.Itoa(size), "-qa", "x-max-length=10000,x-overflow=drop-head"}
	return sides{
		ours:     func(ctx context.Context) (sample, error) { return lockstep(ctx, s, ours) },
		theirs:   func(ctx context.Context) (sample, error) { return watch(ctx, s, perfTestConfirmed, command) },
		settings: ours.String() + "\nperf-test " + strings.Join(command[1:], " "),
		close:    nothing,
	}, nil
}

// rabbitmqConsume uses one queue for both sides, which is filled up before each run. Its messages are transient, so
// that the broker writes little.
func rabbitmqConsume(ctx context.Context, s settings, size int) (sides, error) {
	url, perftest, err := variables("LOCKSTEP_RABBITMQ_URL", "LOCKSTEP_PERFTEST")
	if err != nil {
		return sides{}, err
	}
	conn, err := amqp.Dial(url)
	if err != nil {
		return sides{}, fmt.Errorf("connect to RabbitMQ: %w", err)
	}
	channel, err := conn.Channel()
	if err != nil {
		return sides{}, fmt.Errorf("open a channel: %w", err)
	}
	const name = queueName + "-consume"
	if _, err := channel.QueueDeclare(name, true, false, false, false, nil); err != nil {
		return sides{}, fmt.Errorf("declare a queue: %w", err)
	}
	body, want := make([]byte, size), s.stock(40_000)
	// state returns the number of messages without those of a previous consumer, which are returned after its end.
	state := func() (q amqp.Queue, err error) {
		err = until(ctx, func() (bool, error) {
			q, err = channel.QueueDeclarePassive(name, true, false, false, false, nil)
			return q.Consumers == 0, err
		})
		return q, err
	}
	fill := func(ctx context.Context) error {
		q, err := state()
		if err != nil {
			return fmt.Errorf("look at the queue: %w", err)
		}
		for range want - q.Messages {
			if err := channel.PublishWithContext(ctx, "", name, false, false, amqp.Publishing{Body: body}); err != nil {
				return fmt.Errorf("fill the queue: %w", err)
			}
		}
		return until(ctx, func() (bool, error) {
			q, err := state()
			return q.Messages >= want, err
		})
	}
	filled := func(run func(context.Context) (sample, error)) func(context.Context) (sample, error) {
		return func(ctx context.Context) (sample, error) {
			if err := fill(ctx); err != nil {
				return sample{}, err
			}
			return run(ctx)
		}
	}
	ours := consumes("rabbitmq", fmt.Sprintf("{url: %q}", url), name,
		fmt.Sprintf(`prefetch: %d, batch: %d, ack: "each"`, prefetch, prefetch))
	command := []string{perftest, "-h", strings.TrimSuffix(url, "/") + "/%2f", "-x", "0", "-y", "1", "-u", name,
		"--predeclared", "-q", strconv.Itoa(prefetch)}
	return sides{
		ours: filled(func(ctx context.Context) (sample, error) { return lockstep(ctx, s, ours) }),
		theirs: filled(func(ctx context.Context) (sample, error) {
			return watch(ctx, s, perfTestReceived, command)
		}),
		settings: ours.String() + "\nperf-test " + strings.Join(command[1:], " "),
		close: func() error {
			defer conn.Close()
			if _, err := channel.QueueDelete(name, false, false, false); err != nil {
				return fmt.Errorf("delete the queue: %w", err)
			}
			return nil
		},
	}, nil
}

// until polls until done returns true or an error.
func until(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, toolLimit)
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// kafkaTools are the parts of a contest with Kafka's tools.
type kafkaTools struct {
	brokers, script string
	admin           *kadm.Client
	payload         string // file with one message: the tool's own generator costs more than sending the message
}

func openKafka(s settings, size int) (k kafkaTools, err error) {
	if k.brokers, k.script, err = variables("LOCKSTEP_KAFKA_BROKERS", "LOCKSTEP_KAFKA_TOOLS"); err != nil {
		return k, err
	}
	k.payload = filepath.Join(s.dir, fmt.Sprintf("payload-%d", size))
	if err := os.WriteFile(k.payload, []byte(strings.Repeat("x", size)), 0o600); err != nil {
		return k, fmt.Errorf("write the payload of Kafka's tool: %w", err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(k.brokers, ",")...))
	if err != nil {
		return k, fmt.Errorf("make a client of Kafka: %w", err)
	}
	k.admin = kadm.NewClient(client)
	return k, nil
}

// produce returns the command that produces n messages.
func (k kafkaTools) produce(topic string, n int, properties []string) []string {
	command := []string{k.script, "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", k.brokers, "--topic",
		topic, "--num-records", strconv.Itoa(n), "--payload-file", k.payload, "--throughput", "-1", "--reporting-interval",
		strconv.FormatInt(reportEvery.Milliseconds(), 10)}
	if len(properties) > 0 {
		command = append(append(command, "--command-property"), properties...)
	}
	return command
}

func (k kafkaTools) create(ctx context.Context, topic string) error {
	if _, err := k.admin.CreateTopic(ctx, 1, 1, nil, topic); err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	return nil
}

func (k kafkaTools) remove(ctx context.Context, topic string) error {
	if _, err := k.admin.DeleteTopic(ctx, topic); err != nil {
		return fmt.Errorf("delete topic %s: %w", topic, err)
	}
	return nil
}

// kafkaPublish gives each run of the tool a new topic, as Lockstep has one. Both sides have acks "all". They also have
// idempotence, which is the default of both, except with kafka-go.
func kafkaPublish(options string, properties ...string) func(context.Context, settings, int) (sides, error) {
	return func(_ context.Context, s settings, size int) (sides, error) {
		k, err := openKafka(s, size)
		if err != nil {
			return sides{}, err
		}
		ours := publishes("kafka", fmt.Sprintf("{brokers: [%q], %s}", k.brokers, options), inFlight, size)
		runs := 0
		return sides{
			ours: func(ctx context.Context) (sample, error) { return lockstep(ctx, s, ours) },
			theirs: func(ctx context.Context) (sample, error) {
				runs++
				topic := fmt.Sprintf("%s-%d-%d", queueName, size, runs)
				if err := k.create(ctx, topic); err != nil {
					return sample{}, err
				}
				x, err := watch(ctx, s, kafkaProduced, k.produce(topic, 1_000_000_000, properties))
				if err != nil {
					return sample{}, err
				}
				return x, k.remove(ctx, topic)
			},
			settings: ours.String() + "\n" +
				"kafka-producer-perf-test " + strings.Join(k.produce("TOPIC", 1_000_000_000, properties)[2:], " "),
			close: func() error { k.admin.Close(); return nil },
		}, nil
	}
}

// kafkaConsume makes both sides read one topic from its beginning, each run with a new group. Both commit every 5 s,
// the default of the tool, which does not verify checksums.
func kafkaConsume(ctx context.Context, s settings, size int) (sides, error) {
	k, err := openKafka(s, size)
	if err != nil {
		return sides{}, err
	}
	topic, n := fmt.Sprintf("%s-consume-%d", queueName, size), s.stock(rateFor(size, 2_500_000, 700_000))
	if err := k.create(ctx, topic); err != nil {
		return sides{}, err
	}
	if _, _, err := output(ctx, k.produce(topic, n, nil)); err != nil {
		return sides{}, fmt.Errorf("fill the topic: %w", err)
	}
	runs := 0
	group := func() string {
		runs++
		return fmt.Sprintf("%s-%d", topic, runs)
	}
	consumer := func(group string) cell {
		return consumes("kafka", fmt.Sprintf("{brokers: [%q], group: %q}", k.brokers, group), topic,
			fmt.Sprintf(`prefetch: 0, batch: %d, ack: "interval", ackInterval: "5s"`, pull))
	}
	command := func(group string) []string {
		return []string{k.script, "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", k.brokers, "--topic",
			topic, "--group", group, "--num-records", strconv.Itoa(n), "--show-detailed-stats", "--reporting-interval",
			strconv.FormatInt(reportEvery.Milliseconds(), 10), "--timeout", "60000"}
	}
	return sides{
		ours:   func(ctx context.Context) (sample, error) { return lockstep(ctx, s, consumer(group())) },
		theirs: func(ctx context.Context) (sample, error) { return watch(ctx, s, kafkaConsumed, command(group())) },
		settings: consumer("GROUP").String() + "\n" +
			"kafka-consumer-perf-test " + strings.Join(command("GROUP")[2:], " "),
		close: func() error {
			defer k.admin.Close()
			return k.remove(ctx, topic)
		},
	}, nil
}

func natsPublish(_ context.Context, s settings, size int) (sides, error) {
	url, bench, err := variables("LOCKSTEP_NATS_URL", "LOCKSTEP_NATSBENCH")
	if err != nil {
		return sides{}, err
	}
	// The tool takes a number of messages, not a duration.
	n := rateFor(size, 150_000, 80_000) * int((s.warmup + s.measure).Seconds())
	ours := publishes("nats", fmt.Sprintf("{url: %q}", url), 500, size)
	command := []string{bench, "bench", "js", "pub", "async", queueName, "--server", url, "--no-progress", "--create",
		"--purge", "--storage", "file", "--batch", "500", "--msgs", strconv.Itoa(n), "--size", strconv.Itoa(size)}
	return sides{
		ours:     func(ctx context.Context) (sample, error) { return lockstep(ctx, s, ours) },
		theirs:   func(ctx context.Context) (sample, error) { return whole(ctx, natsBenched, n, command) },
		settings: ours.String() + "\nnats " + strings.Join(command[1:], " "),
		close:    nothing,
	}, nil
}

// natsConsume makes both sides read one stream from its beginning, each run with a new durable consumer that has the
// settings of nats bench.
func natsConsume(ctx context.Context, s settings, size int) (sides, error) {
	url, bench, err := variables("LOCKSTEP_NATS_URL", "LOCKSTEP_NATSBENCH")
	if err != nil {
		return sides{}, err
	}
	conn, err := nats.Connect(url)
	if err != nil {
		return sides{}, fmt.Errorf("connect to NATS: %w", err)
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(1000))
	if err != nil {
		return sides{}, fmt.Errorf("use JetStream: %w", err)
	}
	const name = queueName + "-consume"
	n := s.stock(rateFor(size, 200_000, 100_000))
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name},
		Storage: jetstream.FileStorage})
	if err != nil {
		return sides{}, fmt.Errorf("create a stream: %w", err)
	}
	body := make([]byte, size)
	for range n {
		if _, err := js.PublishAsync(name, body, jetstream.WithStallWait(toolLimit)); err != nil {
			return sides{}, fmt.Errorf("fill the stream: %w", err)
		}
	}
	if err := until(ctx, func() (bool, error) {
		info, err := stream.Info(ctx)
		return err == nil && info.State.Msgs == uint64(n), err
	}); err != nil {
		return sides{}, fmt.Errorf("fill the stream: %w", err)
	}
	runs := 0
	// with creates a consumer for one run.
	with := func(ctx context.Context, run func(consumer string) (sample, error)) (sample, error) {
		runs++
		consumer := fmt.Sprintf("run-%d", runs)
		if _, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: consumer,
			AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: pull}); err != nil {
			return sample{}, fmt.Errorf("create a consumer: %w", err)
		}
		x, err := run(consumer)
		if err != nil {
			return sample{}, err
		}
		if err := stream.DeleteConsumer(ctx, consumer); err != nil {
			return sample{}, fmt.Errorf("delete a consumer: %w", err)
		}
		return x, nil
	}
	ours := func(consumer string) cell {
		return consumes("nats", fmt.Sprintf("{url: %q, consumer: %q}", url, consumer), name,
			fmt.Sprintf(`prefetch: %d, batch: %d, ack: "each"`, pull, pull))
	}
	command := func(consumer string) []string {
		return []string{bench, "bench", "js", "consume", "--server", url, "--no-progress", "--stream", name, "--consumer",
			consumer, "--batch", strconv.Itoa(pull), "--acks", "explicit", "--msgs", strconv.Itoa(n), "--size",
			strconv.Itoa(size)}
	}
	return sides{
		ours: func(ctx context.Context) (sample, error) {
			return with(ctx, func(consumer string) (sample, error) { return lockstep(ctx, s, ours(consumer)) })
		},
		theirs: func(ctx context.Context) (sample, error) {
			return with(ctx, func(consumer string) (sample, error) {
				return whole(ctx, natsBenched, n, command(consumer))
			})
		},
		settings: ours("CONSUMER").String() + "\nnats " + strings.Join(command("CONSUMER")[1:], " "),
		close: func() error {
			defer conn.Close()
			if err := js.DeleteStream(ctx, name); err != nil {
				return fmt.Errorf("delete the stream: %w", err)
			}
			return nil
		},
	}, nil
}
