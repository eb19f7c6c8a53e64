package translate

import (
	"slices"
	"strconv"
	"strings"
)

// Defaults of Kafka's Java producer.
const (
	bufferMemory     = 33_554_432 // bytes that it buffers
	batchSize        = 16_384     // bytes per batch
	requestsInFlight = 5          // per broker
)

// ombKafka reads the driver file of Kafka. Most of it is properties of Kafka's Java clients.
func ombKafka(t *table, w workload) broker {
	b := broker{driver: "kafka", mode: "confirm-window", persistent: true}
	common, topic := t.inner("commonConfig"), t.inner("topicConfig")
	producer, consumer := t.inner("producerConfig"), t.inner("consumerConfig")
	b.options = append(b.options, kafkaBrokers(t, common),
		field{"replicationFactor", t.number("replicationFactor", 1, 1, 32767)}, field{"partitions", w.partitions})
	if topic.find("min.insync.replicas") != nil {
		b.options = append(b.options, field{"minInSyncReplicas", topic.number("min.insync.replicas", 1, 1, 32767)})
	}
	b.options = append(b.options, kafkaSecurity(common)...)
	kafkaProducer(producer, &b, w)
	kafkaConsumer(consumer, &b)
	if rest := topicSettings(topic); len(rest) > 0 {
		b.options = append(b.options, field{"topic", rest})
	}
	t.lose("reset", "each task creates its own topics and removes them; other topics are not deleted")
	for _, properties := range []*table{common, producer, consumer} {
		for _, e := range properties.keys {
			if !e.done {
				properties.drop(e, "a setting of Kafka's Java client without a counterpart")
			}
		}
	}
	return b
}

func kafkaBrokers(t, common *table) field {
	text := common.text("bootstrap.servers", "")
	if text == "" {
		t.fail("commonConfig has no bootstrap.servers: give the addresses of the brokers")
	}
	var all []any
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return field{"brokers", all}
}

// kafkaSecurity reads the security settings of connections. Passwords are not translated.
func kafkaSecurity(common *table) (options []field) {
	protocol := strings.ToUpper(common.text("security.protocol", "PLAINTEXT"))
	e := common.find("security.protocol")
	switch protocol {
	case "PLAINTEXT", "SASL_PLAINTEXT":
	case "SSL", "SASL_SSL":
		options = append(options, field{"tls", []field{}})
	default:
		common.invalid(e, "%q is not one of PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL", protocol)
	}
	if mechanism := common.text("sasl.mechanism", ""); mechanism != "" {
		if slices.Contains([]string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}, mechanism) {
			options = append(options, field{"mechanism", mechanism})
		} else {
			common.remark("sasl.mechanism", "not supported: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 are")
		}
	}
	common.lose("sasl.jaas.config", `give user and password in the broker's options, as "${env:NAME}"`)
	return options
}

// retried is the remark on settings of retries other than 0.
const retried = `the client library repeats requests with its own defaults (resilience "vendor")`

func kafkaProducer(p *table, b *broker, w workload) {
	acks := p.text("acks", "all")
	switch acks {
	case "all", "-1":
		b.options = append(b.options, field{"acks", "all"})
	case "1":
		b.options = append(b.options, field{"acks", 1})
	case "0":
		b.options, b.mode = append(b.options, field{"acks", 0}), "fire-and-forget"
	default:
		p.invalid(p.find("acks"), "%q is not one of all, 1 and 0", acks)
	}
	b.window = min(max(1, p.number("buffer.memory", bufferMemory, 1, 1<<50)/max(1, w.size)), 1_000_000)
	bytes := p.number("batch.size", batchSize, 0, 1<<31)
	b.options = append(b.options, field{"batchBytes", min(max(1024, bytes), 100_000_000)})
	if bytes < 1024 || bytes > 100_000_000 {
		p.remark("batch.size", "batches have 1024 to 100000000 bytes")
	}
	if p.find("linger.ms") != nil {
		b.options = append(b.options, field{"linger", milliseconds(p.number("linger.ms", 0, 0, 3_600_000))})
	}
	if kind := p.text("compression.type", ""); kind != "" {
		if !slices.Contains([]string{"none", "gzip", "snappy", "lz4", "zstd"}, kind) {
			p.invalid(p.find("compression.type"), "%q is not one of none, gzip, snappy, lz4 and zstd", kind)
		}
		b.options = append(b.options, field{"compression", kind})
	}
	kafkaIdempotence(p, b, acks)
	if p.text("retries", "") == "0" {
		b.options = append(b.options, field{"resilience", "none"})
	} else {
		p.remark("retries", retried)
	}
	p.lose("delivery.timeout.ms", retried)
}

// kafkaIdempotence translates two defaults of Kafka's Java producer since release 3: several requests in flight, and
// idempotence unless another setting conflicts with it.
func kafkaIdempotence(p *table, b *broker, acks string) {
	const inFlight = "max.in.flight.requests.per.connection"
	all := acks == "all" || acks == "-1"
	retries, err := strconv.Atoi(p.peek("retries"))
	set, n := p.find("enable.idempotence"), p.number(inFlight, requestsInFlight, 1, 1<<31)
	idempotent := p.yes("enable.idempotence", all && n == requestsInFlight && (err != nil || retries != 0))
	if set != nil && idempotent && !all {
		p.invalid(set, "idempotence needs acks=all")
	}
	if idempotent {
		b.options = append(b.options, field{"idempotence", true})
		if set == nil {
			p.note("no enable.idempotence: it is enabled, as in Kafka's Java producer")
		}
		if n != requestsInFlight {
			p.remark(inFlight, "with idempotence it is always %d", requestsInFlight)
		}
		return
	}
	if set == nil && all && n < requestsInFlight && (err != nil || retries != 0) {
		p.remark(inFlight, "Kafka's Java producer then enables idempotence, which always has %d requests here, so idempotence is disabled",
			requestsInFlight)
	}
	b.options = append(b.options, field{"idempotence", false}, field{"inFlight", min(n, 100)})
	if n > 100 {
		p.remark(inFlight, "lowered to the maximum, 100")
	}
}

// kafkaConsumer reads how offsets are committed. Without auto-commit, the benchmark commits in the background after
// each poll.
func kafkaConsumer(c *table, b *broker) {
	b.options = append(b.options, field{"commit", "background"})
	polled := c.number("max.poll.records", 500, 1, 1_000_000)
	if c.yes("enable.auto.commit", false) {
		b.ack = []field{{"ack", "interval"}, {"ackInterval",
			milliseconds(c.number("auto.commit.interval.ms", 5000, 1, 86_400_000))}, {"batch", polled}}
	} else {
		b.ack = []field{{"ack", "each"}, {"batch", polled}}
		c.lose("auto.commit.interval.ms", "without enable.auto.commit it has no effect")
	}
	if c.find("max.partition.fetch.bytes") != nil {
		bytes := c.number("max.partition.fetch.bytes", 1<<20, 0, 1<<31)
		b.options = append(b.options, field{"fetchBytes", min(max(1024, bytes), 100_000_000)})
		if bytes < 1024 || bytes > 100_000_000 {
			c.remark("max.partition.fetch.bytes", "fetches have 1024 to 100000000 bytes")
		}
	}
	for _, d := range []struct{ key, option string }{
		{"fetch.max.wait.ms", "fetchWait"}, {"session.timeout.ms", "sessionTimeout"},
		{"heartbeat.interval.ms", "heartbeat"},
	} {
		if c.find(d.key) != nil {
			b.options = append(b.options, field{d.option, milliseconds(c.number(d.key, 500, 1, 3_600_000))})
		}
	}
	c.lose("auto.offset.reset", "consumers connect before the first message")
}

// topicSettings returns the remaining settings of topics, by their Kafka names.
func topicSettings(topic *table) (rest []field) {
	for _, e := range topic.keys {
		if e.done {
			continue
		}
		topic.use(e)
		var v any = e.value.text
		if n, ok := e.value.whole(); ok {
			v = n
		} else if e.value.text == "true" || e.value.text == "false" {
			v = expression(e.value.text)
		}
		rest = append(rest, field{e.key, v})
	}
	return rest
}

// ombRabbitMQ reads the driver file of RabbitMQ. The benchmark uses one fanout exchange per topic and one queue per
// subscription. It has no limit for unconfirmed messages, and its consumers do not acknowledge.
func ombRabbitMQ(t *table, w workload) broker {
	onePartition(t, w)
	b := broker{driver: "rabbitmq", mode: "confirm-window", window: ombWindow, shared: true}
	b.persistent = t.yes("messagePersistence", false)
	var urls []any
	if e := t.take("amqpUris"); e == nil || !e.value.isList || len(e.value.list) == 0 {
		t.fail("amqpUris is missing: give the list of the addresses of the brokers")
	} else {
		for _, one := range e.value.list {
			urls = append(urls, one.text)
			remarkPassword(t, "amqpUris", one.text)
		}
	}
	if len(urls) == 1 {
		b.options = append(b.options, field{"url", urls[0]})
	} else {
		b.options = append(b.options, field{"urls", urls})
		t.remark("amqpUris",
			"the benchmark distributes topics over the brokers; here all queues are on the first available broker, unless the cell sets node")
	}
	kind := strings.ToLower(t.text("queueType", "CLASSIC"))
	if !slices.Contains([]string{"classic", "quorum", "stream"}, kind) {
		t.invalid(t.find("queueType"), "%q is not one of CLASSIC, QUORUM and STREAM", kind)
	}
	queue := []field{{"type", kind}}
	if kind == "classic" {
		queue = append(queue, field{"durable", true})
	}
	b.options = append(b.options, field{"queue", queue}, field{"exchange", []field{{"type", "fanout"}}})
	b.ack = []field{{"ack", "automatic"}}
	if kind == "stream" {
		b.ack, b.prefetch, b.copies = []field{{"ack", "each"}}, ombWindow, true
		if w.consumers > 1 {
			t.remark("queueType",
				"each consumer of a stream receives all messages: each of the %d consumers of a subscription becomes a subscription", w.consumers)
		}
		t.remark("queueType",
			"consumers of streams must acknowledge: they acknowledge each message, with a prefetch of %d; those of the benchmark do neither", ombWindow)
	}
	for _, key := range []string{"producerCreationDelay", "producerCreationBatchSize", "consumerCreationDelay",
		"consumerCreationBatchSize"} {
		t.lose(key, "publishers and consumers all connect before the first message is sent")
	}
	unbounded(t)
	return b
}

// remarkPassword adds a remark on how to keep a password out of a matrix.
func remarkPassword(t *table, key, url string) {
	if strings.Contains(url, "@") {
		t.remark(key, `it may contain a password: "${env:NAME}" in the broker's options keeps that out of the file`)
	}
}

// unbounded adds a remark that matrices limit unconfirmed messages, and the benchmark does not.
func unbounded(t *table) {
	t.note("the benchmark has no limit of unconfirmed messages; here it is %d per publisher (maxInFlight)",
		ombWindow)
}

// ombNATS reads the driver file of NATS: one stream on disk per topic, over one connection.
func ombNATS(t *table, w workload) broker {
	onePartition(t, w)
	b := broker{driver: "nats", mode: "confirm-window", window: ombWindow, persistent: true, shared: true,
		ack: []field{{"ack", "each"}}, prefetch: 1000}
	url := t.text("natsHostUrl", "")
	if url == "" {
		t.fail("natsHostUrl is missing: give the address of the server")
	}
	if !strings.Contains(url, "://") {
		url = "nats://" + url
	}
	remarkPassword(t, "natsHostUrl", url)
	replicas := t.number("replicationFactor", 1, 1, 5)
	if !slices.Contains([]int64{1, 3, 5}, replicas) {
		t.invalid(t.find("replicationFactor"), "%d: a stream has 1, 3 or 5 replicas", replicas)
	}
	b.options = []field{{"url", url}, {"storage", "file"}, {"replicas", replicas}}
	unbounded(t)
	return b
}

// confirmationWindow is the maximum of unconfirmed bytes that the benchmark sets for Artemis's client.
const confirmationWindow = 1 << 20

// ombArtemis reads the driver file of Artemis. The benchmark uses Artemis's own protocol. The driver here uses AMQP
// 1.0, by default on the same port.
func ombArtemis(t *table, w workload) broker {
	onePartition(t, w)
	b := broker{driver: "artemis", mode: "confirm-window", window: max(1, confirmationWindow/max(1, w.size)),
		persistent: true, shared: true, ack: []field{{"ack", "each"}}, prefetch: 1000}
	address := t.text("brokerAddress", "")
	if address == "" {
		t.fail("brokerAddress is missing: give the address of the broker")
		return b
	}
	rest, ok := strings.CutPrefix(address, "tcp://")
	host, parameters, _ := strings.Cut(rest, "?")
	if !ok || host == "" {
		t.invalid(t.find("brokerAddress"), "it is not of the form tcp://host:port")
	}
	remarkPassword(t, "brokerAddress", host)
	if parameters != "" {
		t.remark("brokerAddress", "the parameters after the ? belong to Artemis's own client and are ignored")
	}
	t.remark("brokerAddress",
		"the benchmark uses Artemis's own protocol; here it is AMQP 1.0, which the same port accepts by default")
	b.options = []field{{"url", "amqp://" + host}, {"routing", "multicast"}}
	return b
}
