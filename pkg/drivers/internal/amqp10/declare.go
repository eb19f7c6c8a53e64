package amqp10

import (
	"fmt"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// brokerIdleTimeout is the default time after which a broker that was cut off ends a silent connection: 60 s for
// Artemis (amqpIdleTimeout), 30 s for ActiveMQ (wireFormat.idleTimeout). A longer one of the client is taken for both.
const brokerIdleTimeout = time.Minute

// Declare returns what drivers of brokers with AMQP 1.0 have in common. kept reports whether a broker that takes over
// has the messages that the last one confirmed. kind and confirm describe messages and their confirms.
func (o *Options) Declare(use drivers.Use, kept bool, kind, confirm string) drivers.Declaration {
	automatic := use.Consumers > 0 && use.Ack == drivers.AckAutomatic
	label := kind + " over AMQP 1.0, one disposition per message, confirm: " + confirm
	if !use.Mode.Confirmed() {
		label = kind + " over AMQP 1.0, one disposition per message, not confirmed"
	}
	redeliverAfter := time.Duration(0)
	if use.Isolated {
		redeliverAfter = max(o.IdleTimeout.Std(), brokerIdleTimeout)
	}
	return drivers.Declaration{
		Capabilities: drivers.Capabilities{
			Modes:             drivers.Modes(),
			Acks:              []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval, drivers.AckAutomatic},
			Persistent:        true,
			Transient:         true,
			UnlimitedPrefetch: true,
			Subscriptions:     true,
			Redelivery:        true,
			CopiesBody:        true, // the library encodes the body before it sends
		},
		Guarantees: drivers.Guarantees{
			ConfirmedKept: use.Persistent && kept && !automatic,
			SentKept:      !automatic, // a consumer that stops drops the messages that the library has prefetched
			NoDuplicates:  true,
			// Rejected messages come again after later ones, without a mark. A broker stores messages of different
			// connections at the same time, so that a message without a confirm may come after that of the next one.
			Ordered: !use.Nack && use.Mode != drivers.ConnectionPerMessage,
		},
		Resilience: drivers.Vendor(o.Resilience, drivers.ByGuide),
		Label:      label,

		RedeliverAfter: redeliverAfter,
	}
}

// defaultCredit is the number of messages that the brokers let a publisher send before they confirm some, by default.
const defaultCredit = 1000

// CreditNotes returns a note if more messages are to be in flight than setting, an option of the broker, permits by
// default.
func CreditNotes(use drivers.Use, setting string) []string {
	if !use.Mode.Confirmed() || use.MaxInFlight <= defaultCredit {
		return nil
	}
	return []string{fmt.Sprintf("a publisher has at most %d messages in flight, unless %s differs: maxInFlight %d has no"+
		" effect beyond it", defaultCredit, setting, use.MaxInFlight)}
}
