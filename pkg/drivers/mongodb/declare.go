package mongodb

import (
	_ "embed"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

//go:embed schema.cue
var schema string

func (driver) Info() drivers.Info {
	return drivers.Info{
		Name: "mongodb",
		Doc: "MongoDB as a queue: messages are inserted into a collection, claimed by findAndModify with a visibility time, and deleted " +
			"to acknowledge them.",
		Schema:  schema + kit.Schema,
		Example: `url: "mongodb://127.0.0.1:27017"`,
		Metrics: drivers.SharedMetrics(
			drivers.MetricMemory, drivers.MetricCPU, drivers.MetricRunQueue, drivers.MetricConnections,
			drivers.MetricConnectionRate, drivers.MetricQueues, drivers.MetricQueueDepth, drivers.MetricUnacked,
			drivers.MetricPublishRate, drivers.MetricDiskFree, drivers.MetricStored),
		Declare: declare,
	}
}

var declare = kit.Declare("mongodb", func(o *options, use drivers.Use) drivers.Declaration {
	automatic := use.Ack == drivers.AckAutomatic
	resilience := drivers.Vendor(o.Resilience, drivers.ByGuide)
	if o.repeats() {
		resilience = drivers.ByLibrary
	}
	var notes kit.Reasons
	n := o.claimers(use.Prefetch)
	notes.If(use.Prefetch > n && o.Order != orderInsertion,
		"a consumer claims %d messages at a time, within its prefetch of %d: set claimers for more", n, use.Prefetch)
	notes.If(use.Subscriptions > 1,
		"every message is inserted once for each subscription, one insert after another: MongoDB has no fan-out")
	d := drivers.Declaration{
		Capabilities: drivers.Capabilities{
			Modes: modes(o),
			Acks: []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval,
				drivers.AckAutomatic},
			Persistent:        true,
			Transient:         true,
			UnlimitedPrefetch: true,
			Subscriptions:     true,
			Redelivery:        !automatic,
			Existing:          true,
		},
		Guarantees: drivers.Guarantees{
			ConfirmedKept: o.W == 0 && o.stored(use.Persistent) && !automatic,
			// A write with w: 0 may have been rejected.
			SentKept: false,
			// A claim expires after the visibility time, whether its message was handled or not. With AckAutomatic, a
			// claim deletes the message.
			NoDuplicates: automatic,
			Ordered:      o.Order == orderInsertion && (use.Mode != drivers.ConfirmWindow || o.inserters(1) == 1),
		},
		Notes:      notes,
		Resilience: resilience,
		Label:      label(o, use),
	}
	if !automatic {
		d.RedeliverAfter = o.Visibility.Std()
	}
	return d
})

// modes leaves out the unconfirmed modes if the server answers writes with w: 0.
func modes(o *options) []drivers.Mode {
	var some []drivers.Mode
	for _, m := range drivers.Modes() {
		if m.Confirmed() || o.Unacknowledged {
			some = append(some, m)
		}
	}
	return some
}

// stored reports whether a write to the majority is on the disks of the majority. This is the server's default for
// "majority", unless j is false.
func (o *options) stored(persistent bool) bool {
	j := o.journaled(persistent)
	return j == nil || *j
}

// label describes what a confirm means according to the options. Describe reports what the server does.
func label(o *options, use drivers.Use) string {
	text := o.W.String()
	switch j := o.journaled(use.Persistent); {
	case !use.Mode.Confirmed():
		text = "w:0, not confirmed"
	case j == nil && o.W == 0:
		text += ", journaled by default"
	case j == nil:
		text += ", journaled as the server is set"
	case *j:
		text += ", journaled"
	default:
		text += ", not journaled"
	}
	if o.WTimeout > 0 && use.Mode.Confirmed() {
		text += ", wtimeout " + o.WTimeout.String()
	}
	if o.ClaimW != nil {
		text += ", claims " + o.ClaimW.String()
	}
	if use.Subscriptions > 1 {
		text += ", one insert per subscription"
	}
	if strings.Contains(strings.ToLower(o.URL), "replicaset=") || strings.Contains(o.URL, ",") {
		text += "; writes go to the primary"
	}
	return text + "; not tested with mongod"
}
