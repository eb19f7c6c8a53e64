package translate

import (
	"slices"

	"example.org/lockstep/lockstep/internal/plan"
)

// run is one measurement of PerfTest, in terms of a matrix.
type run struct {
	scenario              string
	options               []field
	publishers, consumers int64 // threads
	channels              int64 // per connection
	queues, subscriptions int64
	mode                  string
	window, count         int64
	rate                  float64 // of all publishers together
	persistent, mandatory bool
	prefetch, ackEvery    int64
	ack                   string
	size                  int64
	measure               string
}

// perfLost are the parameters without a counterpart, with reasons.
var perfLost = map[string]string{
	"autoDelete":                        "each task creates its own queues and exchanges and removes them",
	"bodyContentType":                   "set the option message.contentType of the broker",
	"bodyFiles":                         "set message.payload: kind \"file\", and message.size",
	"confirmTimeout":                    "missing confirms are counted after the drain",
	"consumerLatencyInMicroseconds":     "set consumers.process",
	"consumerMsgCount":                  "consumers receive all messages until the drain ends",
	"consumerRateLimit":                 "consumers have no rate limit",
	"consumerSlowStart":                 "consumers connect before the first message",
	"consumerTxSize":                    "there are no transactions",
	"exchangeName":                      "names of exchanges are generated per task",
	"exclusive":                         "several agents may use a queue",
	"heartbeatSenderThreads":            "it configures the threads of PerfTest",
	"messageProperties":                 "set the option message of the broker",
	"predeclared":                       "each task creates its own queues and exchanges; set topology.existing to use an existing queue",
	"producerRandomStartDelayInSeconds": "publishers start together",
	"producerSchedulerThreadCount":      "it configures the threads of PerfTest",
	"producerTxSize":                    "there are no transactions",
	"randomRoutingKey":                  "routing keys are those of the queue's bindings",
	"routingKey":                        "routing keys are those of the queue's bindings",
	"routingKeyCacheSize":               "routing keys are those of the queue's bindings",
	"skipBindingQueues":                 "queues are always bound",
	"useMillis":                         "times are in nanoseconds",
}

// perfKnown are the parameters with a counterpart.
var perfKnown = []string{
	"autoAck", "channelPrefetch", "confirm", "consumerChannelCount", "consumerCount", "consumerPrefetch",
	"exchangeType", "flags", "minMsgSize",
	"msgCount", "multiAckEvery", "producerChannelCount", "producerCount", "producerMsgCount", "producerRateLimit",
	"publishingInterval",
	"queueArguments", "queueNames", "queuePattern", "queueSequenceFrom", "queueSequenceTo", "timeLimit",
}

// readRun reads a set of parameters.
func readRun(t *table, uri string) run {
	r := run{options: []field{{"url", uri}}}
	readThreads(t, &r)
	readSending(t, &r)
	readReceiving(t, &r)
	readQueues(t, &r)
	readEnd(t, &r)
	size := t.number("minMsgSize", 0, 0, plan.MaxMessageSize)
	if r.size = max(size, plan.MinMessageSize); size < plan.MinMessageSize && t.find("minMsgSize") != nil {
		t.remark("minMsgSize", "%d raised to %d bytes, the size of the envelope of a message", size, plan.MinMessageSize)
	}
	for key, why := range perfLost {
		t.lose(key, "%s", why)
	}
	t.rest("PerfTest's parameters")
	return r
}

func readThreads(t *table, r *run) {
	producers, consumers := t.number("producerCount", 1, 1, plan.MaxThreads), t.number("consumerCount", 1, 0, plan.MaxThreads)
	perProducer, perConsumer := t.number("producerChannelCount", 1, 1, 65_535),
		t.number("consumerChannelCount", 1, 1, 65_535)
	r.publishers, r.consumers, r.channels = producers*perProducer, consumers*perConsumer, perProducer
	if consumers > 0 && perConsumer != perProducer {
		t.remark("consumerChannelCount",
			"a connection has the same number of channels for consumers and publishers: %d", perProducer)
		t.remark("producerChannelCount",
			"a connection has the same number of channels for consumers and publishers: %d", perProducer)
	}
	for _, role := range []struct {
		key string
		n   int64
	}{{"producerChannelCount", r.publishers}, {"consumerChannelCount", r.consumers}} {
		if e := t.find(role.key); e != nil && role.n > plan.MaxThreads {
			t.invalid(e, "%d threads in all, and the maximum per agent is %d", role.n, plan.MaxThreads)
		}
	}
}

func readSending(t *table, r *run) {
	switch confirm := t.number("confirm", -1, -1, 100_000_000); confirm {
	case -1:
		r.mode, r.window = "fire-and-forget", 1000
	case 0:
		r.mode, r.window = "confirm-window", perfWindow
		t.remark("confirm", "PerfTest then has no limit of unconfirmed messages; here it is %d per publisher",
			perfWindow)
	default:
		r.mode, r.window = "confirm-window", confirm
	}
	r.rate = t.decimal("producerRateLimit", 0, 0, 1e9) * float64(r.publishers)
	if interval := t.number("publishingInterval", 0, -1, 1<<31); interval > 0 {
		if r.rate > 0 {
			t.remark("publishingInterval", "it has priority over the rate")
		}
		r.rate = float64(r.publishers) / float64(interval)
	}
	readFlags(t, r)
}

func readFlags(t *table, r *run) {
	e := t.take("flags")
	if e == nil {
		return
	}
	if !e.value.isList {
		t.invalid(e, "it is %s; give a list", e.value.describe())
		return
	}
	for _, flag := range e.value.list {
		switch flag.text {
		case "persistent":
			r.persistent = true
		case "mandatory":
			r.mandatory = true
		default:
			t.remark("flags", "%q has no counterpart", flag.text)
		}
	}
}

func readReceiving(t *table, r *run) {
	r.ack, r.ackEvery = "each", 100
	if every := t.number("multiAckEvery", 0, 0, 1_000_000); every > 0 {
		r.ack, r.ackEvery = "every", every
	}
	if t.yes("autoAck", false) {
		if r.ack == "every" {
			t.remark("multiAckEvery", "no effect with auto-ack, as in PerfTest")
		}
		r.ack = "automatic"
	}
	r.prefetch = t.number("consumerPrefetch", 0, 0, 1_000_000)
	if channel := t.number("channelPrefetch", 0, 0, 1_000_000); channel > 0 {
		if r.prefetch == 0 || channel < r.prefetch {
			r.prefetch = channel
		}
		t.remark("channelPrefetch",
			"the prefetch applies to a consumer, which has its own channel; the smaller of both is used")
	}
	switch {
	case r.ack != "every":
		r.ackEvery = 100 // has no effect
	case r.prefetch > 0 && r.prefetch < r.ackEvery:
		t.remark("multiAckEvery",
			"lowered to the prefetch, %d: the broker sends no more before the first acknowledgement", r.prefetch)
		r.ackEvery = r.prefetch
	}
}

func readQueues(t *table, r *run) {
	r.queues, r.subscriptions = 1, 1
	from, to := t.number("queueSequenceFrom", 1, 0, 1<<31), t.number("queueSequenceTo", 0, 0, 1<<31)
	if t.take("queuePattern") != nil || to > 0 {
		if r.queues = to - from + 1; r.queues < 1 || r.queues > plan.MaxQueues {
			t.fail("queues %d to %d: give 1 to %d queues", from, to, plan.MaxQueues)
			r.queues = 1
		}
		t.remark("queuePattern", "names of queues are generated per task")
		if r.consumers > 0 && r.consumers < r.queues {
			t.remark("queueSequenceTo",
				"%d queues instead of %d: each queue needs a consumer", r.consumers, r.queues)
			r.queues = r.consumers
		}
	}
	if e := t.take("queueNames"); e != nil {
		if !e.value.isList {
			t.invalid(e, "it is %s; give a list", e.value.describe())
		}
		if n := int64(len(e.value.list)); n > 1 {
			r.subscriptions = n
			t.remark("queueNames",
				"each of the %d queues receives every message: it becomes one of %d subscriptions, each with its own consumers", n, n)
		} else {
			t.remark("queueNames", "names of queues are generated per task")
		}
	}
	arguments := readArguments(t)
	if named := t.find("queueNames"); t.find("queuePattern") == nil && to == 0 &&
		(named == nil || len(named.value.list) == 0) {
		arguments = readUnnamed(t, r, arguments)
	}
	r.options = append(r.options, arguments...)
	kind := t.text("exchangeType", "direct")
	if !slices.Contains([]string{"direct", "fanout", "topic", "headers"}, kind) {
		t.remark("exchangeType", "%q is replaced by direct: supported are direct, fanout, topic and headers", kind)
		kind = "direct"
	}
	r.options = append(r.options, field{"exchange", []field{{"type", kind}}})
}

// readUnnamed applies PerfTest's behaviour without names of queues. Each consumer declares its own queue, which
// receives every message. Without consumers there is no queue.
func readUnnamed(t *table, r *run, arguments []field) []field {
	switch {
	case r.consumers > 1:
		for _, key := range []string{"consumerCount", "consumerChannelCount"} {
			t.remark(key,
				"without names of queues each of the %d consumers of PerfTest has its own queue, which receives every message; each becomes a "+
					"subscription with one consumer", r.consumers)
		}
		if r.consumers > plan.MaxSubscriptions {
			t.fail("%d consumers with one queue each: the maximum is %d; set queue-names to share a queue",
				r.consumers, plan.MaxSubscriptions)
		}
		r.subscriptions, r.consumers = r.consumers, 1
	case r.consumers == 0:
		t.remark("queueArguments", "without consumers and names of queues PerfTest declares no queue")
		t.remark("consumerCount",
			"without consumers and names of queues PerfTest has no queue, and the broker drops all messages; here one queue stores one message")
		return []field{{"queue", []field{{"maxLength", 1}, {"overflow", "drop-head"}}}}
	}
	return arguments
}

// readArguments reads the arguments of queues. Some have their own options in matrices.
func readArguments(t *table) (options []field) {
	e := t.take("queueArguments")
	if e == nil {
		return nil
	}
	if e.value.table == nil {
		t.invalid(e, "it is %s; give keys and values", e.value.describe())
		return nil
	}
	inner := e.value.table
	var queue, arguments []field
	for _, a := range inner.keys {
		inner.use(a)
		n, number := a.value.whole()
		switch {
		case a.value.table != nil || a.value.isList || a.value.null:
			inner.invalid(a, "it is %s; give text, a number, true or false", a.value.describe())
		case a.key == "x-queue-type" && slices.Contains([]string{"classic", "quorum", "stream"}, a.value.text):
			queue = append(queue, field{"type", a.value.text})
		case a.key == "x-max-length" && number:
			queue = append(queue, field{"maxLength", n})
		case a.key == "x-max-length-bytes" && number:
			queue = append(queue, field{"maxLengthBytes", n})
		case a.key == "x-overflow" && !number:
			queue = append(queue, field{"overflow", a.value.text})
		case number && !a.value.quoted:
			arguments = append(arguments, field{a.key, n})
		case (a.value.text == "true" || a.value.text == "false") && !a.value.quoted:
			arguments = append(arguments, field{a.key, expression(a.value.text)})
		default:
			arguments = append(arguments, field{a.key, a.value.text})
		}
	}
	if len(arguments) > 0 {
		queue = append(queue, field{"arguments", arguments})
	}
	if len(queue) == 0 {
		return nil
	}
	return []field{{"queue", queue}}
}

// readEnd reads the end of a measurement: a time, a count, or never. Only PerfTest supports never.
func readEnd(t *table, r *run) {
	limit := t.number("timeLimit", 0, 0, 1<<31)
	both := t.number("msgCount", 0, 0, 1_000_000_000_000)
	r.count = t.number("producerMsgCount", both, 0, 1_000_000_000_000)
	if both > 0 {
		t.remark("msgCount", "consumers receive all messages until the drain ends")
	}
	switch {
	case limit > 0:
		r.measure = seconds(limit)
	case r.count > 0:
		r.measure = perfCounted
		t.note("no time-limit: the maximum is " + perfCounted)
	default:
		r.measure = "10s"
		t.note("no time-limit: PerfTest runs until it is stopped; here it is 10s")
	}
}

// fields returns the fields of a run, by the names of their axes.
func (r run) fields() []field {
	return []field{
		{"scenario", r.scenario}, {"options", r.options}, {"size", r.size}, {"publishers", r.publishers},
		{"channels", r.channels}, {"mode", r.mode},
		{"maxInFlight", r.window}, {"rate", r.rate}, {"count", r.count}, {"persistent", r.persistent},
		{"mandatory", r.mandatory},
		{"consumerNodes", min(r.consumers, 1)}, {"consumers", max(r.consumers, 1)}, {"prefetch", r.prefetch},
		{"ack", r.ack}, {"ackEvery", r.ackEvery},
		{"queues", r.queues}, {"subscriptions", r.subscriptions}, {"measure", r.measure},
	}
}
