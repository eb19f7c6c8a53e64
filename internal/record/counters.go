package record

import "fmt"

// Counter is one of a window's counters.
type Counter uint8

// The counters. Bytes are those of bodies.
const (
	Sent             Counter = iota // accepted by Publish
	SentBytes                       //
	Confirmed                       // confirmed without an error
	Rejected                        // confirmed with an error: refused by the broker
	Unconfirmed                     // the link broke before the confirm
	Returned                        // unroutable
	PublishErrors                   // Publish returned an error; the message may have gone out
	PortsExhausted                  // dials that failed because no local port was free
	Received                        // all deliveries of intact messages of this task
	ReceivedBytes                   // of the messages in Unique
	Unique                          // received by this owner for the first time
	Duplicated                      // received by this owner again
	Reordered                       // after a later message of the same stream
	Redelivered                     // deliveries that the broker marks as redelivered
	Corrupt                         // bodies whose envelope is invalid
	Foreign                         // intact envelopes of another task; of existing queues, all other messages
	Reconnects                      // links opened again
	ConnBlockedNanos                // time for which the broker blocked connections
	Unsent                          // due in the measurement, and never sent
	BindingsMade                    // confirmed by the broker
	BindingsRemoved                 //
	BindingErrors                   // failed calls to make or remove a binding
	BindingSent                     // messages through new bindings: confirmed by the broker
	BindingReceived                 // messages through new bindings: all deliveries
	Timeouts                        // of PublishErrors: a deadline passed
	ClosedErrors                    // of PublishErrors: the link was closed
	Nacked                          // deliveries that a consumer refused (consumers.nack); not in Received
	// publishers and consumers that connected because of their lifetime; connects before the start do not count
	Connects
	Disconnects // publishers and consumers that disconnected because of their lifetime
	SpinNanos   // processor time that pacing spent polling the clock
	Retries     // requests that a client library repeated because of a failure
	Republished // messages that the engine sent again, because their link broke before the confirm
	numCounters
)

var counterNames = [numCounters]string{"sent", "sentBytes", "confirmed", "rejected", "unconfirmed", "returned",
	"publishErrors",
	"portsExhausted", "received", "receivedBytes", "unique", "duplicated", "reordered", "redelivered", "corrupt",
	"foreign",
	"reconnects", "connBlockedNanos", "unsent", "bindingsMade", "bindingsRemoved", "bindingErrors", "bindingSent",
	"bindingReceived",
	"timeouts", "closedErrors", "nacked", "connects", "disconnects", "spinNanos", "retries",
	"republished"}

// Series is one of a window's latency distributions.
type Series uint8

// The series, all in ns.
const (
	Publish         Series = iota // publish call to confirm
	PublishIntended               // intended send time to confirm
	EndToEnd                      // intended send time (closed loop: publish call) to delivery
	SendDelay                     // delay caused by the load generator
	Backpressure                  // delay caused by the broker before the message was sent
	Binding                       // intended time of a new binding to its confirmation
	BindingMessage                // publish call to delivery through a new binding, without the agent's first delivery
	PublishFailed                 // publish call to rejection, error or loss of the link; not in Publish
	// deviation of the time between two sends from that between their intended send times (open loop, not blocked)
	Pacing
	GCPause    // of the agent's process: each stop-the-world pause
	Scheduling // of the agent's process: time that runnable goroutines waited for a processor
	// intended send time to the end of the drain, of messages that were due in the measurement and never sent
	UnsentAge
	NetworkDelay // simulated network: delay of a piece beyond the configured latency, one way
	// intended send time to error or loss of the link, without an answer of the broker (open loop)
	Unanswered
	numSeries
)

var seriesNames = [numSeries]string{"publish", "publishIntended", "endToEnd", "sendDelay", "backpressure", "binding",
	"bindingMessage",
	"publishFailed", "pacing", "gcPause", "scheduling", "unsentAge", "networkDelay", "unanswered"}

// SetKind is the property that the messages in a Set have in common.
type SetKind uint8

// The kinds of sets.
const (
	SetSent            SetKind = iota // accepted by Publish
	SetUncertain                      // Publish returned an error; they may have been sent
	SetConfirmed                      // confirmed without an error
	SetRejected                       // refused by the broker
	SetReturned                       // unroutable
	SetReceived                       // received by the key's subscription
	SetBindingSent                    // messages through bindings made during the load, numbered separately
	SetBindingReceived                // received messages of those
	SetDropped                        // rejected by the key's subscription, and dropped by the broker
	numSetKinds
)

var setKindNames = [numSetKinds]string{"sent", "uncertain", "confirmed", "rejected", "returned", "received",
	"bindingSent", "bindingReceived", "dropped"}

// Counters returns all counters.
func Counters() []Counter { return all[Counter](len(counterNames)) }

// AllSeries returns all series.
func AllSeries() []Series { return all[Series](len(seriesNames)) }

// String returns the counter's stable name, as in records.
func (c Counter) String() string { return nameOf(counterNames[:], c) }

// MarshalText returns the counter's stable name.
func (c Counter) MarshalText() ([]byte, error) { return marshalName(counterNames[:], c) }

// UnmarshalText parses a counter's stable name.
func (c *Counter) UnmarshalText(text []byte) error { return unmarshalName(counterNames[:], c, text) }

// String returns the series' stable name, as in records.
func (s Series) String() string { return nameOf(seriesNames[:], s) }

// MarshalText returns the series' stable name.
func (s Series) MarshalText() ([]byte, error) { return marshalName(seriesNames[:], s) }

// UnmarshalText parses a series' stable name.
func (s *Series) UnmarshalText(text []byte) error { return unmarshalName(seriesNames[:], s, text) }

// String returns the kind's stable name, as in records.
func (k SetKind) String() string { return nameOf(setKindNames[:], k) }

// MarshalText returns the kind's stable name.
func (k SetKind) MarshalText() ([]byte, error) { return marshalName(setKindNames[:], k) }

// UnmarshalText parses a kind's stable name.
func (k *SetKind) UnmarshalText(text []byte) error { return unmarshalName(setKindNames[:], k, text) }

func all[T ~uint8](n int) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = T(i)
	}
	return list
}

func nameOf[T ~uint8](names []string, value T) string {
	if int(value) < len(names) {
		return names[value]
	}
	return fmt.Sprintf("%T(%d)", value, uint8(value))
}

func marshalName[T ~uint8](names []string, value T) ([]byte, error) {
	if int(value) >= len(names) {
		return nil, fmt.Errorf("encode %T: %d is none", value, uint8(value))
	}
	return []byte(names[value]), nil
}

func unmarshalName[T ~uint8](names []string, value *T, text []byte) error {
	for i, name := range names {
		if name == string(text) {
			*value = T(i)
			return nil
		}
	}
	return fmt.Errorf("read %T: %q is not known to this version of Lockstep", *value, text)
}
