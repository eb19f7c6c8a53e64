package translate

import (
	"fmt"
	"slices"
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
	"autoDelete":                        "queues and exchanges are made for each task and removed with it here",
	"bodyContentType":                   "bodies are made here: an envelope, then bytes that do not change",
	"bodyFiles":                         "bodies are made here: an envelope, then bytes that do not change; set message.size to their size",
	"confirmTimeout":                    "a confirm that does not come is counted here, when the measurement has drained",
	"consumerLatencyInMicroseconds":     "consumers take no time of their own here",
	"consumerMsgCount":                  "consumers receive what is sent here, and then until nothing comes",
	"consumerRateLimit":                 "consumers receive as fast as it goes here",
	"consumerSlowStart":                 "consumers are there before anything is sent here",
	"consumerTxSize":                    "there are no transactions here",
	"exchangeName":                      "exchanges have names of the task's own here",
	"exclusive":                         "several agents may use a queue here",
	"heartbeatSenderThreads":            "it is a setting of PerfTest's own threads",
	"messageProperties":                 "messages have no properties of their own here",
	"predeclared":                       "queues and exchanges are made for each task here",
	"producerRandomStartDelayInSeconds": "publishers start together here",
	"producerSchedulerThreadCount":      "it is a setting of PerfTest's own threads",
	"producerTxSize":                    "there are no transactions here",
	"randomRoutingKey":                  "keys are those of the queue's bindings here",
	"routingKey":                        "keys are those of the queue's bindings here",
	"routingKeyCacheSize":               "keys are those of the queue's bindings here",
	"skipBindingQueues":                 "queues are bound here",
	"useMillis":                         "times are in nanoseconds here",
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
	size := t.number("minMsgSize", 0, 0, maxSize)
	if r.size = max(size, minSize); size < minSize && t.find("minMsgSize") != nil {
		t.remarkValue("minMsgSize", "%d raised to %d bytes, which the envelope of a message takes", size, minSize)
	}
	for key, why := range perfLost {
		t.lose(key, "%s", why)
	}
	t.rest("PerfTest's parameters")
	return r
}

// remarkValue adds a remark on the value of a key. The value may come from a variable, which has its own line.
func (t *table) remarkValue(name, why string, a ...any) {
	if e := t.find(name); e != nil {
		line := e.line
		if e.value.line > 0 {
			line = e.value.line
		}
		t.report.lost = append(t.report.lost, Lost{t.file, line, e.key, fmt.Sprintf(why, a...)})
	}
}

func readThreads(t *table, r *run) {
	producers, consumers := t.number("producerCount", 1, 1, maxThreads), t.number("consumerCount", 1, 0, maxThreads)
	perProducer, perConsumer := t.number("producerChannelCount", 1, 1, 65_535),
		t.number("consumerChannelCount", 1, 1, 65_535)
	r.publishers, r.consumers, r.channels = producers*perProducer, consumers*perConsumer, perProducer
	if consumers > 0 && perConsumer != perProducer {
		t.remarkValue("consumerChannelCount",
			"a connection has as many channels for consumers as for publishers here: %d", perProducer)
		t.remarkValue("producerChannelCount",
			"a connection has as many channels for consumers as for publishers here: %d", perProducer)
	}
	for _, role := range []struct {
		key string
		n   int64
	}{{"producerChannelCount", r.publishers}, {"consumerChannelCount", r.consumers}} {
		if e := t.find(role.key); e != nil && role.n > maxThreads {
			t.fault(e, "%d threads in all, and one agent runs %d at most", role.n, maxThreads)
		}
	}
}

func readSending(t *table, r *run) {
	switch confirm := t.number("confirm", -1, -1, 100_000_000); confirm {
	case -1:
		r.mode, r.window = "fire-and-forget", 1000
	case 0:
		r.mode, r.window = "confirm-window", perfWindow
		t.remarkValue("confirm", "PerfTest bounds unconfirmed messages by nothing then; here by %d for each publisher",
			perfWindow)
	default:
		r.mode, r.window = "confirm-window", confirm
	}
	r.rate = t.decimal("producerRateLimit", 0, 0, 1e9) * float64(r.publishers)
	if interval := t.number("publishingInterval", 0, -1, 1<<31); interval > 0 {
		if r.rate > 0 {
			t.remark("publishingInterval", "it goes before the rate")
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
		t.fault(e, "it is %s; it has to be a list", e.value.describe())
		return
	}
	for _, flag := range e.value.list {
		switch flag.text {
		case "persistent":
			r.persistent = true
		case "mandatory":
			r.mandatory = true
		default:
			t.remark("flags", "%q has no counterpart here", flag.text)
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
			t.remarkValue("multiAckEvery", "with auto-ack nothing is acknowledged, in PerfTest either")
		}
		r.ack = "automatic"
	}
	r.prefetch = t.number("consumerPrefetch", 0, 0, 1_000_000)
	if channel := t.number("channelPrefetch", 0, 0, 1_000_000); channel > 0 {
		if r.prefetch == 0 || channel < r.prefetch {
			r.prefetch = channel
		}
		t.remarkValue("channelPrefetch",
			"the prefetch is that of a consumer here, which has a channel of its own: the smaller one, where both are given")
	}
	switch {
	case r.ack != "every":
		r.ackEvery = 100 // has no effect
	case r.prefetch > 0 && r.prefetch < r.ackEvery:
		t.remarkValue("multiAckEvery",
			"lowered to the prefetch, %d: the broker sends no more before the first acknowledgement", r.prefetch)
		r.ackEvery = r.prefetch
	}
}

func readQueues(t *table, r *run) {
	r.queues, r.subscriptions = 1, 1
	from, to := t.number("queueSequenceFrom", 1, 0, 1<<31), t.number("queueSequenceTo", 0, 0, 1<<31)
	if t.take("queuePattern") != nil || to > 0 {
		if r.queues = to - from + 1; r.queues < 1 || r.queues > maxQueues {
			t.report.fault(t.file, t.line, "queues %d to %d: there have to be 1 to %d of them", from, to, maxQueues)
			r.queues = 1
		}
		t.remark("queuePattern", "queues have names of the task's own here")
		if r.consumers > 0 && r.consumers < r.queues {
			t.remarkValue("queueSequenceTo",
				"%d queues instead of %d, since there are no more consumers: a queue that nobody reads has no place here", r.consumers, r.queues)
			r.queues = r.consumers
		}
	}
	if e := t.take("queueNames"); e != nil {
		if !e.value.isList {
			t.fault(e, "it is %s; it has to be a list", e.value.describe())
		}
		if n := int64(len(e.value.list)); n > 1 {
			r.subscriptions = n
			t.remark("queueNames",
				"each of the %d queues gets every message: %d subscriptions here, with consumers of its own each", n, n)
		} else {
			t.remark("queueNames", "queues have names of the task's own here")
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
		t.remark("exchangeType", "%q: direct instead, since there are direct, fanout, topic and headers here", kind)
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
			t.remarkValue(key,
				"without names of queues each of the %d consumers has a queue of its own in PerfTest, which gets every message: as many "+
					"subscriptions here, with one consumer each", r.consumers)
		}
		if r.consumers > maxSubscriptions {
			t.report.fault(t.file, t.line,
				"%d consumers with a queue each: there can be %d here; give queue-names for them to share one",
				r.consumers, maxSubscriptions)
		}
		r.subscriptions, r.consumers = r.consumers, 1
	case r.consumers == 0 && len(arguments) == 0:
		t.remarkValue("consumerCount",
			"without consumers and names of queues PerfTest has no queue, and the broker drops what it is sent; here there is one that keeps one message")
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
		t.fault(e, "it is %s; it has to be keys and values", e.value.describe())
		return nil
	}
	inner := e.value.table
	var queue, arguments []field
	for _, a := range inner.keys {
		inner.use(a)
		n, number := a.value.whole()
		switch {
		case a.value.table != nil || a.value.isList || a.value.null:
			inner.fault(a, "it is %s; it has to be text, a number or a truth", a.value.describe())
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
		t.remark("msgCount", "consumers receive what is sent here, and then until nothing comes")
	}
	switch {
	case limit > 0:
		r.measure = seconds(limit)
	case r.count > 0:
		r.measure = perfCounted
		t.report.lost = append(t.report.lost, Lost{t.file, t.line, "",
			"no time-limit: " + perfCounted + " at most for so many messages"})
	default:
		r.measure = "10s"
		t.report.lost = append(t.report.lost, Lost{t.file, t.line, "",
			"no time-limit: PerfTest goes on until it is stopped; here it is 10s"})
	}
}
