package plan

import (
	"slices"
	"strings"
	"sync"
)

// ValueInfo describes a value that tables can show. Values is the only list of values; package judge has the function
// of each.
type ValueInfo struct {
	Name   string
	Title  string // column heading
	Unit   Unit
	Better Direction
	Traits Traits
	Doc    string
}

// Traits state which tasks can have a value, and how the cell's value follows from its groups'.
type Traits uint

// The traits.
const (
	NeedsConsumers Traits = 1 << iota
	NeedsConfirms
	NeedsRate   // open loop: messages have intended send times
	NeedsChurn  // churn of bindings
	NeedsPrompt // consumers that are connected before the messages are sent
	Performance // describes the broker's performance, so flags of the load apply to it
	Sums        // a cell's value is the sum over its groups
	Greatest    // a cell's value is the maximum over its groups
)

// Has reports whether t includes all of these traits.
func (t Traits) Has(all Traits) bool { return t&all == all }

// Unit is the unit of a value's Number. It determines the format.
type Unit string

// The units. Durations are in seconds.
const (
	PerSecond Unit = "1/s"
	Seconds   Unit = "s"
	Count     Unit = "count"
	Bytes     Unit = "bytes"
	BytesRate Unit = "bytes/s"
	Cores     Unit = "cores" // 1 is one core that is always busy
	Ratio     Unit = "ratio" // a fraction, 0 to 1
	Text      Unit = "text"
)

// Values returns all values, in the order of the documentation.
func Values() []ValueInfo { return slices.Clone(valueTable()) }

// ValueNamed returns the description of a value by its name in tables, with its group ("bulk/publish.p99") or without.
// ok is false if there is no such value.
func ValueNamed(name string) (v ValueInfo, ok bool) {
	group, plain := SplitGroup(name)
	at, ok := valueIndex()[plain]
	if !ok {
		return ValueInfo{}, false
	}
	v = valueTable()[at]
	if group != "" {
		v.Name, v.Title = name, group+": "+v.Title
	}
	return v, true
}

var valueIndex = sync.OnceValue(func() map[string]int {
	at := map[string]int{}
	for i, v := range valueTable() {
		at[v.Name] = i
	}
	return at
})

const (
	higher  = HigherIsBetter
	lower   = LowerIsBetter
	neither = NeitherBetter
)

// latencyInfo describes a latency. Each of its quantiles is a value.
type latencyInfo struct {
	name, title string
	better      Direction
	traits      Traits
	highest     bool // the highest quantiles over intervals are values, too
	doc         string
}

var valueTable = sync.OnceValue(func() []ValueInfo {
	values := []ValueInfo{
		{"publish.rate", "Publish msg/s", PerSecond, higher, Performance | Sums,
			"messages sent inside the measurement, a second"},
		{"confirm.rate", "Confirm msg/s", PerSecond, higher, NeedsConfirms | Performance | Sums,
			"messages confirmed inside the measurement, a second"},
		{"consume.rate", "Consume msg/s", PerSecond, higher, NeedsConsumers | Performance | Sums,
			"messages received inside the measurement, a second, over all subscriptions: of each consumer, those that it received for the first time; one that came again to another consumer counts twice, and in duplicated"},
		{"publish.bytes", "Publish bytes/s", BytesRate, higher, Sums,
			"bytes of the bodies sent inside the measurement, a second"},
		{"consume.bytes", "Consume bytes/s", BytesRate, higher, NeedsConsumers | Sums,
			"bytes of the bodies of the messages in consume.rate, a second"},
		{"throughput", "Throughput msg/s", Text, higher, Performance | Sums,
			"one rate and \"balanced\" when sending and receiving agree within 2 % and no backlog of a subscription or queue grows, else send / receive"},
	}
	latencies := []latencyInfo{
		{"publish", "Publish", lower, NeedsConfirms | Performance, true,
			"publish call to confirm, of messages due inside the measurement"},
		{"publish.intended", "Publish intended", lower, NeedsRate | NeedsConfirms | Performance, false,
			"intended send time to confirm (open loop); a message that was not sent, or failed without an answer of the broker, counts with its age, and what depends on it is a lower bound"},
		{"e2e", "End-to-end", lower, NeedsConsumers | NeedsPrompt | Performance, true,
			"intended send time (closed loop: publish call) to delivery"},
		{"send_delay", "Send delay", neither, NeedsRate, false, "how late the generator itself sent (open loop)"},
		{"backpressure", "Back-pressure", lower, NeedsRate, false,
			"how long the broker kept the publisher from sending (open loop)"},
		{"publish.failed", "Publish failed", lower, 0, false,
			"publish call to refusal, error or loss of the link: messages that failed, which are in no other latency of sending"},
		{"pacing", "Pacing error", neither, NeedsRate, false,
			"by how much the time between two sends was off the one between their intended send times, of messages that the broker did not hold (open loop)"},
	}
	for _, l := range latencies {
		values = append(values, l.quantiles()...)
	}
	for _, l := range latencies {
		for _, q := range HighestQuantiles() {
			if l.highest {
				values = append(values, ValueInfo{l.name + "." + q.Name + ".highest",
					l.title + " " + q.Name + ", highest", Seconds, l.better, l.traits,
					"the highest " + q.Name +
						" of any full interval of the measurement (the cell's interval: a minute)"})
			}
		}
	}
	values = append(append(values, accountValues()...), metricValues()...)
	bindings := []latencyInfo{
		{"binding", "Binding", lower, NeedsChurn | Performance, false,
			"call that makes a binding (topology.churn) to the broker's word that it is made"},
		{"binding.first", "Binding to first", lower, NeedsChurn | NeedsConsumers | Performance, false,
			"call that makes a binding to the delivery of the first message through it"},
		{"binding.message", "Binding message", lower, NeedsChurn | NeedsConsumers | Performance, false,
			"publish call to delivery, of further messages through such a binding"},
	}
	for _, l := range bindings {
		values = append(values, l.quantiles()...)
	}
	return append(values, bindingValues()...)
})

func (l latencyInfo) quantiles() (values []ValueInfo) {
	for _, q := range Quantiles() {
		values = append(values, ValueInfo{l.name + "." + q.Name, l.title + " " + q.Name, Seconds, l.better, l.traits,
			l.doc})
	}
	return values
}

const networkLatency = "latency that the simulated network added to a round trip: the one asked for, and twice the delay of a piece one way; jitter, " +
	"bandwidth and faults are not in it; a p50 more than 5 % and 100 µs above the one asked for is flagged latency-off"

// accountValues returns the values of delivery accounting, of links, and of the agents.
func accountValues() []ValueInfo {
	return []ValueInfo{
		{"sent", "Sent", Count, neither, Sums, "messages that Publish accepted, warm-up included"},
		{"confirmed", "Confirmed", Count, neither, NeedsConfirms | Sums, "messages confirmed, warm-up included"},
		{"received", "Received", Count, neither, NeedsConsumers | Sums,
			"different messages received, over all subscriptions"},
		{"lost", "Lost", Count, lower, NeedsConsumers | Sums,
			"accepted, not returned, and not received after the idle time of the drain"},
		{"e2e.negative", "Negative", Count, neither, NeedsConsumers | Sums,
			"end-to-end latencies below zero: clocks were further apart than their bound; they are in no quantile"},
		{"start.skew", "Start skew", Seconds, neither, 0,
			"how far apart the agents began to send, or to receive, give or take how well their clocks were known"},
		{"unsent", "Unsent", Count, lower, NeedsRate | Sums,
			"due inside the measurement, and not sent when the drain ended (open loop); quantiles count each with its age"},
		{"undrained", "Undrained", Count, lower, NeedsConsumers | Sums,
			"not received when the drain was cut by its limit"},
		{"unknown", "Unknown", Count, lower, NeedsConsumers | Sums, "beyond what a lost agent had reported"},
		{"duplicated", "Duplicated", Count, lower, NeedsConsumers | Sums, "received again"},
		{"reordered", "Reordered", Count, lower, NeedsConsumers | Sums,
			"received after a later one of the same publisher, consumer and stream (RFC 4737)"},
		{"unroutable", "Unroutable", Count, lower, Sums, "returned by the broker (mandatory)"},
		{"rejected", "Rejected", Count, lower, NeedsConfirms | Sums, "refused by the broker"},
		{"publish.errors", "Publish errors", Count, lower, Sums, "calls that failed; the message may have gone out"},
		{"errors.closed", "Errors: closed", Count, lower, Sums, "of the publish errors: the link was gone"},
		{"errors.timeout", "Errors: timeout", Count, lower, Sums, "of the publish errors: a deadline passed"},
		{"errors.other", "Errors: other", Count, lower, Sums, "of the publish errors: the rest"},
		{"nacked", "Nacked", Count, neither, NeedsConsumers | Sums,
			"deliveries that consumers refused (consumers.nack), so that they came again; they are not in received"},
		{"connects", "Connects", Count, neither, Sums,
			"publishers and consumers that connected (lifetime) after the start"},
		{"disconnects", "Disconnects", Count, neither, Sums, "publishers and consumers that disconnected (lifetime)"},
		{"backlog.max", "Backlog", Count, lower, NeedsConsumers,
			"most messages that were sent and not received yet, over all subscriptions, at the end of any second up to the end of the measurement"},
		{"backlog.drain", "Backlog drain", Seconds, lower, NeedsConsumers,
			"when consumers connect late (consumers.lifetime.connectAt): from then until no more messages wait than are in flight anyway; known to ± half a second"},
		{"catchup.rate", "Catch-up msg/s", PerSecond, higher, NeedsConsumers,
			"messages received a second from when consumers joined, in the seconds before the one in which the backlog was gone, or until the measurement ended"},
		{"ports.exhausted", "Ports exhausted", Count, neither, Sums,
			"connections that could not be opened for want of local ports: the client's limit"},
		{"reconnects", "Reconnects", Count, lower, Sums, "links opened again after they broke"},
		{"gap.longest", "Longest gap", Seconds, lower, Greatest,
			"longest time one publisher or consumer was without its link"},
		{"gap.confirm", "Without confirm", Seconds, lower, NeedsConfirms,
			"longest time inside the measurement in which no publisher at all got a confirm though one waited for it; \"<\": shorter than what is kept"},
		{"gap.delivery", "Without delivery", Seconds, lower, NeedsConsumers,
			"longest time inside the measurement in which no consumer at all received anything; \"<\": shorter than what is kept"},
		{"recovery.confirm", "To first confirm", Seconds, lower, NeedsConfirms,
			"from the end of a fault to the next confirm, the longest where there are several faults; \"<\": shorter than what is kept"},
		{"recovery.delivery", "To first delivery", Seconds, lower, NeedsConsumers,
			"from the end of a fault to the next delivery, the longest where there are several faults; \"<\": shorter than what is kept"},
		{"connection.blocked", "Conn. blocked", Seconds, lower, Sums,
			"time that the broker held connections back (connection.blocked), summed over publishers' connections"},
		{"network.latency.p50", "Network p50", Seconds, lower, 0, networkLatency},
		{"network.latency.p99", "Network p99", Seconds, lower, 0, networkLatency},
		{"warmup.cut", "Warm-up", Seconds, neither, Greatest,
			"how long the load ran before the measurement; with warmup \"auto\", until it was found to be steady"},
		{"agent.cpu", "Agent CPU", Cores, neither, Greatest,
			"of the busiest agent process, mean of the measurement; the processes of its drivers in other languages count in it"},
		{"agent.rss", "Agent RSS", Bytes, neither, Greatest,
			"of the largest agent process, greatest of the measurement; the processes of its drivers in other languages count in it"},
		{"agent.spin", "Agent spin", Cores, neither, Greatest,
			"of the agent's CPU, what pacing spends polling the clock where sleeping cannot hold the rate; of the agent process that spins most, at most"},
		{"agent.waited", "Agent waited", Ratio, neither, Greatest,
			"the part of the time in which threads of an agent's process were runnable that they waited for a CPU; of the one that waited most"},
		{"agent.gc.p99", "GC pause p99", Seconds, neither, Greatest,
			"pauses of agent processes for garbage collection; Go tells them to a quarter, the larger is shown"},
		{"agent.gc.max", "GC pause max", Seconds, neither, Greatest, "the longest of them; 0: there was none"},
		{"agent.sched.p99", "Sched. latency p99", Seconds, neither, Greatest,
			"how long goroutines of agent processes that could run waited for a processor (one in eight is sampled); Go tells it to a quarter, the larger is shown"},
		{"agent.sched.max", "Sched. latency max", Seconds, neither, Greatest, "the longest of them"},
	}
}

// bindingValues returns counts of churn, and the results of searches.
func bindingValues() []ValueInfo {
	return []ValueInfo{
		{"binding.made", "Bindings made", Count, neither, NeedsChurn | Sums,
			"bindings that the broker has confirmed (topology.churn), warm-up included"},
		{"binding.removed", "Bindings removed", Count, neither, NeedsChurn | Sums,
			"bindings that were removed again while messages flowed"},
		{"binding.errors", "Binding errors", Count, lower, NeedsChurn | Sums,
			"calls to make or remove a binding that failed"},
		{"binding.sent", "Binding sent", Count, neither, NeedsChurn | Sums,
			"messages sent through bindings after the broker had confirmed them"},
		{"binding.received", "Binding received", Count, neither, NeedsChurn | NeedsConsumers | Sums,
			"different messages of those that were received"},
		{"binding.lost", "Binding lost", Count, lower, NeedsChurn | NeedsConsumers | Sums,
			"messages of those that were not received until the drain ended by its idle time"},
		{"capacity", "Capacity msg/s", PerSecond, higher, Sums,
			"the highest rate at which the condition of a search held, in repeated verification; its table says how many verifications held"},
		{"capacity.low", "Capacity, low", PerSecond, higher, Sums,
			"the lowest rate that really passed in these verifications: received or, without consumers, sent"},
		{"capacity.high", "Capacity, high", PerSecond, higher, Sums,
			"the lowest rate above it at which the condition failed at least twice, and has not held since"},
	}
}

// Resolution is the resolution of latencies in tables, in seconds: smaller ones are shown as "< 1 µs". Histograms
// resolve single nanoseconds in this range. But a latency is the difference of two clock reads of 20 to 50 ns each. Up
// to some hundred nanoseconds of the engine's own work lie between a read and the driver call.
const Resolution = 1e-6

// Latency reports whether a value is a quantile of measured durations.
func (v ValueInfo) Latency() bool {
	if v.Unit != Seconds {
		return false
	}
	name := strings.TrimSuffix(v.Name, ".highest")
	return slices.ContainsFunc(Quantiles(), func(q Quantile) bool { return strings.HasSuffix(name, "."+q.Name) })
}

// Quantile is a named quantile of a latency distribution. Q 1 is the maximum.
type Quantile struct {
	Name string
	Q    float64
}

// Quantiles returns the quantiles of every latency.
func Quantiles() []Quantile {
	return []Quantile{{"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}}
}

// HighestQuantiles returns the quantiles whose highest value over full intervals is a value, too.
func HighestQuantiles() []Quantile {
	return []Quantile{{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}}
}
