package activemq

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
		Name:    "activemq",
		Doc:     "ActiveMQ Classic by AMQP 1.0: persistent or transient messages in queues, on one broker or on brokers that fail over.",
		Schema:  schema + kit.Schema,
		Example: `url: "amqp://127.0.0.1:5672"`,
		Metrics: drivers.SharedMetrics(
			drivers.MetricMemory, drivers.MetricMemoryQueues, drivers.MetricCPU, drivers.MetricFileDescriptors,
			drivers.MetricConnections, drivers.MetricConnectionRate, drivers.MetricConsumers,
			drivers.MetricQueues, drivers.MetricQueueDepth, drivers.MetricUnacked, drivers.MetricPublishRate,
			drivers.MetricDeliverRate, drivers.MetricStored),
		Declare: declare,
	}
}

func declare(raw json.RawMessage, use drivers.Use) drivers.Declaration {
	o, err := kit.Decode[options]("activemq", raw)
	if err != nil {
		return drivers.Declaration{Rejections: []string{err.Error()}}
	}
	// the next active broker has the messages that the last one confirmed
	kept := len(o.All()) == 1 || o.HA == sharedStore
	kind, confirm := label(&o, use)
	d := o.Declare(use, kept, kind, confirm)
	d.Capabilities.Existing = len(o.Jolokia) > 0 // by AMQP, the broker creates missing queues
	d.Notes = notes(&o, use)
	return d
}

func notes(o *options, use drivers.Use) []string {
	var all []string
	if len(o.All()) > 1 && o.HA == independent {
		all = append(all,
			`several urls, and ha: "none": a broker that takes over does not have the confirmed messages of the other;`+
				` set ha: "shared-store" if the brokers share their store`)
	}
	if len(o.Jolokia) == 0 {
		all = append(all,
			"without jolokia the queues of each task stay at the broker, empty, until it removes inactive ones itself")
	}
	return append(all, amqp10.CreditNotes(use, "transport.producerCredit of the broker's connector")...)
}

// label describes the messages, and what a confirm means. It assumes that the store is synced, which the broker does
// not report.
func label(o *options, use drivers.Use) (kind, confirm string) {
	kind, confirm = "persistent", "synced to one broker's store"
	switch {
	case !use.Persistent:
		kind, confirm = "transient", "in memory of one broker"
	case o.HA == sharedStore:
		confirm = "synced to the one store that the brokers share"
	}
	if use.Subscriptions > 1 {
		kind += " composite"
	}
	return kind, confirm
}
