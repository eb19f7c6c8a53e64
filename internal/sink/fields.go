package sink

import (
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
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
	record.Rejected:  {key: "rejected", role: publishes, confirm: true, doc: "messages that the broker refused"},
	record.Unconfirmed: {key: "unconfirmed", role: publishes, confirm: true,
		doc: "messages whose link broke before the confirm"},
	record.Returned: {key: "unroutable", role: publishes, doc: "messages that the broker returned"},
	record.PublishErrors: {key: "publish.errors", role: publishes,
		doc: "calls that failed; the message may have gone out"},
	record.PortsExhausted: {key: "ports.exhausted", role: publishes,
		doc: "connections that could not be opened for want of local ports"},
	record.ConnBlockedNanos: {key: "connection.blocked", role: publishes, nanos: true,
		doc: "time that the broker held connections back, counted where it ended"},
	record.Unsent: {key: "unsent", role: publishes,
		doc: "messages due inside the measurement and never sent"},
	record.Received: {key: "received", role: consumes, doc: "deliveries of whole messages of this task"},
	record.ReceivedBytes: {key: "received.bytes", role: consumes,
		doc: "bytes of the bodies received for the first time"},
	record.Unique: {key: "unique", role: consumes, doc: "messages received by a consumer for the first time"},
	record.Duplicated: {key: "duplicated", role: consumes,
		doc: "messages received by the same consumer again; what two consumers both got is in the outcome alone"},
	record.Reordered: {key: "reordered", role: consumes,
		doc: "messages received after a later one of the same stream"},
	record.Redelivered:  {key: "redelivered", role: consumes, doc: "deliveries that the broker marks as such"},
	record.Corrupt:      {key: "corrupt", role: consumes, doc: "bodies whose envelope does not verify"},
	record.Foreign:      {key: "foreign", role: consumes, doc: "whole envelopes of another task"},
	record.Reconnects:   {key: "reconnects", role: either, doc: "links opened again after they broke"},
	record.Timeouts:     {key: "errors.timeout", role: publishes, doc: "of the publish errors: a deadline passed"},
	record.ClosedErrors: {key: "errors.closed", role: publishes, doc: "of the publish errors: the link was gone"},
	record.Nacked:       {key: "nacked", doc: "deliveries that consumers refused (consumers.nack)"},
	record.Connects:     {key: "connects", doc: "publishers and consumers that connected (lifetime)"},
	record.Disconnects:  {key: "disconnects", doc: "publishers and consumers that disconnected (lifetime)"},
	record.SpinNanos: {key: "spin", nanos: true,
		doc: "time that pacing spent polling the clock, where sleeping cannot hold the rate"},
	record.BindingsMade: {key: "binding.made",
		doc: "bindings that the broker confirmed while messages flowed (topology.churn)"},
	record.BindingsRemoved: {key: "binding.removed", doc: "bindings removed again while messages flowed"},
	record.BindingErrors:   {key: "binding.errors", doc: "calls to make or remove a binding that failed"},
	record.BindingSent:     {key: "binding.sent", doc: "messages sent through such bindings"},
	record.BindingReceived: {key: "binding.received", doc: "deliveries of messages through such bindings"},
}

func counterFieldOf(c record.Counter) counterField {
	if f, known := counterFields[c]; known {
		return f
	}
	return counterField{key: c.String(), nanos: strings.HasSuffix(c.String(), "Nanos"),
		doc: "the record's counter of this name"}
}

// seriesField defines how a distribution of a window is written: key.count, key.p50 and so on.
type seriesField struct{ key, doc string }

var seriesFields = map[record.Series]seriesField{
	record.Publish:         {"publish", "publish call to confirm"},
	record.PublishIntended: {"publish.intended", "intended send time to confirm (open loop)"},
	record.EndToEnd:        {"e2e", "intended send time (closed loop: publish call) to delivery"},
	record.SendDelay:       {"send_delay", "how late the generator itself sent (open loop)"},
	record.Backpressure:    {"backpressure", "how long the broker kept the publisher from sending (open loop)"},

	record.UnsentAge: {"unsent.age",
		"intended send time to the end of the drain, of messages that were due inside the measurement and never sent (open loop)"},
	record.Unanswered: {"unanswered",
		"intended send time to error or loss of the link, of messages without an answer of the broker (open loop)"},
	record.PublishFailed: {"publish.failed", "publish call to refusal, error or loss of the link"},
	record.Pacing: {"pacing",
		"by how much the time between two sends was off the one between their intended send times (open loop, messages that the broker did not hold)"},
	record.GCPause: {"gc", "pauses of the agent's process for garbage collection"},
	record.NetworkDelay: {"network.delay",
		"simulated network: how much later than asked for a piece was handed over, one way"},
	record.Scheduling: {"sched",
		"how long goroutines of the agent's process that could run waited for a processor (one in eight is sampled)"},

	record.Binding: {"binding",
		"call that makes a binding (topology.churn) to the broker's word that it is made"},
	record.BindingMessage: {"binding.message",
		"publish call to delivery of messages through such a binding, less the first received"},
}

func seriesFieldOf(s record.Series) seriesField {
	if f, known := seriesFields[s]; known {
		return f
	}
	return seriesField{s.String(), "the record's series of this name"}
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
		f, n := counterFieldOf(c), w.Counts[c]
		switch {
		case n == 0 && !applies(f):
		case f.nanos:
			fields[f.key] = time.Duration(n).Seconds()
		default:
			fields[f.key] = n
		}
	}
	for _, rate := range rates {
		if n := w.Counts[rate.counter]; w.Length > 0 && (n != 0 || applies(counterFieldOf(rate.counter))) {
			fields[rate.key] = float64(n) / time.Duration(w.Length).Seconds()
		}
	}
	for _, s := range record.AllSeries() {
		if h := w.Hists[s]; h != nil {
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
