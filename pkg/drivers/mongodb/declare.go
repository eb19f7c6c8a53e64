package mongodb

import (
	_ "embed"
	"encoding/json"

	"lockstep/pkg/drivers"
)

//go:embed schema.cue
var schema string

func (driver) Info() drivers.Info {
	return drivers.Info{
		Name: "mongodb",
		Doc: "MongoDB as a queue: messages are inserted into a collection, claimed by findAndModify with a visibility time, and deleted " +
			"to acknowledge them.",
		Schema:  schema,
		Declare: declare,
	}
}

func declare(raw json.RawMessage, use drivers.Use) drivers.Declaration {
	o, err := parseOptions(raw)
	if err != nil {
		return drivers.Declaration{Unfit: []string{err.Error()}}
	}
	automatic := use.Ack == drivers.AckAutomatic
	d := drivers.Declaration{
		Capabilities: drivers.Capabilities{
			Modes: modes(&o),
			Acks: []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval,
				drivers.AckAutomatic},
			Persistent:        true,
			Transient:         true,
			UnlimitedPrefetch: true,
			Subscriptions:     true,
			Redelivery:        !automatic,
		},
		Guarantees: drivers.Guarantees{
			ConfirmedKept: o.W == 0 && o.stored(use.Persistent) && !automatic,
			// A write that nobody answers may have been refused.
			SentKept: false,
			// A claim ends with the visibility time, whether its message was handled or not; only findAndModify with
			// remove is final.
			NoDuplicates: automatic,
			Ordered:      o.Order == orderInsertion && (use.Mode != drivers.ConfirmWindow || o.Inserters == 1),
		},
		Label: label(&o, use),
	}
	if !automatic {
		d.RedeliverAfter = o.times.visibility
	}
	if use.Subscriptions > 1 {
		d.Notes = append(d.Notes,
			"every message is inserted once for each subscription, one insert after another: MongoDB has no fan-out")
	}
	return d
}

// modes leaves out what has no confirms where the server answers it all the same.
func modes(o *options) []drivers.Mode {
	var some []drivers.Mode
	for _, m := range drivers.Modes() {
		if m.Confirmed() || o.Unacknowledged {
			some = append(some, m)
		}
	}
	return some
}

// stored reports whether a write of the majority is on the disks of the majority: the server's default for it, unless j
// is false.
func (o *options) stored(persistent bool) bool {
	j := o.journaled(persistent)
	return j == nil || *j
}

// label says what a confirm means, as asked: what the server makes of it is in its description.
func label(o *options, use drivers.Use) string {
	if !use.Mode.Confirmed() {
		return "w:0, not confirmed"
	}
	text := o.W.String()
	switch j := o.journaled(use.Persistent); {
	case j == nil && o.W == 0:
		text += ", journaled by default"
	case j == nil:
		text += ", journaled as the server is set"
	case *j:
		text += ", journaled"
	default:
		text += ", not journaled"
	}
	if o.WTimeout != "" {
		text += ", wtimeout " + o.WTimeout
	}
	return text
}
