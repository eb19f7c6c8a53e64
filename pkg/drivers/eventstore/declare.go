package eventstore

import (
	_ "embed"
	"fmt"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

//go:embed schema.cue
var schema string

func (driver) Info() drivers.Info {
	return drivers.Info{
		Name:    "eventstore",
		Doc:     "EventStoreDB and KurrentDB: a stream for each queue, persistent subscriptions with acknowledgements, and appends that are answered.",
		Schema:  schema + kit.Schema,
		Example: `url: "esdb://127.0.0.1:2113?tls=false"`,
		Metrics: drivers.SharedMetrics(
			drivers.MetricConsumers, drivers.MetricUnacked, drivers.MetricPublishRate,
			drivers.MetricDeliverRate, drivers.MetricLag),
		Declare: declare,
	}
}

var declare = kit.Declare("eventstore", func(o *options, use drivers.Use) drivers.Declaration {
	return drivers.Declaration{
		Capabilities: drivers.Capabilities{
			Modes:         modes,
			Acks:          []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval},
			Persistent:    true, // all messages are persistent
			Subscriptions: true,
			Nodes:         len(o.All()) > 1,
			Redelivery:    true,
		},
		Guarantees: drivers.Guarantees{
			// A message that is not answered in time too often is parked: it is kept, but not delivered any more. A
			// rejected one is dropped, as its last delivery states (Delivery.Last).
			ConfirmedKept: o.MaxCount == 0,
			SentKept:      false, // there are no unconfirmed modes
			NoDuplicates:  false, // events that are not acknowledged in time are delivered again
			Ordered:       false, // concurrent appends overtake each other, and so do retries
		},
		RedeliverAfter: o.Timeout.Std(),

		Rejections: rejections(o, use),
		Notes:      notes(o, use),
		Resilience: drivers.Vendor(o.Resilience, drivers.ByGuide),
		Label:      label(o),
	}
})

func rejections(o *options, use drivers.Use) []string {
	nodes, at := len(o.All()), use.ConsumerNode
	var all kit.Reasons = kit.RejectedNodes("urls", nodes,
		drivers.Use{PublisherNode: use.PublisherNode, ConsumerNode: at})
	all.If(use.PublisherNode == drivers.FollowerNode && nodes == 1,
		"a follower is found among the urls of a cluster: give urls")
	all.If(at == drivers.FollowerNode || at.Chosen() && at != drivers.LeaderNode && nodes > 1,
		`only the leader has persistent subscriptions: use node: "any" for consumers`)
	all.If(use.QueueNode.Chosen() && use.QueueNode != drivers.LeaderNode,
		"every stream is on every node, and the leader's to write: a queue cannot be placed")
	return all
}

// notes warns about settings that may have unexpected effects.
func notes(o *options, use drivers.Use) []string {
	var all kit.Reasons
	all.If(use.Mode == drivers.ConfirmWindow,
		"a connection has at most %d appends in flight (concurrency); maximum messages per append: %d (appendBatch)",
		o.Concurrency, o.AppendBatch)
	all.If(use.Mode == drivers.ConfirmWindow, "EventStoreDB accepts %d concurrent calls per connection by default",
		callsPerConnection)
	all.If(use.Consumers > callsPerConnection,
		"a consumer uses one of the %d calls of its connection permanently; give consumers several connections",
		callsPerConnection)
	all.If(use.Consumers > 0 && o.Timeout == 0,
		`messageTimeout: "0s": a message without an answer is delivered again only after its consumer has disconnected`)
	return all
}

// label describes what a confirm means. The server's settings decide whether an appended event is in memory, on disk,
// or synced (MemDb, UnsafeDisableFlushToDisk).
func label(o *options) string {
	where := "one node"
	if len(o.All()) > 1 {
		where = "the majority"
	}
	text := "stream, confirm: appended by " + where + ", stored as the server is set"
	if o.MaxCount > 0 {
		text += fmt.Sprintf("; keeps only the last %d", o.MaxCount)
	}
	return text
}
