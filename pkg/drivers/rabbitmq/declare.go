package rabbitmq

import (
	_ "embed"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

//go:embed schema.cue
var schema string

func (driver) Info() drivers.Info {
	return drivers.Info{
		Name:    "rabbitmq",
		Doc:     "RabbitMQ by AMQP 0.9.1: classic, quorum and stream queues, on one node or on chosen nodes of a cluster.",
		Schema:  schema + kit.Schema,
		Example: `url: "amqp://guest:guest@127.0.0.1:5672"`,
		Metrics: declaredMetrics(),
		Declare: declare,
	}
}

var declare = kit.Declare("rabbitmq", func(o *options, use drivers.Use) drivers.Declaration {
	return drivers.Declaration{
		Capabilities: capabilities(o, use),
		Guarantees:   guarantees(o, use),
		Rejections:   rejections(o, use),
		Resilience:   drivers.Vendor(o.Resilience, drivers.ByGuide),
		Label:        label(o, use),

		RedeliverAfter: redeliverAfter(o, use),
	}
})

// serverHeartbeat is the server's heartbeat, by default.
const serverHeartbeat = time.Minute

// redeliverAfter returns the time until a server that was cut off ends a connection without heartbeats. It is twice the
// heartbeat.
func redeliverAfter(o *options, use drivers.Use) time.Duration {
	if !use.Isolated {
		return 0
	}
	heartbeat := o.Heartbeat.Std()
	inURL := slices.ContainsFunc(o.All(), func(url string) bool { return strings.Contains(url, "heartbeat=") })
	if heartbeat < time.Second || inURL { // the server's setting is the maximum
		heartbeat = serverHeartbeat
	}
	return 2 * heartbeat
}

func capabilities(o *options, use drivers.Use) drivers.Capabilities {
	isStream := o.Queue.Type == stream
	acks := []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval}
	if !isStream {
		acks = append(acks, drivers.AckAutomatic)
	}
	routes := o.Exchange.Type != exchangeDefault
	return drivers.Capabilities{
		Modes: drivers.Modes(),
		Acks:  acks,
		// with fanout, a queue that was not declared has no exchange that could return messages
		Mandatory:         o.Exchange.Type != exchangeFanout,
		Persistent:        true,
		Transient:         true,
		UnlimitedPrefetch: !isStream,
		Subscriptions:     routes || isStream,
		Bindings:          routes && o.Exchange.Type != exchangeFanout,
		Churn:             routes && o.Exchange.Type != exchangeFanout && !isStream,
		Nodes:             len(o.All()) > 1,
		Keys:              use.Bindings > 1, // they select a routing key
		Redelivery:        !isStream,
		Existing:          !isStream, // the driver has no position in a stream that it did not declare
		CopiesBody:        true,      // into the library's write buffer, or the connection
	}
}

// guarantees returns weaker guarantees for clusters, where the loss of a node can lose or repeat messages although no
// client's link breaks. Queues with replicas are taken to be in a cluster, which may be behind one url.
//
// SentKept is false for quorum queues, even on one node. The publisher's channel process in the broker repeats messages
// that a leader did not accept, but not after the channel is closed. Measured with RabbitMQ 3.10 after closing the
// channel: 6 of 60 unconfirmed messages lost in a cluster, and 14 of 60 on one busy node. It is false for streams, too:
// a new leader does not have the unconfirmed messages of the last one.
func guarantees(o *options, use drivers.Use) drivers.Guarantees {
	cluster := len(o.All()) > 1
	dropsUnread := forgetful(o)
	stored := o.Queue.Type != classic || (use.Persistent && o.durable())
	survives := o.Queue.Type != classic || !cluster || o.mirrored()
	automatic := use.Consumers > 0 && use.Ack == drivers.AckAutomatic
	return drivers.Guarantees{
		// with automatic acknowledgements, a consumer that stops drops the messages that the library has received
		ConfirmedKept: stored && survives && !automatic && !dropsUnread,
		SentKept:      !automatic && !dropsUnread && !refuses(o) && o.Queue.Type == classic,
		NoDuplicates:  automatic || o.Queue.Type == stream || (o.Queue.Type == classic && !o.mirrored()),
		Ordered:       true,
	}
}

// forgetful reports whether the options let the queue drop messages: by age, length or number of deliveries.
func forgetful(o *options) bool {
	arguments := o.queueArguments()
	bounded := arguments[amqp.QueueMaxLenArg] != nil || arguments[amqp.QueueMaxLenBytesArg] != nil
	argument := func(name string) bool { return arguments[name] != nil }
	policy := func(name string) bool { return o.Policy[name] != nil }
	return o.Message.Expiration > 0 || bounded && !refuses(o) ||
		slices.ContainsFunc([]string{"x-message-ttl", "x-expires", "x-max-age", deliveryLimit}, argument) ||
		slices.ContainsFunc([]string{"message-ttl", "expires", "max-age", "max-length", "max-length-bytes",
			"delivery-limit"}, policy)
}

// refuses reports whether a full queue rejects messages. An unconfirmed publisher cannot notice that.
func refuses(o *options) bool {
	overflow := o.queueArguments()[amqp.QueueOverflowArg]
	return overflow == "reject-publish" || overflow == "reject-publish-dlx"
}

func rejections(o *options, use drivers.Use) []string {
	places := []drivers.Node{use.PublisherNode, use.ConsumerNode, use.QueueNode}
	roles := slices.ContainsFunc(places, drivers.Node.OfQueue)
	isStream, isClassic := o.Queue.Type == stream, o.Queue.Type == classic
	shared := use.Consumers > use.Queues*max(use.Subscriptions, 1) // several consumers have the same queue
	var all kit.Reasons
	all.If(isStream && shared, "every consumer of a stream queue receives all of it:"+
		" use at most one consumer for each queue and subscription")
	all.If(isStream && (o.Queue.MaxLength > 0 || o.Queue.Overflow != ""), "a stream queue is bounded by maxLengthBytes alone")
	all.If(isStream && o.Message.Expiration > 0, "a stream removes messages by age alone:"+
		" give the queue argument x-max-age, not message.expiration")
	all.If(o.Consumer.Exclusive && !isClassic, "the server ignores consumer.exclusive for %s queues: remove it", o.Queue.Type)
	all.If(o.Consumer.Exclusive && shared, "an exclusive consumer is the only one of its queue:"+
		" use at most one consumer for each queue and subscription")
	all.If(!isClassic && !o.Queue.Durable, "%s queues are always durable", o.Queue.Type)
	all.If(!isClassic && o.Policy["ha-mode"] != nil, "ha-mode mirrors classic queues only: %s queues have their own replicas",
		o.Queue.Type)
	all.If(o.Queue.Type == quorum && o.Queue.Overflow == "reject-publish-dlx",
		"quorum queues do not support overflow reject-publish-dlx")
	all = append(all, kit.RejectedNodes("urls", len(o.All()), use)...)
	all.If(roles && o.Management == "", "leader and follower are looked up through the management API: give management")
	all.If(roles && use.Existing,
		"to find the node of a leader or follower, the driver declares a queue: give an index, or remove topology.existing")
	all.If(slices.Contains(places, drivers.FollowerNode) && isClassic && !o.mirrored(),
		"a classic queue without a mirroring policy has no follower")
	all.If(len(o.Policy) > 0 && o.Management == "", "a policy is set through the management API: give management")
	return all
}

// label describes what a confirm means. This depends on the queue and on whether messages are persistent.
func label(o *options, use drivers.Use) string {
	kind, confirm := "", ""
	switch {
	case o.Queue.Type == quorum:
		kind, confirm = "quorum", "written to disk by the majority"
	case o.Queue.Type == stream:
		kind, confirm = "stream over AMQP 0.9.1", "written by the majority"
	case use.Persistent && o.durable():
		kind, confirm = "classic durable", "written to disk"
	case o.durable():
		kind, confirm = "classic, transient messages", "in memory"
	default:
		kind, confirm = "classic transient", "in memory"
	}
	if o.mirrored() {
		kind, confirm = kind+" mirrored ("+o.mirroring()+")", confirm+" on every mirror"
	} else if o.Queue.Type == classic {
		confirm += " of one node"
	}
	if o.Queue.Type == classic && use.Persistent && o.durable() {
		confirm += ", or acknowledged by a consumer"
	}
	confirm = ", confirm: " + confirm
	if !use.Mode.Confirmed() {
		confirm = ", not confirmed"
	}
	if o.CoalesceWrites {
		confirm += ", coalesced writes"
	}
	return kind + confirm
}
