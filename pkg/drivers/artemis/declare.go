package artemis

import (
	_ "embed"
	"encoding/json"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/amqp10"
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
	// The backup has the messages that the primary confirmed. This assumes an address-full-policy that keeps messages:
	// PAGE (the server's default) or BLOCK.
	kept := len(o.All()) == 1 || o.HA != independent
	kind, confirm := label(&o, use)
	d := o.Declare(use, kept, kind, confirm)
	d.Capabilities.Subscriptions = o.Routing != anycast
	d.Capabilities.Existing = o.Routing != multicast // an existing queue has the name of its address
	d.Notes = notes(&o, use)
	return d
}

func notes(o *options, use drivers.Use) []string {
	var all []string
	if len(o.All()) > 1 && o.HA == independent {
		all = append(all, `several urls, and ha: "none": a broker that takes over does not have the confirmed messages of the other;`+
			` set ha: "replication" or "shared-store" if the brokers are a pair`)
	}
	return append(all, amqp10.CreditNotes(use, "amqpCredits of the broker's acceptor")...)
}

// label describes the messages, and what a confirm means. It assumes that the journal is synced. Describe reports if it
// is not.
func label(o *options, use drivers.Use) (kind, confirm string) {
	kind, confirm = "durable", "synced to one broker's journal"
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
	return kind, confirm
}
