package rabbitmq

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"

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

func declare(raw json.RawMessage, use drivers.Use) drivers.Declaration {
	o, err := kit.Decode[options]("rabbitmq", raw)
	if err != nil {
		return drivers.Declaration{Rejections: []string{err.Error()}}
	}
	return drivers.Declaration{
		Capabilities: capabilities(&o, use),
		Guarantees:   guarantees(&o, use),
		Rejections:   append(unfitQueue(&o, use), unfitPlaces(&o, use)...),
		Resilience:   drivers.Vendor(o.Resilience, drivers.ByGuide),
		Label:        label(&o, use),
	}
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
		Existing:          !isStream, // the driver knows no position in a stream that it did not declare
		Streams:           true,
		CopiesBody:        true, // into the library's write buffer, or the connection
	}
}

// guarantees returns weaker guarantees for clusters, where the loss of a node can lose or repeat messages although no
// client's link breaks. SentKept is false for quorum queues, even on one node. The publisher's channel process in the
// broker repeats messages that a leader did not accept, but not after the channel is closed. Measured with RabbitMQ
// 3.10 after closing the channel: 6 of 60 unconfirmed messages lost in a cluster, and 14 of 60 on one busy node.
func guarantees(o *options, use drivers.Use) drivers.Guarantees {
	cluster := len(o.All()) > 1
	dropsUnread := forgetful(o)
	stored := o.Queue.Type != classic || (use.Persistent && o.durable())
	survives := o.Queue.Type != classic || !cluster || o.mirrored()
	automatic := use.Consumers > 0 && use.Ack == drivers.AckAutomatic
	return drivers.Guarantees{
		// with automatic acknowledgements, a consumer that stops drops the messages that the library has received
		ConfirmedKept: stored && survives && !automatic && !dropsUnread,
		SentKept:      !automatic && !dropsUnread && !refuses(o) && o.Queue.Type != quorum,
		NoDuplicates:  automatic || o.Queue.Type == stream || !cluster || (o.Queue.Type == classic && !o.mirrored()),
		Ordered:       true,
	}
}

// forgetful reports whether the options let the queue drop messages: by age, length or number of deliveries.
func forgetful(o *options) bool {
	arguments := o.queueArguments()
	for _, name := range []string{"x-message-ttl", "x-expires", "x-max-age", deliveryLimit} {
		if _, set := arguments[name]; set {
			return true
		}
	}
	for _, name := range []string{"message-ttl", "expires", "max-age", "max-length", "max-length-bytes",
		"delivery-limit"} {
		if _, set := o.Policy[name]; set {
			return true
		}
	}
	return o.Message.Expiration > 0 || bounded(o) && !refuses(o)
}

func bounded(o *options) bool {
	arguments := o.queueArguments()
	return arguments["x-max-length"] != nil || arguments["x-max-length-bytes"] != nil
}

// refuses reports whether a full queue rejects messages. An unconfirmed publisher cannot notice that.
func refuses(o *options) bool {
	overflow := fmt.Sprint(o.queueArguments()["x-overflow"])
	return overflow == "reject-publish" || overflow == "reject-publish-dlx"
}

func unfitQueue(o *options, use drivers.Use) []string {
	var reasons []string
	isStream := o.Queue.Type == stream
	if isStream && use.Consumers > use.Queues*max(use.Subscriptions, 1) {
		reasons = append(reasons, "every consumer of a stream queue receives all of it:"+
			" use at most one consumer for each queue and subscription")
	}
	if isStream && (o.Queue.MaxLength > 0 || o.Queue.Overflow != "") {
		reasons = append(reasons, "a stream queue is bounded by maxLengthBytes alone")
	}
	if isStream && o.Message.Expiration > 0 {
		reasons = append(reasons, "a stream removes messages by age alone:"+
			" give the queue argument x-max-age, not message.expiration")
	}
	if o.Consumer.Exclusive && o.Queue.Type != classic {
		reasons = append(reasons, "the server ignores consumer.exclusive for "+o.Queue.Type+" queues: remove it")
	}
	if o.Consumer.Exclusive && use.Consumers > use.Queues*max(use.Subscriptions, 1) {
		reasons = append(reasons, "an exclusive consumer is the only one of its queue:"+
			" use at most one consumer for each queue and subscription")
	}
	if o.Queue.Type != classic && !o.Queue.Durable {
		reasons = append(reasons, o.Queue.Type+" queues are always durable")
	}
	if _, ha := o.Policy["ha-mode"]; ha && o.Queue.Type != classic {
		reasons = append(reasons, "ha-mode mirrors classic queues only: "+o.Queue.Type+
			" queues have their own replicas")
	}
	if o.Queue.Type == quorum && o.Queue.Overflow == "reject-publish-dlx" {
		reasons = append(reasons, "quorum queues do not support overflow reject-publish-dlx")
	}
	return reasons
}

func unfitPlaces(o *options, use drivers.Use) []string {
	reasons := kit.UnfitNodes("urls", len(o.All()), use)
	places := []drivers.Node{use.PublisherNode, use.ConsumerNode, use.QueueNode}
	roles := slices.ContainsFunc(places, drivers.Node.OfQueue)
	if roles && o.Management == "" {
		reasons = append(reasons, "leader and follower are looked up through the management API: give management")
	}
	if roles && use.Existing {
		reasons = append(reasons, "to find the node of a leader or follower, the driver declares a queue: give an index, or remove topology.existing")
	}
	if slices.Contains(places, drivers.FollowerNode) && o.Queue.Type == classic && !o.mirrored() {
		reasons = append(reasons, "a classic queue without a mirroring policy has no follower")
	}
	if len(o.Policy) > 0 && o.Management == "" {
		reasons = append(reasons, "a policy is set through the management API: give management")
	}
	return reasons
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
