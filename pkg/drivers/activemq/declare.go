package activemq

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
	return drivers.Declaration{
		Capabilities: drivers.Capabilities{
			Modes: drivers.Modes(),
			Acks: []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval,
				drivers.AckAutomatic},
			Persistent:        true,
			Transient:         true,
			UnlimitedPrefetch: true,
			Subscriptions:     true,
			Redelivery:        true,
			CopiesBody:        true, // the library encodes the body before it sends
		},
		Guarantees: guarantees(&o, use),
		Notes:      notes(&o, use),
		Resilience: drivers.Vendor(o.Resilience, drivers.ByGuide),
		Label:      label(&o, use),
	}
}

func guarantees(o *options, use drivers.Use) drivers.Guarantees {
	automatic := use.Consumers > 0 && use.Ack == drivers.AckAutomatic
	// the next active broker has the messages that the last one confirmed
	reachable := len(o.All()) == 1 || o.HA == sharedStore
	return drivers.Guarantees{
		ConfirmedKept: use.Persistent && reachable && !automatic,
		SentKept:      !automatic, // a consumer that stops drops the messages that the library has prefetched
		NoDuplicates:  true,
		Ordered:       !use.Nack, // rejected messages come again after later ones, without a mark: see amqp10
	}
}

// defaultCredit is the number of messages that ActiveMQ lets a publisher send before it confirms some, by default.
const defaultCredit = 1000

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
	if use.Mode.Confirmed() && use.MaxInFlight > defaultCredit {
		all = append(all, fmt.Sprintf("a publisher has at most %d messages in flight, unless transport.producerCredit of the"+
			" broker's connector differs: maxInFlight %d has no effect beyond it", defaultCredit, use.MaxInFlight))
	}
	return all
}

// label describes what a confirm means. It assumes that the store is synced, which the broker does not report.
func label(o *options, use drivers.Use) string {
	kind, confirm := "persistent", "synced to one broker's store"
	switch {
	case !use.Persistent:
		kind, confirm = "transient", "in memory of one broker"
	case o.HA == sharedStore:
		confirm = "synced to the one store that the brokers share"
	}
	if use.Subscriptions > 1 {
		kind += " composite"
	}
	kind += " over AMQP 1.0, one disposition per message"
	if !use.Mode.Confirmed() {
		return kind + ", not confirmed"
	}
	return kind + ", confirm: " + confirm
}
