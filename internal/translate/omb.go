package translate

import (
	"fmt"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
)

// Defaults of the OpenMessaging Benchmark.
const (
	ombWarmup = 1 // minutes
	// ombWindow is the maximum number of messages in flight per publisher where the benchmark has no limit.
	ombWindow = 10_000
)

// maxMinutes is the maximum duration that is read.
const maxMinutes = 1_000_000

// workload is an OpenMessaging Benchmark workload, in terms of a matrix.
type workload struct {
	name                         string
	topics, partitions           int64
	subscriptions                int64
	publishers, consumers        int64 // publishers per topic; consumers per topic and subscription
	size, rate, warmup, duration int64
}

// OMB translates a workload of the OpenMessaging Benchmark for the broker in a driver file. Errors have type Errors.
func OMB(work, driver File) (*Result, error) {
	r := &report{}
	var w workload
	var b broker
	if t := readTable(work, r); t != nil {
		w = readWorkload(t, name(strings.TrimSuffix(base(work.Name), ".yaml"), "omb"))
	}
	if t := readTable(driver, r); t != nil {
		b = readDriver(t, w)
	}
	from := fmt.Sprintf("A matrix from the OpenMessaging Benchmark's workload %s and driver file %s, by ctl import omb.", base(work.Name), base(driver.Name))
	return r.result(func(lost []Lost) string { return matrix(from, lost, ombFields(w, b)) })
}

// base returns the last element of a path.
func base(path string) string { return path[strings.LastIndexAny(path, `/\`)+1:] }

// Reasons why keys of workloads have no counterpart.
var ombLost = map[string]string{
	"payloadFile":                        "set message.payload: kind \"file\"",
	"useRandomizedPayloads":              "set message.payload: kind \"compressible\", with repeat 1 - randomBytesRatio",
	"randomBytesRatio":                   "set message.payload: kind \"compressible\", with repeat 1 - randomBytesRatio",
	"randomizedPayloadPoolSize":          "the payloads of a publisher repeat after 1 MiB",
	"consumerBacklogSizeGB":              "set consumers.lifetime.connectAt: consumers connect when a backlog has grown",
	"backlogDrainRatio":                  "set consumers.lifetime.connectAt: consumers connect when a backlog has grown",
	"producerPauseBeforeDrain":           "set consumers.lifetime.connectAt: consumers connect when a backlog has grown",
	"producerPauseDuringDrain":           "set consumers.lifetime.connectAt: consumers connect when a backlog has grown",
	"producerStartRate":                  "set publishers.profile: stages with increasing rates",
	"producerIncrementRate":              "set publishers.profile: stages with increasing rates",
	"producerIncrementSeconds":           "set publishers.profile: stages with increasing rates",
	"acceptableBacklog":                  "a backlog is a flag of the metrics and no limit",
	"messageRateReceivedForSubscription": "subscriptions have no filters",
}

func readWorkload(t *table, fallback string) workload {
	w := workload{
		name:          name(t.text("name", fallback), fallback),
		topics:        t.required("topics", 1, plan.MaxQueues),
		partitions:    t.number("partitionsPerTopic", 1, 1, 100_000),
		size:          t.required("messageSize", 1, plan.MaxMessageSize),
		subscriptions: t.required("subscriptionsPerTopic", 0, plan.MaxSubscriptions),
		publishers:    t.required("producersPerTopic", 1, plan.MaxThreads),
		consumers:     t.required("consumerPerSubscription", 0, plan.MaxThreads),
		rate:          t.number("producerRate", 0, 0, 1_000_000_000),
		warmup:        t.number("warmupDurationMinutes", ombWarmup, 0, maxMinutes),
		duration:      t.required("testDurationMinutes", 1, maxMinutes),
	}
	for _, role := range []struct {
		key     string
		threads int64
	}{{"producersPerTopic", w.publishers * w.topics}, {"consumerPerSubscription", w.consumers * w.topics}} {
		if e := t.find(role.key); e != nil && role.threads > plan.MaxThreads {
			t.invalid(e, "%d for each of %d topics are %d threads, and the maximum per agent is %d", role.threads/w.topics,
				w.topics, role.threads, plan.MaxThreads)
		}
	}
	if w.size < plan.MinMessageSize {
		t.remark("messageSize", "raised to %d bytes, the size of the envelope of a message", plan.MinMessageSize)
		w.size = plan.MinMessageSize
	}
	if w.rate == 0 {
		const why = "the benchmark searches for the highest rate at which consumers keep up; here publishers send without a " +
			"limit, and the table flags cells in which consumers did not keep up"
		t.remark("producerRate", "with 0 "+why)
		if t.find("producerRate") == nil {
			t.note("no producerRate: " + why)
		}
	}
	if w.warmup > 0 && t.find("warmupDurationMinutes") == nil {
		t.note("no warmupDurationMinutes: %d minute, the default of the benchmark", ombWarmup)
	}
	kind := t.text("keyDistributor", "NO_KEY")
	e := t.find("keyDistributor")
	switch {
	case e == nil:
	case !slices.Contains([]string{"NO_KEY", "KEY_ROUND_ROBIN", "RANDOM_NANO"}, kind):
		t.invalid(e, "%q is not one of NO_KEY, KEY_ROUND_ROBIN and RANDOM_NANO", kind)
	case kind != "NO_KEY":
		t.remark("keyDistributor", "matrices do not support this distribution of keys")
	}
	for key, why := range ombLost {
		t.lose(key, "%s", why)
	}
	t.rest("a workload")
	return w
}

// broker is the translation of a driver file: a broker, and the fields of the cell that it determines.
type broker struct {
	name, driver string
	options      []field
	mode         string
	window       int64
	persistent   bool
	ack          []field // fields of the consumers
	prefetch     int64
	shared       bool // one connection for all threads of a role
	copies       bool // every consumer receives all messages
}

// ombDrivers are the supported driver classes, by the end of their names.
var ombDrivers = []struct {
	class string
	read  func(*table, workload) broker // nil: there is no such driver here
}{
	{"kafka.KafkaBenchmarkDriver", ombKafka},
	{"rabbitmq.RabbitMqBenchmarkDriver", ombRabbitMQ},
	{"nats.NatsBenchmarkDriver", ombNATS},
	{"artemis.ArtemisBenchmarkDriver", ombArtemis},
}

func readDriver(t *table, w workload) broker {
	title := t.text("name", "")
	class := t.text("driverClass", "")
	e := t.find("driverClass")
	if e == nil {
		t.fail("driverClass is missing: give the driver class of the broker")
		return broker{}
	}
	for _, d := range ombDrivers {
		if strings.HasSuffix(class, "."+d.class) {
			b := d.read(t, w)
			b.name = strings.ToLower(name(title, b.driver))
			t.rest("this driver file")
			return b
		}
	}
	t.invalid(e, "there is no driver for %q (available: kafka, rabbitmq, nats with JetStream, artemis)", class)
	return broker{}
}

// onePartition rejects topics with partitions for brokers without partitions, as the benchmark does.
func onePartition(t *table, w workload) {
	if w.partitions > 1 {
		t.fail("the workload has %d partitions per topic, and this broker has no partitions; the benchmark rejects it, too", w.partitions)
	}
}

// ombFields returns the fields of the matrix.
func ombFields(w workload, b broker) []field {
	publishers := []field{{"threads", w.topics * w.publishers}, {"mode", b.mode}}
	if b.mode == "confirm-window" {
		publishers = append(publishers, field{"maxInFlight", b.window})
	}
	publishers = append(publishers, field{"rate", w.rate}, field{"persistent", b.persistent})
	if b.copies {
		w.subscriptions, w.consumers = w.subscriptions*w.consumers, min(w.consumers, 1)
	}
	consumers := []field{{"nodes", 0}}
	if w.subscriptions > 0 && w.consumers > 0 {
		consumers = append([]field{{"threads", w.topics * w.consumers}, {"prefetch", b.prefetch}}, b.ack...)
	}
	topology := []field{{"queues", w.topics}, {"subscriptions", max(1, w.subscriptions)}}
	if b.shared {
		topology = append(topology, field{"connections", "shared"})
	}
	return []field{
		{"name", w.name},
		{"brokers", []field{{b.name, []field{{"driver", b.driver}, {"options", b.options}}}}},
		{"axes", []field{{"broker", []any{b.name}}}},
		{"cell", []field{
			{"publishers", publishers}, {"consumers", consumers}, {"topology", topology},
			{"message", []field{{"size", w.size}}}, {"warmup", warmup(w.warmup)}, {"measure", minutes(w.duration)},
		}},
		{"tables", []any{[]field{{"rows", []any{"broker"}}, {"values", tableValues(w.rate > 0)}}}},
	}
}

func warmup(n int64) string {
	if n == 0 {
		return "0s"
	}
	return minutes(n)
}

// tableValues returns the values that both tools print and that exist in matrices. With a rate, the latency from the
// intended send time is added, because that from the publish call does not show a stall late in the measurement.
func tableValues(rate bool) []any {
	if rate {
		return []any{"publish.rate", "consume.rate", "publish.p99", "publish.intended.p99", "publish.p50", "e2e.p50",
			"e2e.p99"}
	}
	return []any{"publish.rate", "consume.rate", "publish.p50", "publish.p99", "e2e.p50", "e2e.p99"}
}
