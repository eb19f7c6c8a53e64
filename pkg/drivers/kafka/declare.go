package kafka

import (
	_ "embed"
	"fmt"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

//go:embed schema.cue
var schema string

func (driver) Info() drivers.Info {
	return drivers.Info{
		Name:   "kafka",
		Doc:    "Apache Kafka: a topic for each queue and a consumer group for each subscription to it, through franz-go or kafka-go.",
		Schema: schema + kit.Schema,
		Example: `brokers: ["127.0.0.1:9092"]
partitions: 4 // of each queue; at least the number of consumers`,
		Metrics: drivers.SharedMetrics(
			drivers.MetricQueues, drivers.MetricUnderReplicated, drivers.MetricStored, drivers.MetricDiskFree,
			drivers.MetricPublishRate, drivers.MetricLag, drivers.MetricConsumers),
		Declare: declare,
	}
}

var declare = kit.Declare("kafka", func(o *options, use drivers.Use) drivers.Declaration {
	modes := drivers.Modes()
	if o.Acks == 0 {
		modes = []drivers.Mode{drivers.FireAndForget, drivers.ConnectionPerMessage}
	}
	return drivers.Declaration{
		Capabilities: drivers.Capabilities{
			Modes:             modes,
			Acks:              []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval},
			Persistent:        true,
			Transient:         true,
			UnlimitedPrefetch: true,
			Subscriptions:     true,
			Nodes:             len(o.Brokers) > 1,
			Keys:              true, // they select a partition
			Existing:          true,
			Streams:           true,
			CopiesBody:        true, // into the libraries' batches
		},
		Guarantees: guarantees(o, use),

		// after this time without heartbeats, the group reassigns the member's partitions
		RedeliverAfter: o.SessionTimeout.Std(),

		Rejections: rejections(o, use),
		Notes:      notes(o, use),
		Resilience: drivers.Vendor(o.Resilience, drivers.ByLibrary),
		Label:      label(o, use),
	}
})

// guarantees declares that confirmed messages are kept while a copy exists. With acks "all", the next leader is an
// in-sync replica. A single copy returns with its broker. With acks 1 and several replicas, the leader may have the
// only copy, and lose it when another replica becomes the leader.
func guarantees(o *options, use drivers.Use) drivers.Guarantees {
	// retries of the library without sequence numbers can repeat batches, and reorder several in flight
	exact := !o.persists() || o.idempotent(o.acksFor(use.Mode.Confirmed()))
	return drivers.Guarantees{
		ConfirmedKept: (o.Acks == acksAll || o.Acks == 1 && o.ReplicationFactor == 1) && !o.dropsUnread(),
		// With acks 0, a leader that cannot store a message can only break the connection, or not even that.
		SentKept: false,
		// With franz-go, a consumer that takes over a partition continues at the committed position. The Reader of
		// kafka-go does not commit before it gives up a partition.
		NoDuplicates: o.Client == franz && exact,
		// The Writer of kafka-go has one request in flight per partition. Its Transport may send requests without
		// answers over several connections.
		Ordered: o.Client == franz && (exact || o.InFlight == 1) || o.Client == kafkaGo && use.Mode.Confirmed(),
	}
}

// dropsUnread reports whether the options' topic settings let the log drop messages before they are consumed.
func (o *options) dropsUnread() bool {
	for name := range o.Topic {
		if strings.HasPrefix(name, "retention.") || strings.HasPrefix(name, "cleanup.") ||
			strings.HasPrefix(name, "local.retention.") {
			return true
		}
	}
	return fmt.Sprint(o.Topic["unclean.leader.election.enable"]) == "true"
}

func rejections(o *options, use drivers.Use) []string {
	consumes := use.Existing && use.Consumers > 0
	var all kit.Reasons = kit.RejectedNodes("brokers", len(o.Brokers), drivers.Use{QueueNode: use.QueueNode})
	all.If(use.Mode.Confirmed() && o.Acks == 0, "with acks 0 the broker sends no confirms, which mode %s requires", use.Mode)
	for _, node := range []drivers.Node{use.PublisherNode, use.ConsumerNode} {
		all.If(node.Chosen() && node != drivers.LeaderNode,
			"a client cannot be placed on node %s: with Kafka it is at the leader of each partition; queueNode places that", node)
	}
	all.If(consumes && o.Group == "", "consumers of an existing topic need a group: give group")
	all.If(consumes && o.Group != "" && use.Queues > 1 && !strings.Contains(o.Group, "%d"),
		"each of several existing topics needs its own group: write %%d for its number in group")
	all.If(use.Bindings > 1, "a topic has no bindings: keys choose partitions")
	all.If(use.Ack == drivers.AckAutomatic,
		"Kafka does not delete messages when it sends them: commit every n messages, or at an interval")
	return all
}

func notes(o *options, use drivers.Use) []string {
	consumes, goes := use.Consumers > 0, o.Client == kafkaGo
	var all kit.Reasons
	if consumes {
		queues, each := max(use.Queues, 1), use.Consumers/max(use.Subscriptions, 1)
		idle := 0
		for q := range queues {
			idle += max(0, (each-q+queues-1)/queues-o.Partitions)
		}
		all.If(idle > 0, "%d consumers of a subscription share %d partitions: %d are idle; increase partitions", each,
			queues*o.Partitions, idle)
	}
	all.If(consumes && use.Ack == drivers.AckEach,
		"a commit acknowledges all before it: ack \"each\" commits once for each receive batch; consumers.batch: 1 commits every message")
	all.If(consumes && use.Ack == drivers.AckInterval && use.Prefetch > 0,
		"a consumer with acknowledgements at an interval receives at most its prefetch, %d messages, per interval; prefetch 0 removes the limit",
		use.Prefetch)
	all.If(consumes && goes && use.Simulated,
		"with kafka-go and this fetchWait, a round trip of more than %s is a timeout, and no message is received",
		goMaxWait(o.FetchWait.Std())-o.FetchWait.Std())
	all.If(goes && use.Mode == drivers.ConfirmBatch && o.Partitions > 1,
		"kafka-go distributes a batch over the partitions, and sends their parts after linger; use franz-go or partitions: 1")
	all.If(!use.Persistent, "Kafka writes every message to its log, persistent or not")
	return all
}

// label describes what a confirm means. This depends on the replicas and on when brokers sync their disks.
func label(o *options, use drivers.Use) string {
	kind := fmt.Sprintf("RF %d", o.ReplicationFactor)
	if !use.Mode.Confirmed() {
		if o.Client == kafkaGo {
			kind += ", kafka-go"
		}
		return kind + ", acks 0, not confirmed"
	}
	whose := "its leader alone"
	if o.Acks == acksAll && o.ReplicationFactor > 1 {
		kind += fmt.Sprintf(" min ISR %d", o.MinInSyncReplicas)
		whose = "all in-sync replicas"
	}
	how := "written by " + whose + ", synced as the brokers are set"
	if o.synced() {
		how = "synced to disk by " + whose
	}
	if o.idempotent(o.Acks) {
		kind += ", idempotent"
	}
	if o.Client == kafkaGo {
		kind += ", kafka-go"
	}
	return kind + ", confirm: " + how
}
