package sink

import (
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// role is the role of an agent in a task.
type role uint8

const (
	publishes role = 1 << iota
	consumes
	either = publishes | consumes
)

func (r role) String() string {
	switch r {
	case publishes:
		return "publisher"
	case consumes:
		return "consumer"
	}
	return "both"
}

// counterField defines how a counter of a window is written. It is always written for agents of its role, even if it is
// 0. For other agents it is written only if it is not 0.
type counterField struct {
	key     string
	role    role
	confirm bool // only if messages are confirmed
	nanos   bool // a duration: written in seconds
	doc     string
}

// counterFields maps counters to field names, with the terms of the tables. A counter that is missing here has its name
// in the record.
var counterFields = map[record.Counter]counterField{
	record.Sent:      {key: "sent", role: publishes, doc: "messages that Publish accepted"},
	record.SentBytes: {key: "sent.bytes", role: publishes, doc: "bytes of their bodies"},
	record.Confirmed: {key: "confirmed", role: publishes, confirm: true, doc: "messages confirmed"},
	record.Rejected:  {key: "rejected", role: publishes, confirm: true, doc: "messages that the broker rejected"},
	record.Unconfirmed: {key: "unconfirmed", role: publishes, confirm: true,
		doc: "messages whose connection broke before the confirm"},
	record.Returned: {key: "unroutable", role: publishes, doc: "messages that the broker returned"},
	record.PublishErrors: {key: "publish.errors", role: publishes,
		doc: "calls that failed; the message may have been sent"},
	record.PortsExhausted: {key: "ports.exhausted", role: publishes,
		doc: "connections that failed because there was no free local port"},
	record.ConnBlockedNanos: {key: "connection.blocked", role: publishes, nanos: true,
		doc: "time in which the broker blocked connections, counted in the second in which it ended"},
	record.Unsent: {key: "unsent", role: publishes,
		doc: "messages due inside the measurement and never sent"},
	record.Received: {key: "received", role: consumes, doc: "deliveries of intact messages of this task"},
	record.ReceivedBytes: {key: "received.bytes", role: consumes,
		doc: "bytes of the bodies received for the first time"},
	record.Unique: {key: "unique", role: consumes, doc: "messages received by a consumer for the first time"},
	record.Duplicated: {key: "duplicated", role: consumes,
		doc: "messages received again by the same consumer; duplicates across consumers are only in the outcome"},
	record.Reordered: {key: "reordered", role: consumes,
		doc: "messages received after a later one of the same stream"},
	record.Redelivered: {key: "redelivered", role: consumes, doc: "deliveries that the broker marks as redelivered"},
	record.Corrupt:     {key: "corrupt", role: consumes, doc: "bodies with an invalid envelope"},
	record.Foreign:     {key: "foreign", role: consumes, doc: "valid envelopes of another task; from existing queues, all messages that the task did not send"},
	record.Reconnects:  {key: "reconnects", role: either, doc: "connections reopened after they broke"},
	record.Retries: {key: "retries", role: publishes,
		doc: "requests that the client library repeated because of a failure"},
	record.Republished: {key: "republished", role: publishes, confirm: true,
		doc: "messages published again because their connection broke before the confirm"},
	record.Timeouts:     {key: "errors.timeout", role: publishes, doc: "publish errors because of a timeout"},
	record.ClosedErrors: {key: "errors.closed", role: publishes, doc: "publish errors because of a closed connection"},
	record.Nacked:       {key: "nacked", doc: "deliveries that consumers nacked (consumers.nack)"},
	record.Connects:     {key: "connects", doc: "publishers and consumers that connected (lifetime)"},
	record.Disconnects:  {key: "disconnects", doc: "publishers and consumers that disconnected (lifetime)"},
	record.SpinNanos: {key: "spin", nanos: true,
		doc: "time that pacing spent polling the clock, because sleeping is too coarse for the rate"},
	record.BindingsMade: {key: "binding.made",
		doc: "bindings that the broker confirmed while messages flowed (topology.churn)"},
	record.BindingsRemoved: {key: "binding.removed", doc: "bindings removed while messages flowed"},
	record.BindingErrors:   {key: "binding.errors", doc: "failed calls to create or remove a binding"},
	record.BindingSent:     {key: "binding.sent", doc: "messages sent through such bindings"},
	record.BindingReceived: {key: "binding.received", doc: "deliveries of messages through such bindings"},
}

func counterFieldOf(c record.Counter) counterField {
	if f, known := counterFields[c]; known {
		return f
	}
	return counterField{key: c.String(), nanos: strings.HasSuffix(c.String(), "Nanos"),
		doc: "the counter of the record with this name"}
}

// seriesField defines how a distribution of a window is written: key.count, key.p50 and so on.
type seriesField struct{ key, doc string }

var seriesFields = map[record.Series]seriesField{
	record.Publish:         {"publish", "publish call to confirm"},
	record.PublishIntended: {"publish.intended", "intended send time to confirm (open loop)"},
	record.EndToEnd:        {"e2e", "intended send time (closed loop: publish call) to delivery"},
	record.SendDelay:       {"send_delay", "send delay: actual minus intended send time, caused by the load generator (open loop)"},
	record.Backpressure:    {"backpressure", "time in which back-pressure of the broker prevented sending (open loop)"},

	record.UnsentAge: {"unsent.age",
		"intended send time to the end of the drain, of messages of the measurement never sent (open loop)"},
	record.Unanswered: {"unanswered",
		"intended send time to error or loss of the connection, of messages without a response (open loop)"},
	record.PublishFailed: {"publish.failed", "publish call to rejection, error or loss of the connection"},
	record.Pacing: {"pacing",
		"pacing error: deviation from the intended interval between two sends, without back-pressure (open loop)"},
	record.GCPause: {"gc", "garbage collection pauses of the agent's process"},
	record.NetworkDelay: {"network.delay",
		"simulated network: delay beyond the configured delay, one way"},
	record.Scheduling: {"sched",
		"time that runnable goroutines of the agent's process waited for a CPU (one in eight is sampled)"},

	record.Binding: {"binding",
		"intended time of a new binding (topology.churn) to its confirm. Without one: to the end of the load"},
	record.BindingMessage: {"binding.message",
		"publish call to delivery of messages through such a binding, without the first one received"},
}

func seriesFieldOf(s record.Series) seriesField {
	if f, known := seriesFields[s]; known {
		return f
	}
	return seriesField{s.String(), "the series of the record with this name"}
}

// rates are counters per second.
var rates = []struct {
	key     string
	counter record.Counter
}{{"publish.rate", record.Sent}, {"confirm.rate", record.Confirmed}, {"consume.rate", record.Unique}}

// fieldsOf returns the fields of a window of agents with a role.
func fieldsOf(w *window, r role, confirmed bool) map[string]any {
	fields := map[string]any{}
	applies := func(f counterField) bool { return f.role&r != 0 && (confirmed || !f.confirm) }
	for _, c := range record.Counters() {
		f, n := counterFieldOf(c), w.data.Counts[c]
		switch {
		case n == 0 && !applies(f):
		case f.nanos:
			fields[f.key] = time.Duration(n).Seconds()
		default:
			fields[f.key] = n
		}
	}
	for _, rate := range rates {
		if n := w.data.Counts[rate.counter]; w.data.Length > 0 && (n != 0 || applies(counterFieldOf(rate.counter))) {
			fields[rate.key] = float64(n) / time.Duration(w.data.Length).Seconds()
		}
	}
	for _, s := range record.AllSeries() {
		if h := w.data.Hists[s]; h != nil {
			addSeries(fields, seriesFieldOf(s).key, h)
		}
	}
	return fields
}

// addSeries adds the fields of a distribution. Quantiles are in seconds; without samples there are none.
func addSeries(fields map[string]any, key string, h *record.Hist) {
	fields[key+".count"] = int64(h.Count())
	if n := h.Negative(); n > 0 {
		fields[key+".negative"] = int64(n)
	}
	if h.Count() == 0 {
		return
	}
	for _, q := range plan.Quantiles() {
		fields[key+"."+q.Name] = time.Duration(h.Quantile(q.Q)).Seconds()
	}
}
