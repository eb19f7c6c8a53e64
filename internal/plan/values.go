package plan

import (
	"math"
	"strings"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// ValueInfo describes a value that tables can show. Package judge has the function of each.
type ValueInfo struct {
	Name   string
	Title  string // column heading
	Unit   Unit
	Better Direction
	Traits Traits
	Doc    string
}

// Direction is the direction in which a value improves.
type Direction string

const (
	HigherIsBetter Direction = "higher"
	LowerIsBetter  Direction = "lower"
	NeitherBetter  Direction = "" // a property of the load or the environment
)

// Worst returns the worst possible number. It stands for a repetition with a backlog.
func (d Direction) Worst() float64 {
	if d == HigherIsBetter {
		return math.Inf(-1)
	}
	return math.Inf(1)
}

// Traits state which tasks can have a value, and how the cell's value follows from its groups'.
type Traits uint

const (
	NeedsConsumers Traits = 1 << iota
	NeedsConfirms
	NeedsRate       // open loop: messages have intended send times
	NeedsChurn      // churn of bindings
	NeedsPublishers // implied by NeedsConfirms, NeedsRate and NeedsPrompt
	NeedsPrompt     // consumers that are connected before the messages are sent
	Performance     // describes the broker's performance, so flags of the load apply to it
	Sums            // a cell's value is the sum over its groups
	Maxima          // a cell's value is the maximum over its groups
)

// AnyPublishers are the traits that only tasks with publishers can have.
const AnyPublishers = NeedsPublishers | NeedsConfirms | NeedsRate | NeedsPrompt

// Has reports whether t includes all of these traits.
func (t Traits) Has(all Traits) bool { return t&all == all }

// Unit is the unit of a value's Number. It determines the format.
type Unit string

// The units. Durations are in seconds. Metrics of brokers may have others.
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

// Values returns the values of every run, in the order of the documentation. Metrics.Values also has those of metrics
// that drivers declare.
func Values() []ValueInfo { return Metrics(nil).Values() }

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
		{"publish.rate", "Publish msg/s", PerSecond, higher, NeedsPublishers | Performance | Sums,
			"messages sent during the measurement, per second"},
		{"confirm.rate", "Confirm msg/s", PerSecond, higher, NeedsConfirms | Performance | Sums,
			"messages confirmed during the measurement, per second"},
		{"consume.rate", "Consume msg/s", PerSecond, higher, NeedsConsumers | Performance | Sums,
			"messages received during the measurement, per second, over all subscriptions; without publishers, until the last delivery. A message redelivered to a consumer of another agent counts twice, and also in duplicated"},
		{"publish.bytes", "Publish bytes/s", BytesRate, higher, NeedsPublishers | Sums,
			"bytes of the bodies sent during the measurement, per second"},
		{"consume.bytes", "Consume bytes/s", BytesRate, higher, NeedsConsumers | Sums,
			"bytes of the bodies of the messages in consume.rate, per second"},
		{"throughput", "Throughput msg/s", Text, higher, NeedsPublishers | Performance | Sums,
			"one rate if the publish and consume rates agree within 2 % and no backlog of a subscription or queue grows. Otherwise publish rate / consume rate"},
	}
	latencies := []latencyInfo{
		{"publish", "Publish", lower, NeedsConfirms | Performance, true,
			"publish call to confirm, for messages with an intended send time in the measurement"},
		{"publish.intended", "Publish intended", lower, NeedsRate | NeedsConfirms | Performance, false,
			"intended send time to confirm (open loop). An unsent message, or one that failed without a response of the broker, counts with its age. Quantiles that depend on such messages are lower bounds"},
		{"e2e", "End-to-end", lower, NeedsConsumers | NeedsPrompt | Performance, true,
			"intended send time (closed loop: publish call) to delivery. A message that was unsent, or undelivered when the drain timed out, counts with its age. Quantiles that depend on such messages are lower bounds"},
		{"send_delay", "Send delay", neither, NeedsRate, false, "delay of the send caused by the load generator (open loop)"},
		{"backpressure", "Back-pressure", lower, NeedsRate, false,
			"time for which the broker prevented the publisher from sending (open loop)"},
		{"publish.failed", "Publish failed", lower, NeedsPublishers, false,
			"publish call to rejection, error or loss of the link, for failed messages; no other publish latency includes them"},
		{"pacing", "Pacing error", neither, NeedsRate, false,
			"difference between the interval of two sends and the interval of their intended send times, for messages without back-pressure (open loop)"},
	}
	for _, l := range latencies {
		values = append(values, l.quantiles()...)
	}
	for _, l := range latencies {
		for _, q := range HighestQuantiles() {
			if l.highest {
				values = append(values, ValueInfo{l.name + "." + q.Name + highestSuffix,
					l.title + " " + q.Name + ", highest", Seconds, l.better, l.traits,
					"the highest " + q.Name +
						" of all full intervals of the measurement (interval of the cell; default 1m)"})
			}
		}
	}
	// Delivery accounting, links and agents.
	values = append(values, []ValueInfo{
		{"sent", "Sent", Count, neither, NeedsPublishers | Sums, "messages accepted by the publish call, warm-up included"},
		{"confirmed", "Confirmed", Count, neither, NeedsConfirms | Sums, "messages confirmed, warm-up included"},
		{"received", "Received", Count, neither, NeedsConsumers | Sums,
			"different messages received, over all subscriptions; without publishers, all deliveries"},
		{"dropped", "Dropped", Count, lower, NeedsPublishers | NeedsConsumers | Sums,
			"messages that the broker dropped, because consumers rejected them at its maximum number of deliveries (consumers.nack)"},
		{"lost", "Lost", Count, lower, NeedsPublishers | NeedsConsumers | Sums,
			"messages accepted, not returned, and neither received nor dropped when the drain ended by its idle time"},
		{"e2e.negative", "Negative", Count, neither, NeedsPublishers | NeedsConsumers | Sums,
			"end-to-end latencies below zero, because clocks differed by more than their bound; quantiles exclude them"},
		{"start.skew", "Start skew", Seconds, neither, 0,
			"maximum difference between the start times of the agents, with the uncertainty of their clocks"},
		{"unsent", "Unsent", Count, lower, NeedsRate | Sums,
			"messages with an intended send time in the measurement that were not sent when the drain ended (open loop). Quantiles count each with its age. Beyond 10,000,000 per agent, their number follows from the rate"},
		{"undrained", "Undrained", Count, lower, NeedsPublishers | NeedsConsumers | Sums,
			"messages not received when the drain ended by its timeout. End-to-end quantiles count each with its age"},
		{"unknown", "Unknown", Count, lower, NeedsPublishers | NeedsConsumers | Sums,
			"messages after the last report of a lost agent"},
		{"duplicated", "Duplicated", Count, lower, NeedsPublishers | NeedsConsumers | Sums,
			"messages received again"},
		{"reordered", "Reordered", Count, lower, NeedsPublishers | NeedsConsumers | Sums,
			"messages received after a later message of the same publisher, consumer and stream (RFC 4737)"},
		{"unroutable", "Unroutable", Count, lower, NeedsPublishers | Sums, "messages returned by the broker (mandatory)"},
		{"rejected", "Rejected", Count, lower, NeedsConfirms | Sums, "messages rejected by the broker"},
		{"publish.errors", "Publish errors", Count, lower, NeedsPublishers | Sums, "publish calls that failed; the message may have been sent"},
		{"errors.closed", "Errors: closed", Count, lower, NeedsPublishers | Sums, "publish errors: the link was closed"},
		{"errors.timeout", "Errors: timeout", Count, lower, NeedsPublishers | Sums, "publish errors: a deadline passed"},
		{"errors.other", "Errors: other", Count, lower, NeedsPublishers | Sums, "publish errors: all others"},
		{"nacked", "Nacked", Count, neither, NeedsConsumers | Sums,
			"deliveries that consumers rejected for redelivery (consumers.nack); received excludes them"},
		{"connects", "Connects", Count, neither, Sums,
			"publishers and consumers that connected (lifetime) after the start"},
		{"disconnects", "Disconnects", Count, neither, Sums, "publishers and consumers that disconnected (lifetime)"},
		{"backlog.max", "Backlog", Count, lower, NeedsPublishers | NeedsConsumers,
			"maximum number of messages sent and not yet received, over all subscriptions, sampled each second until the measurement ends"},
		{"backlog.drain", "Backlog drain", Seconds, lower, NeedsPublishers | NeedsConsumers,
			"for consumers that connect late (consumers.lifetime.connectAt): time from their connect until only the messages in flight are left, ± half a second"},
		{"catchup.rate", "Catch-up msg/s", PerSecond, higher, NeedsPublishers | NeedsConsumers,
			"messages received per second, from the connect of late consumers until the second before the backlog was drained, or until the measurement ended"},
		{"ports.exhausted", "Ports exhausted", Count, neither, Sums,
			"connections that failed because no local port was free: a limit of the client"},
		{"retries", "Retries", Count, lower, Sums,
			"requests that the client library repeated because of a failure (resilience). Kafka: produce requests whose connection broke (franz-go), or all repeated batches (kafka-go). NATS: messages that no stream accepted. SQS: requests that send messages. Other client libraries report none"},
		{"republished", "Republished", Count, lower, NeedsConfirms | Sums,
			"messages published again because their connection broke before the confirm (resilience)"},
		{"reconnects", "Reconnects", Count, lower, Sums, "links opened again after a failure"},
		{"topology.declare", "Declaration", Seconds, lower, 0,
			"time to declare all queues and bindings of the task, until the last answer of the broker"},
		{"topology.first", "To first delivery", Seconds, lower, NeedsConsumers,
			"start of the load, with warm-up, to the first delivery"},
		{"spread.leaders", "Leaders ±", Count, lower, 0,
			"maximum minus minimum number of queues, streams or partitions that a node of a cluster leads at the start"},
		{"spread.publishers", "Publishers ±", Count, lower, NeedsPublishers,
			"maximum minus minimum number of publishers that are connected to a node of a cluster at the start"},
		{"spread.consumers", "Consumers ±", Count, lower, NeedsConsumers,
			"maximum minus minimum number of consumers that are connected to a node of a cluster at the start"},
		{"gap.longest", "Longest gap", Seconds, lower, Maxima,
			"longest time for which a publisher or consumer had no link"},
		{"gap.confirm", "Without confirm", Seconds, lower, NeedsConfirms,
			"longest time in the measurement in which no publisher received a confirm, although one waited for it; \"<\": shorter than the recorded minimum"},
		{"gap.delivery", "Without delivery", Seconds, lower, NeedsConsumers,
			"longest time in the measurement in which no consumer received a message; \"<\": shorter than the recorded minimum"},
		{"recovery.confirm", "To first confirm", Seconds, lower, NeedsConfirms,
			"time from the end of a fault to the next confirm, the maximum over all faults; \"<\": shorter than the recorded minimum"},
		{"recovery.delivery", "To first delivery", Seconds, lower, NeedsConsumers,
			"time from the end of a fault to the next delivery, the maximum over all faults; \"<\": shorter than the recorded minimum"},
		{"connection.blocked", "Conn. blocked", Seconds, lower, Sums,
			"time for which the broker blocked connections (connection.blocked), summed over the connections of publishers"},
		{"network.latency.p50", "Network p50", Seconds, lower, 0, networkLatency},
		{"network.latency.p99", "Network p99", Seconds, lower, 0, networkLatency},
		{"warmup.cut", "Warm-up", Seconds, neither, Maxima,
			"duration of the load before the measurement; with warmup \"auto\", until the load was steady"},
		{"agent.cpu", "Agent CPU", Cores, neither, Maxima,
			"CPU of the busiest agent process, mean of the measurement; includes the processes of its external drivers"},
		{"agent.rss", "Agent RSS", Bytes, neither, Maxima,
			"memory of the largest agent process, maximum of the measurement; includes the processes of its external drivers"},
		{"agent.spin", "Agent spin", Cores, neither, Maxima,
			"upper bound of the CPU that pacing spends on polling the clock, where sleeping cannot reach the rate. Maximum over agent processes, included in agent.cpu"},
		{"agent.waited", "Agent waited", Ratio, neither, Maxima,
			"share of their runnable time for which threads of an agent process waited for a CPU; maximum over agent processes"},
		{"agent.gc.p99", "GC pause p99", Seconds, neither, Maxima,
			"pauses of agent processes for garbage collection; Go reports them in buckets of a quarter, whose upper end is shown"},
		{"agent.gc.max", "GC pause max", Seconds, neither, Maxima, "longest pause of an agent process for garbage collection; 0: no pause"},
		{"agent.sched.p99", "Sched. latency p99", Seconds, neither, Maxima,
			"time for which runnable goroutines of agent processes waited for a processor (one in eight is sampled). Go reports it in buckets of a quarter, whose upper end is shown"},
		{"agent.sched.max", "Sched. latency max", Seconds, neither, Maxima, "longest time for which a sampled goroutine waited for a processor"},
	}...)
	values = append(values, metricValues(drivers.SharedMetrics())...)
	bindings := []latencyInfo{
		{"binding", "Binding", lower, NeedsChurn | Performance, false,
			"intended time of a new binding (topology.churn) to its confirm. Without one: to the end of the load"},
		{"binding.first", "Binding to first", lower, NeedsChurn | NeedsConsumers | Performance, false,
			"intended time of a new binding to the delivery of the first message through it"},
		{"binding.message", "Binding message", lower, NeedsChurn | NeedsConsumers | Performance, false,
			"publish call to delivery, for further messages through such a binding"},
	}
	for _, l := range bindings {
		values = append(values, l.quantiles()...)
	}
	// Counts of churn, and results of searches.
	return append(values, []ValueInfo{
		{"binding.made", "Bindings made", Count, neither, NeedsChurn | Sums,
			"bindings confirmed by the broker (topology.churn), warm-up included"},
		{"binding.removed", "Bindings removed", Count, neither, NeedsChurn | Sums,
			"bindings removed again while messages were sent"},
		{"binding.errors", "Binding errors", Count, lower, NeedsChurn | Sums,
			"failed calls to create or remove a binding"},
		{"binding.sent", "Binding sent", Count, neither, NeedsChurn | Sums,
			"messages sent through bindings that the broker had confirmed"},
		{"binding.received", "Binding received", Count, neither, NeedsChurn | NeedsConsumers | Sums,
			"different messages of binding.sent that were received"},
		{"binding.lost", "Binding lost", Count, lower, NeedsChurn | NeedsConsumers | Sums,
			"messages of binding.sent that were not received when the drain ended by its idle time"},
		{"capacity", "Capacity msg/s", PerSecond, higher, Sums,
			"highest rate at which the condition of a search held in repeated verification. The table of the search has the number of verifications that held"},
		{"capacity.low", "Capacity, low", PerSecond, higher, Sums,
			"minimum of the rates reached in these verifications: the consume rate, or the publish rate if there are no consumers"},
		{"capacity.high", "Capacity, high", PerSecond, higher, Sums,
			"lowest rate above capacity at which the condition failed at least twice and has not held since"},
	}...)
})

func (l latencyInfo) quantiles() (values []ValueInfo) {
	for _, q := range Quantiles() {
		values = append(values, ValueInfo{l.name + "." + q.Name, l.title + " " + q.Name, Seconds, l.better, l.traits,
			l.doc})
	}
	return values
}

const networkLatency = "latency that the simulated network added to a round trip: the configured latency plus twice the one-way delay of a piece. Jitter, " +
	"bandwidth and faults are not included. The p99 is an upper bound, because few round trips have that delay twice. A p50 more than 5 % and 100 µs above the configured latency is flagged latency-off"

// Resolution is the resolution of latencies in tables, in seconds: smaller ones are shown as "< 1 µs". Histograms
// resolve single nanoseconds in this range. But a latency is the difference of two clock reads of 20 to 50 ns each. Up
// to some hundred nanoseconds of the engine's own work lie between a read and the driver call.
const Resolution = 1e-6

// Latency reports whether a value is a quantile of measured durations.
func (v ValueInfo) Latency() bool {
	_, _, _, is := SplitQuantile(v.Name)
	return is && v.Unit == Seconds
}

// Quantile is a named quantile of a latency distribution. Q 1 is the maximum.
type Quantile struct {
	Name string
	Q    float64
}

// Quantiles returns the quantiles of every latency. Each is a value, a column for conditions, and a field in InfluxDB.
func Quantiles() []Quantile {
	return []Quantile{{"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}}
}

// HighestQuantiles returns the quantiles whose highest value over full intervals is a value, too.
func HighestQuantiles() []Quantile {
	return []Quantile{{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}}
}

// highestSuffix ends the names of the highest quantiles over intervals.
const highestSuffix = ".highest"

// SplitQuantile splits the name of a quantile of a latency: "publish.p99", or "publish.p99.highest" over intervals. is
// is false for other forms of names.
func SplitQuantile(name string) (latency string, q Quantile, highest, is bool) {
	stem, highest := strings.CutSuffix(name, highestSuffix)
	for _, q := range Quantiles() {
		if latency, is = strings.CutSuffix(stem, "."+q.Name); is {
			return latency, q, highest, true
		}
	}
	return "", Quantile{}, false, false
}

// Rate reports whether a value is a rate.
func (v ValueInfo) Rate() bool { return v.Unit == Text || strings.HasSuffix(string(v.Unit), "/s") }

// SplitGroup splits the name of a value in tables, such as "bulk/publish.p99", into group and value. The group of
// "publish.p99" is "".
func SplitGroup(name string) (group, value string) {
	if group, value, found := strings.Cut(name, "/"); found {
		return group, value
	}
	return "", name
}
