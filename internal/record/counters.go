package record

import "fmt"

// Counter names one of a window's counters.
type Counter uint8

// The counters. Those of bytes count bodies.
const (
	Sent             Counter = iota // accepted by Publish
	SentBytes                       //
	Confirmed                       // confirmed without an error
	Rejected                        // confirmed with an error: the broker refused
	Unconfirmed                     // the link broke before the confirm
	Returned                        // unroutable
	PublishErrors                   // Publish returned an error; the message may have gone out
	PortsExhausted                  // dials that failed for want of local ports
	Received                        // all deliveries of whole messages of this task
	ReceivedBytes                   // of what is Unique
	Unique                          // received by this owner for the first time
	Duplicated                      // received by this owner again
	Reordered                       // after a later one of the same stream
	Redelivered                     // deliveries that the broker marks as such
	Corrupt                         // bodies whose envelope does not verify
	Foreign                         // whole envelopes of another task
	Reconnects                      // links opened again
	ConnBlockedNanos                // time that the broker held connections back
	Unsent                          // due inside the measurement, and never sent
	BindingsMade                    // confirmed by the broker while messages flowed
	BindingsRemoved                 //
	BindingErrors                   // calls to make or remove one that failed
	BindingSent                     // messages through them: accepted by Publish
	BindingReceived                 // messages through them: all deliveries
	Timeouts                        // of PublishErrors and of refused connections: a deadline passed
	ClosedErrors                    // of PublishErrors: the link was gone
	Nacked                          // deliveries that a consumer refused (consumers.nack); they are not in Received
	// publishers and consumers that connected (lifetime), beside those there from the start
	Connects
	Disconnects // that left
	SpinNanos   // processor time that pacing spent waiting without sleeping
	numCounters
)

var counterNames = [numCounters]string{"sent", "sentBytes", "confirmed", "rejected", "unconfirmed", "returned",
	"publishErrors",
	"portsExhausted", "received", "receivedBytes", "unique", "duplicated", "reordered", "redelivered", "corrupt",
	"foreign",
	"reconnects", "connBlockedNanos", "unsent", "bindingsMade", "bindingsRemoved", "bindingErrors", "bindingSent",
	"bindingReceived",
	"timeouts", "closedErrors", "nacked", "connects", "disconnects", "spinNanos"}

// Series names one of a window's latency distributions.
type Series uint8

// The series, all in nanoseconds.
const (
	Publish         Series = iota // publish call to confirm
	PublishIntended               // intended send time to confirm
	EndToEnd                      // intended send time (closed loop: publish call) to delivery
	SendDelay                     // how late the generator itself sent
	Backpressure                  // how long the broker kept the publisher from sending
	Binding                       // call that makes a binding to the broker's word
	BindingMessage                // publish call to delivery of messages through a new binding, less the first received
	PublishFailed                 // publish call to refusal, error or loss of the link: what is kept out of Send
	// by how much the time between two sends is off the time between their intended send times (open loop, not blocked)
	Pacing
	GCPause    // of the agent's process: each stop of the world
	Scheduling // of the agent's process: how long goroutines that could run waited for a processor
	// intended send time to the end of the drain, of what was due inside the measurement and never sent
	UnsentAge
	NetworkDelay // simulated network: how much later than asked for a piece was handed over, one way
	// intended send time to error or loss of the link, without an answer of the broker (open loop)
	Unanswered
	numSeries
)

var seriesNames = [numSeries]string{"publish", "publishIntended", "endToEnd", "sendDelay", "backpressure", "binding",
	"bindingMessage",
	"publishFailed", "pacing", "gcPause", "scheduling", "unsentAge", "networkDelay", "unanswered"}

// SetKind names what the sequence numbers of a Set have in common.
type SetKind uint8

// The kinds of sets.
const (
	SetSent            SetKind = iota // Publish accepted them
	SetUncertain                      // Publish returned an error: they may have gone out
	SetConfirmed                      // confirmed without an error
	SetRejected                       // refused by the broker
	SetReturned                       // unroutable
	SetReceived                       // received by the key's subscription
	SetBindingSent                    // messages through bindings made while messages flow, numbered by themselves
	SetBindingReceived                // of those, received
	numSetKinds
)

var setKindNames = [numSetKinds]string{"sent", "uncertain", "confirmed", "rejected", "returned", "received",
	"bindingSent", "bindingReceived"}

// Counters lists every counter.
func Counters() []Counter { return all[Counter](len(counterNames)) }

// AllSeries lists every series.
func AllSeries() []Series { return all[Series](len(seriesNames)) }

// String is the counter's stable name, as in records.
func (c Counter) String() string { return nameOf(counterNames[:], c) }

// MarshalText gives the counter's stable name.
func (c Counter) MarshalText() ([]byte, error) { return marshalName(counterNames[:], c) }

// UnmarshalText reads a counter's stable name.
func (c *Counter) UnmarshalText(text []byte) error { return unmarshalName(counterNames[:], c, text) }

// String is the series' stable name, as in records.
func (s Series) String() string { return nameOf(seriesNames[:], s) }

// MarshalText gives the series' stable name.
func (s Series) MarshalText() ([]byte, error) { return marshalName(seriesNames[:], s) }

// UnmarshalText reads a series' stable name.
func (s *Series) UnmarshalText(text []byte) error { return unmarshalName(seriesNames[:], s, text) }

// String is the kind's stable name, as in records.
func (k SetKind) String() string { return nameOf(setKindNames[:], k) }

// MarshalText gives the kind's stable name.
func (k SetKind) MarshalText() ([]byte, error) { return marshalName(setKindNames[:], k) }

// UnmarshalText reads a kind's stable name.
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
