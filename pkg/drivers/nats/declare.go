package nats

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

//go:embed schema.cue
var schema string

func (driver) Info() drivers.Info {
	return drivers.Info{
		Name:    "nats",
		Doc:     "NATS JetStream: a stream for each queue and durable pull consumers, on your servers or on one embedded in the agent.",
		Schema:  schema + kit.Schema,
		Example: `url: "nats://127.0.0.1:4222"`,
		Metrics: drivers.SharedMetrics(
			drivers.MetricMemory, drivers.MetricCPU, drivers.MetricConnections, drivers.MetricConnectionRate,
			drivers.MetricQueues, drivers.MetricQueueDepth, drivers.MetricUnacked, drivers.MetricPublishRate,
			drivers.MetricDeliverRate, drivers.MetricStored, drivers.MetricLag, drivers.MetricUnderReplicated),
		Declare: declare,
	}
}

var declare = kit.Declare("nats", func(o *options, use drivers.Use) drivers.Declaration {
	automatic := use.Ack == drivers.AckAutomatic
	hidden := o.AckWait.Std()
	if automatic {
		hidden = 0
	}
	// a repetition of a message needs its body, and comes after later messages
	repeats := o.repeats() && use.Mode.Confirmed()
	overtaken := repeats && (use.Mode == drivers.ConfirmWindow || use.Mode == drivers.ConfirmBatch)
	return drivers.Declaration{
		Capabilities: drivers.Capabilities{
			Modes:             drivers.Modes(),
			Acks:              acks(o),
			Persistent:        o.Storage != "memory",
			Transient:         true,
			UnlimitedPrefetch: true,
			Subscriptions:     o.Retention != retentionWorkQueue, // a message of a work queue has one consumer
			Bindings:          true,
			Nodes:             len(o.All()) > 1,
			Keys:              use.Bindings > 1, // they select a subject
			Redelivery:        !automatic,
			Existing:          true,
			InProcess:         o.Embedded,
			CopiesBody:        !repeats, // into the library's write buffer
		},
		Guarantees: drivers.Guarantees{
			ConfirmedKept: !automatic && !o.dropsUnread(use.Consumers),
			// JetStream drops unconfirmed messages without an error when it is overloaded.
			SentKept: false,
			// JetStream delivers messages again that are not acknowledged within ackWait. A new leader may also deliver
			// messages again whose acknowledgements it has not received.
			NoDuplicates: automatic,
			// only in a cluster, which may be behind one url, a stream is without a leader while its connections last
			Ordered: !overtaken || o.Embedded,
		},
		RedeliverAfter: hidden,

		Rejections: rejections(o, use),
		Resilience: drivers.Vendor(o.Resilience, drivers.ByGuide),
		Label:      label(o, use),
	}
})

// acks leaves out AckAutomatic for work queues, which require explicit acknowledgements.
func acks(o *options) []drivers.Ack {
	some := []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval}
	if o.Retention != retentionWorkQueue {
		some = append(some, drivers.AckAutomatic)
	}
	return some
}

func rejections(o *options, use drivers.Use) []string {
	nodes := max(1, len(o.All())) // an embedded server has no url
	publishes, consumes := use.Existing && use.Publishers > 0, use.Existing && use.Consumers > 0
	var all kit.Reasons = kit.RejectedNodes("urls", nodes, use)
	_, err := strconv.Atoi(string(use.QueueNode))
	isIndex := err == nil
	all.If(isIndex && nodes > 1 && o.Replicas == 1,
		"NATS places a stream of one replica itself: a queue is pinned by its leader and needs replicas: 3")
	all.If(publishes && o.Subject == "", "publishers of an existing stream need a subject: give subject")
	all.If(consumes && o.Consumer == "", "consumers of an existing stream use a durable consumer: give consumer")
	all.If(publishes && use.Queues > 1 && !strings.Contains(o.Subject, "%d"),
		"each of several existing streams has its own subject: write %%d for its number in subject")
	all.If(consumes && use.Ack == drivers.AckAutomatic,
		"the consumer of an existing stream has explicit acknowledgements: use another ack than automatic")
	all.If((use.PublisherNode == drivers.FollowerNode || use.ConsumerNode == drivers.FollowerNode) && o.Replicas == 1,
		"a stream of one replica has no follower")
	return all
}

// label describes what a confirm means. This depends on storage, replicas and sync.
func label(o *options, use drivers.Use) string {
	file := o.file(use.Persistent)
	kind := fmt.Sprintf("%s storage, %d replicas", strings.ToLower(o.storage(use.Persistent).String()), o.Replicas)
	if o.Replicas == 1 {
		kind = strings.TrimSuffix(kind, "s")
	}
	switch {
	case use.Consumers == 0 || o.Retention == retentionInterest:
	case o.Retention == retentionLimits:
		kind += ", limits retention"
	default:
		kind += ", work queue"
	}
	if !use.Mode.Confirmed() {
		return kind + ", core publish, at most once"
	}
	servers := "one server"
	if o.Replicas > 1 {
		servers = "the majority"
	}
	confirm := "in memory of " + servers
	switch {
	case file && o.Sync == "always":
		confirm = "synced to disk by " + servers
	case file && o.Embedded:
		confirm = "written by " + servers + ", not synced"
	case file:
		confirm = "written by " + servers + ", synced as configured there"
	}
	return kind + ", confirm: " + confirm
}
