// Package drivers is the contract between Lockstep's engine and one kind of message broker, and the
// registry of the drivers that a binary was built with. A driver moves bytes; the engine owns time,
// sequence numbers, pacing, windows, reconnection and statistics, so that metrics compare across brokers.
//
// A driver is one folder: driver.go, publisher.go, consumer.go, schema.cue, driver_test.go (one call of
// drivertest.Run), and one line in package all. CONTRIBUTING.md shows the way.
package drivers

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"time"
)

// ErrUnsupported is returned (wrapped, with the reason) for what a driver did not declare.
var ErrUnsupported = errors.New("not supported by this driver")

// ErrClosed is the error of a confirm, a publish or a close notice that failed because the link to the
// broker is gone. Drivers wrap their library's own error with it.
var ErrClosed = errors.New("link to the broker is closed")

// ErrRejected is the error of a confirm by which the broker refused a message (AMQP's basic.nack).
var ErrRejected = errors.New("broker rejected the message")

// Driver speaks to one kind of broker. It holds no state: everything belongs to a Session.
type Driver interface {
	// Info describes the driver. It touches neither network nor disk.
	Info() Info
	// Open validates options and prepares a session for one agent and one task. It may dial, but needs
	// not; every connection it or its session ever makes goes through env.Dial or env.Forward.
	// A broker that cannot be reached is an error that names the address, before ctx ends.
	Open(ctx context.Context, options json.RawMessage, env Env) (Session, error)
}

// Info is what a driver says of itself.
type Info struct {
	Name string // as in a matrix: driver: "nats"
	Doc  string // one or two sentences for people
	// Schema is CUE source that defines #Options, closed, with a comment on every field. Embed schema.cue. A field that
	// holds a secret has the attribute @secret(): records hide its value.
	Schema string
	// Declare says what this configuration can do and guarantees. Options have passed Schema and have its
	// defaults. It is called at plan time, for every cell, so it is pure and fast.
	Declare func(options json.RawMessage, use Use) Declaration
}

// Use is what a cell asks of a driver, as far as guarantees and capabilities may depend on it.
type Use struct {
	Mode          Mode
	Persistent    bool
	Mandatory     bool
	Ack           Ack
	Prefetch      int
	Queues        int
	Subscriptions int
	Bindings      int
	Publishers    int  // threads of all agents together
	Consumers     int  // threads of all agents together, over all subscriptions
	Churn         bool // bindings are made and removed while messages flow
	Keys          bool // messages have keys of a distribution
	Nack          bool // consumers refuse a share of what they receive
	Simulated     bool // latency, jitter, bandwidth or faults of connections between client and broker
	PublisherNode Node
	ConsumerNode  Node
	QueueNode     Node
}

// Declaration is what a driver declares for one configuration and one use of it.
type Declaration struct {
	Capabilities Capabilities
	Guarantees   Guarantees
	// RedeliverAfter is how long, at most, the broker keeps back what it delivered and no consumer acknowledged: a
	// visibility timeout, an acknowledgement or session timeout. It counts from when the consumer's link broke or the
	// acknowledgement was missed. 0: it delivers such messages again as soon as it notices that the connection is gone.
	RedeliverAfter time.Duration
	// Unfit lists reasons, in words, why this use cannot work with these options, beyond what
	// Capabilities say ("a stream queue needs a prefetch of 1 or more"). The cell is then n/a. With no modes
	// at all it says what is wrong with the options themselves, and the matrix has a fault.
	Unfit []string
	// Notes say what is possible but perhaps not meant ("25 consumers share 16 partitions: 9 get nothing").
	// They are shown before the run and kept with the cell.
	Notes []string
	// Label says in a few words what a confirm means here: "quorum, majority written",
	// "classic transient, one node". Tables carry it, so that unlike things are not compared unawares.
	Label string
}

// Capabilities are what a configuration can do. Expansion checks cells against them, and drivertest
// proves every declared one and that every undeclared mode is refused with ErrUnsupported.
type Capabilities struct {
	Modes             []Mode
	Acks              []Ack
	Mandatory         bool // unroutable messages come back through OnReturn
	Persistent        bool // messages can be asked to survive a restart of the broker
	Transient         bool // messages can be sent without that
	UnlimitedPrefetch bool // prefetch 0
	Subscriptions     bool // several subscriptions each receive every message (fan-out)
	Bindings          bool // several bindings per queue
	Churn             bool // bindings can be made and removed while messages flow: sessions are Binders
	Nodes             bool // publishers, consumers and queues can be pinned to cluster nodes
	Keys              bool // Message.Key decides where a message goes, or what it is kept in order with
	Redelivery        bool // a handler's error brings the deliveries again
	Streams           bool // Delivery.Stream tells several streams (partitions) apart
	InProcess         bool // the broker is in the memory of the agent's process: each process has one of its own
	CopiesBody        bool // Publish keeps nothing of Body once it has returned, in confirmed modes too
}

// Guarantees are what a broker may be held to. Breaking one makes a cell's verdict invalid.
type Guarantees struct {
	// ConfirmedKept: no message whose confirm came without error is lost while this task runs.
	ConfirmedKept bool
	// SentKept: no message that Publish accepted is lost even without a confirm, as long as no link breaks.
	SentKept bool
	// NoDuplicates: each subscription receives each message at most once, as long as no link breaks.
	NoDuplicates bool
	// Ordered: messages of one publisher to one queue reach one consumer of one stream in the order sent.
	Ordered bool
}

// Mode is how a publisher sends.
type Mode string

// The modes.
const (
	FireAndForget               Mode = "fire-and-forget"
	ConfirmWindow               Mode = "confirm-window"
	ConfirmBatch                Mode = "confirm-batch"
	ConfirmEach                 Mode = "confirm-each"
	ConnectionPerMessage        Mode = "connection-per-message"
	ConnectionPerMessageConfirm Mode = "connection-per-message-confirm"
)

// Modes lists every mode, in the order of the documentation.
func Modes() []Mode {
	return []Mode{FireAndForget, ConfirmWindow, ConfirmBatch, ConfirmEach, ConnectionPerMessage,
		ConnectionPerMessageConfirm}
}

// Confirmed reports whether messages of this mode are confirmed by the broker.
func (m Mode) Confirmed() bool { return m != FireAndForget && m != ConnectionPerMessage }

// Ack is when a consumer acknowledges.
type Ack string

// The ways to acknowledge.
const (
	AckEach      Ack = "each"      // every message by itself
	AckEvery     Ack = "every"     // once for every n messages
	AckInterval  Ack = "interval"  // once an interval, for all that came since
	AckAutomatic Ack = "automatic" // never: the broker forgets a message as it sends it
)

// Node says which node of a cluster something is placed on: "any", a decimal index into the
// endpoints in the order the options list them, or "leader" or "follower" of the queue.
type Node string

// AnyNode leaves the choice to the driver: the first endpoint that answers.
const AnyNode Node = "any"

// Env is what a session may use of its host. It is valid until the session is closed.
type Env struct {
	// Dial is the only way to the broker, netsim included. Safe for concurrent use.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// DialAside leads to what is no part of the measured path, a management API: past the cell's proxy and simulated
	// network. Nil: Dial leads there too. Use Aside.
	DialAside func(ctx context.Context, network, address string) (net.Conn, error)
	// Forward is for client libraries without a dialer hook: it returns a loopback address whose
	// connections go on to address through Dial. It lives as long as the session.
	Forward func(ctx context.Context, address string) (local string, err error)
	Log     *slog.Logger // never per message; it removes the secrets of the options
	// Event reports what the link did of itself. Safe for concurrent use; never blocks.
	Event func(kind EventKind, detail string)
	// Dir is an empty folder of this task's own for drivers that keep state (an embedded server); the
	// agent removes it when the session is closed. May be empty for drivers that need none.
	Dir string
	// Access is the only way to files, variables and identities of the host that options name.
	Access Access
}

// Aside is the way to what is no part of the measured path.
func (e Env) Aside() func(ctx context.Context, network, address string) (net.Conn, error) {
	if e.DialAside != nil {
		return e.DialAside
	}
	return e.Dial
}

// EventKind classes an Event.
type EventKind string

// The kinds of events. Time between a Blocked and the Unblocked of equal detail is recorded as blocked by the broker,
// so the detail names what is blocked ("127.0.0.1:5672"), the same in both; why it is blocked goes into a Notice.
const (
	EventBlocked    EventKind = "blocked"
	EventUnblocked  EventKind = "unblocked"
	EventRebalanced EventKind = "rebalanced"
	EventNotice     EventKind = "notice" // anything else worth a line in the record
)

// Topology is what one task needs at the broker. A message sent to queue q with key k reaches, in
// every subscription, the queue q of that subscription once (through its binding k, where there are any).
type Topology struct {
	// Name is unique to the task and safe in every broker ([a-z0-9-], ≤ 60 bytes). Every name that the
	// driver makes begins with it, so that nothing of anybody else's is ever touched.
	Name          string
	Queues        int // ≥ 1
	Subscriptions int // ≥ 1
	Bindings      int // per queue, ≥ 1
	QueueNode     Node
	Persistent    bool // queues survive a restart of the broker
	Publishers    int  // threads of all agents together, for sizing
	Consumers     int  // threads of all agents together, for sizing
}

// Session is one agent's use of a broker during one task. Its methods are safe for concurrent use.
type Session interface {
	// Setup declares the topology, empty. Once a task, called by one agent; idempotent.
	Setup(ctx context.Context, t Topology) error
	// Teardown removes what Setup declared. It succeeds if there is nothing to remove, also when
	// another session or process made it.
	Teardown(ctx context.Context, t Topology) error
	// Publisher connects a publisher. Setup has been done by then, perhaps by another agent.
	Publisher(ctx context.Context, spec PublisherSpec) (Publisher, error)
	// Consumer connects a consumer and returns only when no message published from now on can be
	// missed. handle is called from one goroutine at a time for each consumer.
	Consumer(ctx context.Context, spec ConsumerSpec, handle Handler) (Consumer, error)
	// Close ends everything that is still open, without waiting for confirms. Safe to call twice.
	Close() error
}

// PublisherSpec says what a publisher is for.
type PublisherSpec struct {
	Topology    Topology
	Queue       int // the queue its messages go to
	Mode        Mode
	MaxInFlight int // confirm-window: most messages unconfirmed at a time
	Batch       int // confirm-batch: most messages of a batch
	Persistent  bool
	Mandatory   bool
	Node        Node
	// Connection numbers the connection: publishers (and consumers) of a session with the same number share one
	// where the broker multiplexes; Exclusive asks for one that nobody else uses.
	Connection int
	// OnConfirm is called exactly once for each message that Publish accepted in a confirmed mode, never in
	// the others: err is nil, or wraps ErrRejected or ErrClosed. One call at a time for each publisher, from any
	// goroutine, possibly before Publish returns. It does not block and does not call the publisher.
	// By the time Close returns, every accepted message has had its call.
	OnConfirm func(token uint64, err error)
	// OnReturn gives back an unroutable mandatory message; body is lent until it returns. It comes before
	// that message's OnConfirm. One call at a time for each publisher.
	OnReturn func(body []byte)
	// Waiting is told when Publish or Flush waits for the broker. Blocked writes to connections that the driver dials
	// with the context of Session.Publisher are counted by themselves: a driver whose Publish does not wait for them
	// dials without it. It may be nil.
	Waiting *Waiting
	// OnClosed is called at most once, when the link broke by itself; never after Close was called, and when Close
	// returns it is not running: Notice does that. It does not block and does not call the publisher.
	// The engine then closes the publisher and connects another.
	OnClosed func(err error)
}

// Exclusive is a connection number that is never shared.
const Exclusive = -1

// ConsumerSpec says what a consumer is for.
type ConsumerSpec struct {
	Topology     Topology
	Subscription int
	Queue        int
	Prefetch     int           // most unacknowledged messages; 0 is unlimited
	Batch        int           // most deliveries of one handler call, ≥ 1; fewer are passed on without waiting
	Ack          Ack           //
	AckEvery     int           // AckEvery: n
	AckInterval  time.Duration // AckInterval
	Node         Node
	Connection   int
	// OnClosed is called at most once, when the link broke by itself; never after Close was called, and when Close
	// returns it is not running: Notice does that. It does not block and does not call the consumer.
	OnClosed func(err error)
}

// ExtraKey is the first of the keys that belong to bindings made by a Binder.
const ExtraKey uint32 = 1 << 31

// Message is one message to send.
type Message struct {
	Token uint64 // given back to OnConfirm
	// binding of the queue, or partition key: the driver takes it modulo what there is, unless it is an ExtraKey or
	// above
	Key  uint32
	Body []byte // the driver's until its confirm; in unconfirmed modes, and with CopiesBody, until Publish returns
}

// Delivery is one message received.
type Delivery struct {
	Body        []byte   // lent until the handler returns
	Redelivered Tristate // as the broker says
	Stream      uint32   // partition or queue: the scope of the order guarantee
}

// Tristate is yes, no, or that the broker does not say.
type Tristate uint8

// The three states.
const (
	NotSaid Tristate = iota
	No
	Yes
)

// Handler takes deliveries in the order received. Nil acknowledges them, in the way the spec says; an error rejects
// them, to be delivered again where the driver declares Redelivery. It does not call the consumer.
type Handler func([]Delivery) error

// Publisher sends. One goroutine calls Publish and Flush; Close may come from another, also while they block.
type Publisher interface {
	// Publish hands one message over; it blocks while the broker or the network will not take more.
	// An error means that the message was not accepted: no OnConfirm follows, but it may have gone out.
	// Nothing is ever sent twice.
	Publish(ctx context.Context, m Message) error
	// Flush sends what the driver has buffered, without waiting for confirms. The engine calls it
	// after each message of confirm-each, after each batch of confirm-batch, before it waits in confirm-window,
	// and at the end.
	Flush(ctx context.Context) error
	// Close sends what is buffered and ends in an orderly way, so that what was accepted is not lost by closing; it
	// does so within a few seconds even if the broker is dead. Safe to call twice.
	Close() error
}

// Consumer receives until it is closed.
type Consumer interface {
	// Close acknowledges what the handler accepted and stops; when it returns the handler is not running
	// and will not be called again. Within a few seconds even if the broker is dead. Safe to call twice.
	Close() error
}
