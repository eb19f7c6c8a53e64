package artemis

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

//go:embed schema.cue
var schema string

func (driver) Info() drivers.Info {
	return drivers.Info{
		Name: "artemis",
		Doc: "Apache Artemis by AMQP 1.0: anycast and multicast addresses with durable or transient queues, on one broker or on a pair" +
			" that fails over.",
		Schema:  schema + kit.Schema,
		Example: `url: "amqp://127.0.0.1:5672"`,
		Metrics: drivers.SharedMetrics(
			drivers.MetricMemoryQueues, drivers.MetricConnections, drivers.MetricConnectionRate,
			drivers.MetricChannels, drivers.MetricConsumers, drivers.MetricQueues, drivers.MetricQueueDepth,
			drivers.MetricUnacked, drivers.MetricPublishRate, drivers.MetricDeliverRate,
			drivers.MetricUnderReplicated),
		Declare: declare,
	}
}

func declare(raw json.RawMessage, use drivers.Use) drivers.Declaration {
	o, err := kit.Decode[options]("artemis", raw)
	if err != nil {
		return drivers.Declaration{Rejections: []string{err.Error()}}
	}
	return drivers.Declaration{
		Capabilities: drivers.Capabilities{
			Modes: drivers.Modes(),
			Acks: []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval,
				drivers.AckAutomatic},
			Persistent:        true,
			Transient:         true,
			UnlimitedPrefetch: true,
			Subscriptions:     o.Routing != anycast,
			Redelivery:        true,
			CopiesBody:        true, // the library encodes the body before it sends
		},
		Guarantees: guarantees(&o, use),
		Notes:      notes(&o, use),
		Resilience: drivers.Vendor(o.Resilience, drivers.ByGuide),
		Label:      label(&o, use),
	}
}

// guarantees assumes an address-full-policy that keeps messages: PAGE (the server's default) or BLOCK.
func guarantees(o *options, use drivers.Use) drivers.Guarantees {
	automatic := use.Consumers > 0 && use.Ack == drivers.AckAutomatic
	reachable := len(o.All()) == 1 || o.HA != independent // the backup has the messages that the primary confirmed
	return drivers.Guarantees{
		ConfirmedKept: use.Persistent && reachable && !automatic,
		SentKept:      !automatic, // a consumer that stops drops the messages that the library has prefetched
		NoDuplicates:  true,
		Ordered:       !use.Nack, // rejected messages come again after later ones, without a mark: see amqp10
	}
}

// defaultCredit is the number of messages that Artemis lets a publisher send before it confirms some, by default.
const defaultCredit = 1000

func notes(o *options, use drivers.Use) []string {
	var all []string
	if len(o.All()) > 1 && o.HA == independent {
		all = append(all, `several urls, and ha: "none": a broker that takes over does not have the confirmed messages of the other;`+
			` set ha: "replication" or "shared-store" if the brokers are a pair`)
	}
	if use.Mode.Confirmed() && use.MaxInFlight > defaultCredit {
		all = append(all, fmt.Sprintf("a publisher has at most %d messages in flight, unless amqpCredits of the broker's acceptor"+
			" differs: maxInFlight %d has no effect beyond it",
			defaultCredit, use.MaxInFlight))
	}
	return all
}

// label describes what a confirm means. It assumes that the journal is synced. Describe reports if it is not.
func label(o *options, use drivers.Use) string {
	kind, confirm := "durable", "synced to one broker's journal"
	switch {
	case !use.Persistent:
		kind, confirm = "transient", "in memory of one broker"
	case o.HA == replication:
		confirm = "synced to the journal and replicated to the backup"
	case o.HA == sharedStore:
		confirm = "synced to the one journal that the pair shares"
	}
	if o.multicast(use.Subscriptions) {
		kind += " multicast"
	}
	kind += " over AMQP 1.0, one disposition per message"
	if !use.Mode.Confirmed() {
		return kind + ", not confirmed"
	}
	return kind + ", confirm: " + confirm
}
