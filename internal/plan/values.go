package plan

import (
	"slices"
	"strings"
)

// ValueInfo describes a value that tables can show. This list is the only place where values are named.
type ValueInfo struct {
	Name  string
	Title string // a column's heading
	Unit  Unit
	Doc   string
}

// Unit says how a value's Number is to be read and shown.
type Unit string

// The units. Durations are in seconds.
const (
	PerSecond Unit = "1/s"
	Seconds   Unit = "s"
	Count     Unit = "count"
	Bytes     Unit = "bytes"
	BytesRate Unit = "bytes/s"
	Cores     Unit = "cores" // 1 is one core busy all the time
	Ratio     Unit = "ratio" // a part of one: 0 to 1
	Text      Unit = "text"
)

// Values lists every value, in the order of the documentation.
func Values() []ValueInfo {
	values := []ValueInfo{
		{"send.rate", "Send msgs/s", PerSecond, "messages sent inside the measurement, a second"},
		{"confirm.rate", "Confirm msgs/s", PerSecond, "messages confirmed inside the measurement, a second"},
		{"receive.rate", "Receive msgs/s", PerSecond, "messages received inside the measurement, a second, over all subscriptions: of each consumer, those that it received for the first time; one that came again to another consumer counts twice, and in duplicated"},
		{"send.bytes", "Send bytes/s", BytesRate, "bytes of the bodies sent inside the measurement, a second"},
		{"receive.bytes", "Receive bytes/s", BytesRate, "bytes of the bodies of the messages in receive.rate, a second"},
		{"throughput", "Throughput msgs/s", Text, "one rate and \"balanced\" when sending and receiving agree within 2 % and no backlog of a subscription or queue grows, else send / receive"},
	}
	for _, s := range []struct{ name, title, doc string }{
		{"send", "Send", "send call to confirm, of messages due inside the measurement"},
		{"send.due", "Send from due", "due time to confirm (open loop); a message that was not sent, or failed without an answer of the broker, counts with its age, and what depends on it is a lower bound"},
		{"processing", "Processing", "due time (closed loop: send call) to receipt"},
		{"lateness", "Lateness", "how late the generator itself sent (open loop)"},
		{"blocked", "Blocked", "how long the broker kept the publisher from sending (open loop)"},
		{"send.failed", "Send failed", "send call to refusal, error or loss of the link: messages that failed, which are in no other latency of sending"},
		{"pacing", "Pacing error", "by how much the time between two sends was off the one between their due times, of messages that the broker did not hold (open loop)"},
	} {
		for _, q := range Quantiles() {
			values = append(values, ValueInfo{s.name + "." + q.Name, s.title + " " + q.Name, Seconds, s.doc})
		}
	}
	for _, s := range []struct{ name, title string }{{"send", "Send"}, {"processing", "Processing"}} {
		for _, q := range HighestQuantiles() {
			values = append(values, ValueInfo{s.name + "." + q.Name + ".highest", s.title + " " + q.Name + ", highest", Seconds,
				"the highest " + q.Name + " of any full interval of the measurement (the cell's interval: a minute)"})
		}
	}
	values = append(append(values, accountValues()...), figureValues()...)
	for _, b := range []struct{ name, title, doc string }{
		{"binding", "Binding", "call that makes a binding (topology.churn) to the broker's word that it is made"},
		{"binding.first", "Binding to first", "call that makes a binding to the receipt of the first message through it"},
		{"binding.message", "Binding message", "send call to receipt, of further messages through such a binding"},
	} {
		for _, q := range Quantiles() {
			values = append(values, ValueInfo{b.name + "." + q.Name, b.title + " " + q.Name, Seconds, b.doc})
		}
	}
	return append(values, bindingValues()...)
}

const networkLatency = "latency that the simulated network added to a round trip: the one asked for, and twice the delay of a piece one way; jitter, " +
	"bandwidth and faults are not in it; a p50 more than 5 % and 100 µs above the one asked for is flagged latency-off"

// accountValues are those of the account of messages, of links and of the agents themselves.
func accountValues() []ValueInfo {
	return []ValueInfo{
		{"sent", "Sent", Count, "messages that Publish accepted, warm-up included"},
		{"confirmed", "Confirmed", Count, "messages confirmed, warm-up included"},
		{"received", "Received", Count, "different messages received, over all subscriptions"},
		{"lost", "Lost", Count, "accepted, not returned, and not received after the silence deadline"},
		{"processing.negative", "Negative", Count, "processing latencies below zero: clocks were further apart than their bound; they are in no quantile"},
		{"start.skew", "Start skew", Seconds, "how far apart the agents began to send, or to receive, give or take how well their clocks were known"},
		{"unsent", "Unsent", Count, "due inside the measurement, and not sent when the drain ended (open loop); quantiles count each with its age"},
		{"undrained", "Undrained", Count, "not received when the drain was cut by its limit"},
		{"unknown", "Unknown", Count, "beyond what a lost agent had reported"},
		{"duplicated", "Duplicated", Count, "received again"},
		{"reordered", "Reordered", Count, "received after a later one of the same publisher, consumer and stream (RFC 4737)"},
		{"unroutable", "Unroutable", Count, "returned by the broker (mandatory)"},
		{"rejected", "Rejected", Count, "refused by the broker"},
		{"publish.errors", "Publish errors", Count, "calls that failed; the message may have gone out"},
		{"errors.closed", "Errors: closed", Count, "of the publish errors: the link was gone"},
		{"errors.timeout", "Errors: timeout", Count, "of the publish errors: a deadline passed"},
		{"errors.other", "Errors: other", Count, "of the publish errors: the rest"},
		{"nacked", "Nacked", Count, "deliveries that consumers refused (consumers.nack), so that they came again; they are not in received"},
		{"joins", "Joins", Count, "publishers and consumers that joined (presence) after the start"},
		{"leaves", "Leaves", Count, "publishers and consumers that left (presence)"},
		{"backlog.most", "Backlog", Count, "most messages that were sent and not received yet, over all subscriptions, at the end of any second up to the end of the measurement"},
		{"backlog.drain", "Backlog drain", Seconds, "when consumers join late (consumers.presence.from): from then until no more messages wait than are in flight anyway; known to ± half a second"},
		{"catchup.rate", "Catch-up msgs/s", PerSecond, "messages received a second from when consumers joined, in the seconds before the one in which the backlog was gone, or until the measurement ended"},
		{"ports.exhausted", "Ports exhausted", Count, "connections that could not be opened for want of local ports: the client's limit"},
		{"reconnects", "Reconnects", Count, "links opened again after they broke"},
		{"gap.longest", "Longest gap", Seconds, "longest time one publisher or consumer was without its link"},
		{"gap.confirm", "Without confirm", Seconds, "longest time inside the measurement in which no publisher at all got a confirm though one waited for it; \"<\": shorter than what is kept"},
		{"gap.receipt", "Without receipt", Seconds, "longest time inside the measurement in which no consumer at all received anything; \"<\": shorter than what is kept"},
		{"recovery.confirm", "To first confirm", Seconds, "from the end of a fault to the next confirm, the longest where there are several faults; \"<\": shorter than what is kept"},
		{"recovery.receipt", "To first receipt", Seconds, "from the end of a fault to the next receipt, the longest where there are several faults; \"<\": shorter than what is kept"},
		{"connection.blocked", "Conn. blocked", Seconds, "time that the broker held connections back (connection.blocked), summed over publishers' connections"},
		{"network.latency.p50", "Network p50", Seconds, networkLatency},
		{"network.latency.p99", "Network p99", Seconds, networkLatency},
		{"warmup.cut", "Warm-up", Seconds, "how long the load ran before the measurement; with warmup \"auto\", until it was found to be steady"},
		{"agent.cpu", "Agent CPU", Cores, "of the busiest agent process, mean of the measurement; the processes of its drivers in other languages count in it"},
		{"agent.rss", "Agent RSS", Bytes, "of the largest agent process, greatest of the measurement; the processes of its drivers in other languages count in it"},
		{"agent.spin", "Agent spin", Cores, "of the agent's CPU, what pacing spends polling the clock where sleeping cannot hold the rate; of the agent process that spins most, at most"},
		{"agent.waited", "Agent waited", Ratio, "the part of the time in which threads of an agent's process were runnable that they waited for a CPU; of the one that waited most"},
		{"agent.gc.p99", "GC pause p99", Seconds, "pauses of agent processes for garbage collection; Go tells them to a quarter, the larger is shown"},
		{"agent.gc.max", "GC pause max", Seconds, "the longest of them; 0: there was none"},
		{"agent.sched.p99", "Sched. latency p99", Seconds, "how long goroutines of agent processes that could run waited for a processor (one in eight is sampled); Go tells it to a quarter, the larger is shown"},
		{"agent.sched.max", "Sched. latency max", Seconds, "the longest of them"},
	}
}

// bindingValues are counts of bindings that come and go, and what searches find.
func bindingValues() []ValueInfo {
	return []ValueInfo{
		{"binding.made", "Bindings made", Count, "bindings that the broker has confirmed (topology.churn), warm-up included"},
		{"binding.removed", "Bindings removed", Count, "bindings that were removed again while messages flowed"},
		{"binding.errors", "Binding errors", Count, "calls to make or remove a binding that failed"},
		{"binding.sent", "Binding sent", Count, "messages sent through bindings after the broker had confirmed them"},
		{"binding.received", "Binding received", Count, "different messages of those that were received"},
		{"binding.lost", "Binding lost", Count, "messages of those that were not received until the drain ended by silence"},
		{"capacity", "Capacity msgs/s", PerSecond, "the highest rate at which the condition of a search held, in repeated verification; its table says how many verifications held"},
		{"capacity.low", "Capacity, low", PerSecond, "the lowest rate that really passed in these verifications: received or, without consumers, sent"},
		{"capacity.high", "Capacity, high", PerSecond, "the lowest rate above it at which the condition failed at least twice, and has not held since"},
	}
}

// Resolution is the least latency, in seconds, that tables tell apart: one that is less is shown as "< 1 µs". The histograms hold every
// nanosecond there, but a latency is the difference of two clock reads, each of which takes 20 to 50 ns, with up to some hundred
// nanoseconds of the engine's own work between a read and the call of the driver that it stands for.
const Resolution = 1e-6

// Latency tells whether a value is a quantile of measured times.
func (v ValueInfo) Latency() bool {
	if v.Unit != Seconds {
		return false
	}
	name := strings.TrimSuffix(v.Name, ".highest")
	return slices.ContainsFunc(Quantiles(), func(q Quantile) bool { return strings.HasSuffix(name, "."+q.Name) })
}

// Quantile is a named point of a latency distribution; Q 1 is the greatest sample.
type Quantile struct {
	Name string
	Q    float64
}

// Quantiles lists those that every latency has.
func Quantiles() []Quantile {
	return []Quantile{{"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}}
}

// HighestQuantiles lists those of which the highest over full intervals is taken.
func HighestQuantiles() []Quantile {
	return []Quantile{{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}}
}
