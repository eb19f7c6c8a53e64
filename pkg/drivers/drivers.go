// Package drivers defines the interface between Lockstep's engine and drivers for message brokers. It also contains the
// registry of drivers. A driver implements the protocol of a broker. The engine implements everything else, so that
// metrics of brokers are comparable: time, sequence numbers, pacing, max in flight, statistics, which publishers and
// consumers share a connection, reconnection, the end of blocked calls, and when a consumer acknowledges.
//
// A Session is one agent's use of a broker. It makes connections (Conn), and a connection makes publishers and
// consumers. The engine opens each session with Checked.
//
// Close and Stop return within a few seconds even if the broker is dead: it does not answer, or does not even read, and
// its connections stay open. They give up what they wait for, such as a write, an answer or a confirm. Only a running
// handler has no limit. From Stop on, Ack and Nack also return within a few seconds.
//
// A driver is one folder: driver.go, conn.go, publisher.go, consumer.go, schema.cue, and driver_test.go with one call
// of drivertest.Run. It is imported in package all. CONTRIBUTING.md describes how to add one.
package drivers

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"
)

// ErrUnsupported is returned, wrapped with the reason, for functions that a driver did not declare. Checked returns it
// for topologies and specs, so drivers do not check them.
var ErrUnsupported = errors.New("not supported by this driver")

// ErrClosed is the error of a confirm, of Publish and of Err if the link to the broker was lost. Drivers wrap their
// library's own error with it.
var ErrClosed = errors.New("link to the broker is closed")

// ErrRejected is the error of a confirm with which the broker rejected a message (AMQP's basic.nack).
var ErrRejected = errors.New("broker rejected the message")

// Driver supports one kind of broker. It has no state: all state belongs to a Session.
type Driver interface {
	// Info describes the driver. It must not access network or disk.
	Info() Info
	// Open validates options and prepares a session for one agent and one task. It may connect to the broker. Every
	// connection of the driver and its sessions must go through env.Dial or env.Forward. If the broker cannot be
	// reached, the error names the address, and is returned before ctx ends.
	Open(ctx context.Context, options json.RawMessage, env Env) (Session, error)
}

// Info describes a driver.
type Info struct {
	Name string // as in a matrix: driver: "nats"
	Doc  string // one or two sentences for users
	// Schema is CUE source that defines #Options, closed, with a comment on every field. Embed schema.cue. Fields that
	// contain secrets need the attribute @secret(), so that records hide their values.
	Schema string
	// Example has the fields of options, as CUE, for a broker with default settings on this host: ctl init writes them.
	Example string
	// Metrics declares the metrics that Probe may return, in the order of tables. Metrics that several brokers have are
	// declared by SharedMetrics. A name has the same meaning in all drivers.
	Metrics []MetricInfo
	// Declare returns the capabilities and guarantees of a configuration. options are validated and contain the
	// defaults of Schema. It is called during planning, for every cell, and must be pure and fast.
	Declare func(options json.RawMessage, use Use) Declaration
}

// Use describes a cell, as far as capabilities and guarantees may depend on it.
type Use struct {
	Mode          Mode
	MaxInFlight   int // unconfirmed messages per publisher, in modes with confirms
	Persistent    bool
	Mandatory     bool
	Ack           Ack
	Prefetch      int
	Queues        int
	Subscriptions int
	Bindings      int
	Publishers    int  // threads of all agents together
	Consumers     int  // threads of all agents together, over all subscriptions
	Existing      bool // the queues exist already; Queues may be several, Subscriptions and Bindings are 1
	Churn         bool // bindings are made and removed during the load
	Keys          bool // message keys follow a configured distribution
	Nack          bool // consumers refuse a fraction of the deliveries
	Simulated     bool // connections have simulated latency, jitter, bandwidth or faults
	Isolated      bool // a fault cuts the broker off, so it may not notice that connections ended
	PublisherNode Node
	ConsumerNode  Node
	QueueNode     Node
}

// Declaration is the declaration of a driver for one configuration and one use.
type Declaration struct {
	Capabilities Capabilities
	Guarantees   Guarantees
	// RedeliverAfter is the maximum time before the broker delivers unacknowledged messages again: a visibility,
	// acknowledgement or session timeout. It counts from the break of the consumer's link, or from the missed
	// acknowledgement. 0: the broker delivers them again as soon as it detects the lost connection. With Use.Isolated,
	// it includes the time until the broker detects that.
	RedeliverAfter time.Duration
	// Rejections lists the reasons why this use is not supported, besides the Capabilities ("a stream queue needs a
	// prefetch of 1 or more"). The cell is then n/a. Without any mode in Capabilities, it lists the errors of the
	// options themselves, and the matrix is invalid.
	Rejections []string
	// Notes list possible but perhaps unintended effects ("25 consumers share 16 partitions: 9 are idle"). They are
	// shown before the run and stored with the cell.
	Notes []string
	// Resilience is who sends messages again whose link broke before their confirm. "" means NoResilience.
	Resilience Resilience
	// Label is a short description of the meaning of a confirm: "quorum, confirm: written to disk by
	// the majority". Tables show it, because confirms with different meanings are not comparable.
	Label string
}

// Capabilities are the supported features of a configuration. Expansion checks cells against them, and Checked checks
// calls. drivertest tests every declared feature.
type Capabilities struct {
	Modes             []Mode
	Acks              []Ack
	Mandatory         bool // unroutable messages are returned through OnReturn
	Persistent        bool // messages can be published so that they survive a restart of the broker
	Transient         bool // messages can be published without that
	UnlimitedPrefetch bool // prefetch 0
	Subscriptions     bool // each of several subscriptions receives every message (fan-out)
	Bindings          bool // several bindings per queue
	Churn             bool // bindings can be made and removed during the load; sessions implement Binder
	Nodes             bool // publishers, consumers and queues can be pinned to cluster nodes
	Keys              bool // Message.Key determines the destination or the order of a message
	Redelivery        bool // deliveries are repeated after Nack
	Streams           bool // Delivery.Stream distinguishes several streams (partitions)
	Existing          bool // existing queues can be used; sessions implement Verifier
	InProcess         bool // the broker runs in the memory of the agent's process, one per process
	CopiesBody        bool // Publish does not use Body after it returns, also in confirmed modes
}

// Guarantees are properties that a broker must keep. Breaking one makes a cell's verdict invalid.
type Guarantees struct {
	// ConfirmedKept: no message that was confirmed without an error is lost during the task.
	ConfirmedKept bool
	// SentKept: no message that Publish accepted is lost, even without a confirm, unless a link breaks.
	SentKept bool
	// NoDuplicates: each subscription receives each message at most once, unless a link breaks.
	NoDuplicates bool
	// Ordered: messages of one publisher to one queue reach each consumer of one stream in the order of publishing.
	Ordered bool
}

// Resilience is who sends messages again whose link broke before their confirm. Drivers have the option resilience,
// with the values "vendor" and "none". A message that is sent again may be delivered twice, or after later ones.
type Resilience string

// The values of Resilience.
const (
	// NoResilience exposes every broken link: its messages stay unconfirmed.
	NoResilience Resilience = "none"
	// ByGuide is for client libraries that repeat nothing when a connection breaks. The engine connects another
	// publisher and sends the unconfirmed messages again, as the vendors' guides recommend. A driver that repeats
	// refused messages over the same connection, as its library does, calls Env.Retried.
	ByGuide Resilience = "guide"
	// ByLibrary means that the client library reconnects and repeats requests, with its default settings. The driver
	// calls Env.Retried. Done and ErrClosed mean that the library gave up. The engine then acts as with ByGuide.
	ByLibrary Resilience = "library"
)

// Vendor returns resilience for the value "vendor" of a driver's option, and NoResilience for "none".
func Vendor(option string, resilience Resilience) Resilience {
	if option == "none" {
		return NoResilience
	}
	return resilience
}

// Mode is a publish mode.
type Mode string

// The publish modes.
const (
	FireAndForget               Mode = "fire-and-forget"
	ConfirmWindow               Mode = "confirm-window"
	ConfirmBatch                Mode = "confirm-batch"
	ConfirmEach                 Mode = "confirm-each"
	ConnectionPerMessage        Mode = "connection-per-message"
	ConnectionPerMessageConfirm Mode = "connection-per-message-confirm"
)

// Modes returns all modes, in the order of the documentation.
func Modes() []Mode {
	return []Mode{FireAndForget, ConfirmWindow, ConfirmBatch, ConfirmEach, ConnectionPerMessage,
		ConnectionPerMessageConfirm}
}

// Confirmed reports whether the broker confirms messages in this mode.
func (m Mode) Confirmed() bool { return m != FireAndForget && m != ConnectionPerMessage }

// PerMessage reports whether each message has a connection and a publisher of its own.
func (m Mode) PerMessage() bool { return m == ConnectionPerMessage || m == ConnectionPerMessageConfirm }

// Ack is the time at which a consumer acknowledges.
type Ack string

// The values of Ack.
const (
	AckEach      Ack = "each"      // each message separately
	AckEvery     Ack = "every"     // once per n messages
	AckInterval  Ack = "interval"  // once per interval, for all messages since the last
	AckAutomatic Ack = "automatic" // never: the broker removes a message when it sends it
)

// Node is a node of a cluster: "spread", "any", a decimal index, or "leader" or "follower" of the queue. The index is
// that of an endpoint in the options.
type Node string

const (
	// AnyNode means that the driver selects the node: the first endpoint that answers.
	AnyNode Node = "any"
	// SpreadNode distributes connections and the leaders of queues over the nodes, so that their numbers differ by at
	// most one. Connection k (Ordinal of its spec) goes to endpoint k mod n, or the next one that answers. A driver
	// that cannot choose nodes treats it like AnyNode.
	SpreadNode Node = "spread"
	// LeaderNode is the leader of a queue, and FollowerNode one of its followers.
	LeaderNode   Node = "leader"
	FollowerNode Node = "follower"
)

// Chosen reports whether n names a node, or a role of a node.
func (n Node) Chosen() bool { return n != "" && n != AnyNode && n != SpreadNode }

// OfQueue reports whether the node depends on the queue.
func (n Node) OfQueue() bool { return n == LeaderNode || n == FollowerNode }

// Env contains the resources of the host that a session may use. It is valid until the session is closed.
type Env struct {
	// Dial is the only way to connect to the broker. It includes netsim. It is safe for concurrent use.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// DialManagement connects outside of the measured path, for example to a management API. It bypasses the cell's
	// proxy and simulated network. nil: use Dial. Call ManagementDialer instead of this field.
	DialManagement func(ctx context.Context, network, address string) (net.Conn, error)
	// Forward is for client libraries without a dialer hook. It returns the host and port to connect to instead of
	// address: those of a listener on this host that forwards connections through Dial, or address itself if nothing is
	// simulated. They are valid until the session is closed.
	Forward func(ctx context.Context, address string) (local string, err error)
	Log     *slog.Logger // not to be used per message; removes the secrets of the options
	// Event reports an event of the link. It is safe for concurrent use and does not block.
	Event func(kind EventKind, detail string)
	// Retried counts requests that were repeated because of a failure, as the client library does, at the latest when
	// the publisher is closed. It is safe for concurrent use and does not block.
	Retried func(requests int64)
	// Dir is an empty folder of this task, for drivers with state on disk (an embedded server). The agent removes it
	// after the session is closed. It may be "" for drivers that need none.
	Dir string
	// Access is the only way to read files, variables and identities of the host that options name.
	Access Access
}

// ManagementDialer returns the dial function for connections outside of the measured path.
func (e Env) ManagementDialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	if e.DialManagement != nil {
		return e.DialManagement
	}
	return e.Dial
}

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events. The time between Blocked and Unblocked with equal details is recorded as blocked by the broker.
// The detail identifies the blocked connection ("127.0.0.1:5672") and must be the same in both. Report the reason in a
// Notice.
const (
	EventBlocked    EventKind = "blocked"
	EventUnblocked  EventKind = "unblocked"
	EventRebalanced EventKind = "rebalanced"
	// EventReconnecting is the break of a consumer's connection that the client library replaces. RedeliverAfter
	// applies as after the break of a link.
	EventReconnecting EventKind = "reconnecting"
	EventNotice       EventKind = "notice" // any other event that is worth recording
)

// The JSON names of topologies and specs are those of the protocol of external drivers. Every field has one, or "-" if
// it is not sent.

// Topology describes the queues of one task. A message to queue q with key k reaches the queue q of every subscription
// once, through its binding k if there are bindings.
type Topology struct {
	// Name is unique to the task. It consists of letters, digits and "-", and has at most 68 bytes. All names that the
	// driver creates at the broker must begin with it, so that it never affects other users.
	Name          string `json:"name"`
	Queues        int    `json:"queues"`        // ≥ 1
	Subscriptions int    `json:"subscriptions"` // ≥ 1
	Bindings      int    `json:"bindings"`      // per queue, ≥ 1
	QueueNode     Node   `json:"queueNode"`
	Persistent    bool   `json:"persistent"` // queues survive a restart of the broker
	Publishers    int    `json:"publishers"` // threads of all agents together, for sizing
	Consumers     int    `json:"consumers"`  // threads of all agents together, for sizing
	// Existing is the name of a queue that exists at the broker; "" if Setup declares the queues. "%d" in it stands for
	// the number of the queue: see QueueName. The driver creates, changes and deletes nothing then.
	Existing string `json:"-"`
}

// QueueName returns the name of an existing queue, or another name of the user that follows the same pattern: "%d"
// stands for the number of the queue.
func QueueName(pattern string, queue int) string {
	return strings.ReplaceAll(pattern, "%d", strconv.Itoa(queue))
}

// Session is one agent's use of a broker during one task. Its methods are safe for concurrent use. Their arguments are
// valid and were declared: see Checked.
type Session interface {
	// Setup declares the topology with empty queues. One agent calls it once per task. It is idempotent. Checked calls
	// Verifier.Verify instead for existing queues, and does not call Teardown.
	Setup(ctx context.Context, t Topology) error
	// Teardown removes everything that Setup declared, in this or another session. It succeeds if there is nothing to
	// remove.
	Teardown(ctx context.Context, t Topology) error
	// Connect makes a connection, as an application would. Setup was called before, possibly by another agent. The
	// error names the address, and is returned before ctx ends. A driver whose publishers wait for writes dials with
	// ctx: see WithWaiting.
	Connect(ctx context.Context, spec ConnSpec) (Conn, error)
	// Close closes everything that is open, without waiting for confirms, within a few seconds. It may be called twice.
	Close() error
}

// Role is the use of a connection.
type Role string

// The values of Role.
const (
	PublisherRole Role = "publisher"
	ConsumerRole  Role = "consumer"
)

// ConnSpec specifies a connection. Specs are comparable: the engine shares a connection only among equal specs.
type ConnSpec struct {
	Role     Role     `json:"role"` // all users of the connection have it
	Topology Topology `json:"-"`
	Node     Node     `json:"node"`
	Ordinal  int      `json:"ordinal"` // number of the connection among those of its role in the cell: see SpreadNode
	// Subscription and Queue are those of all users of the connection if Node.OfQueue. Otherwise they are 0.
	Subscription int `json:"subscription"`
	Queue        int `json:"queue"`
}

// Ended is how a Conn, a Publisher or a Consumer reports its end. Package kit has an implementation.
type Ended interface {
	// Done is closed when it cannot be used any more, for any reason, also while it is idle.
	Done() <-chan struct{}
	// Err returns why Done is closed, or nil before. It wraps ErrClosed, and is nil if Close of it, or of what it
	// belongs to, was the reason. It does not change after Done is closed.
	Err() error
}

// Conn is what several publishers or several consumers share: a connection, or a client of a library with its
// connections. The engine decides who shares it. A Conn never reconnects, except with ByLibrary. Its methods are safe
// for concurrent use.
type Conn interface {
	// Publisher makes a publisher.
	Publisher(ctx context.Context, spec PublisherSpec) (Publisher, error)
	// Consumer makes a consumer. No message published after it returns may be missed. Calls of handle are serialised
	// per consumer. They may begin before Consumer returns, which does not wait for them.
	Consumer(ctx context.Context, spec ConsumerSpec, handle Handler) (Consumer, error)
	// Node returns the address of the node that the Conn is connected to, or "" if there is not exactly one.
	Node() string
	// Done and Err report the end of the Conn. Its publishers and consumers cannot be used any more either.
	Ended
	// Cut breaks the Conn at once, without the broker. It does not block. Done is closed, all calls of publishers and
	// consumers return that wait for the broker, and all accepted messages get their confirms. The engine calls it when
	// Publish or Flush do not return after their context has ended.
	Cut()
	// Close ends a Conn whose publishers and consumers are closed, within a few seconds even if the broker is dead. It
	// may be called twice.
	Close() error
}

// PublisherSpec specifies a publisher.
type PublisherSpec struct {
	Topology    Topology `json:"-"`
	Queue       int      `json:"queue"` // the queue of its messages
	Mode        Mode     `json:"mode"`
	MaxInFlight int      `json:"maxInFlight"` // confirm-window: maximum number of unconfirmed messages
	Batch       int      `json:"batch"`       // confirm-batch: maximum number of messages in a batch
	Persistent  bool     `json:"persistent"`
	Mandatory   bool     `json:"mandatory"`
	// Keyed: the keys of messages select their partition. Otherwise the client library selects it, in its usual way.
	Keyed bool `json:"keyed"`
	// OnConfirms is called with the tokens of messages that have the same result: nil, or an error that wraps
	// ErrRejected or ErrClosed. A driver passes the messages of one answer of the broker in one call, when it
	// arrives, because the engine records one time for them. If the library does not report where an answer ends, it
	// may make several calls. Each message that Publish accepted in a confirmed mode is passed exactly once, and none
	// in other modes. Calls are serialised per publisher, from any goroutine, possibly before Publish returns.
	// OnConfirms does not block, does not keep or change tokens, and does not call the publisher. When Close returns,
	// it was called for all accepted messages. It is not nil in confirmed modes.
	OnConfirms func(tokens []uint64, err error) `json:"-"`
	// OnReturn is called with the body of an unroutable mandatory message, before that message's OnConfirms. It must
	// not keep body. Calls are serialised per publisher.
	OnReturn func(body []byte) `json:"-"`
	// Waiting records when Publish or Flush waits for the broker. Blocked writes are recorded separately, for
	// connections that were dialled with the context of Session.Connect. A driver whose Publish does not wait for
	// writes must dial with another context. It may be nil.
	Waiting *Waiting `json:"-"`
}

// ConsumerSpec specifies a consumer.
type ConsumerSpec struct {
	Topology     Topology `json:"-"`
	Queue        int      `json:"queue"`
	Subscription int      `json:"subscription"`
	Prefetch     int      `json:"prefetch"` // maximum number of unanswered messages; 0 is unlimited
	Batch        int      `json:"batch"`    // maximum number of deliveries per handler call, ≥ 1; do not wait for more
	// Ack and Nack select the protocol, not the time of an answer. With AckAutomatic, the broker needs no answers, and
	// the methods Ack and Nack are not called. With AckEach, each message gets an answer of its own. With the other
	// values, one answer may include several messages. Without Nack, no message is rejected.
	Ack  Ack  `json:"ack"`
	Nack bool `json:"nack"`
}

// ChurnKey is the lowest key of bindings that a Binder makes.
const ChurnKey uint32 = 1 << 31

// Message is one message to publish.
type Message struct {
	Token uint64 // passed to OnConfirms
	// binding of the queue, message group, or partition key if the spec is Keyed. Keys below ChurnKey are taken modulo
	// the number of bindings, groups or partitions.
	Key  uint32
	Body []byte // the driver's until the confirm; unconfirmed, and with CopiesBody, until Publish returns
}

// Delivery is one delivered message.
type Delivery struct {
	Body        []byte   // valid until the handler returns
	Redelivered Tristate // as the broker reports
	Stream      uint32   // partition or queue: the scope of the ordering guarantee
	// Last: the message reached the broker's maximum number of deliveries. If it is rejected, the broker drops it.
	Last bool
}

// Tristate is yes, no, or not reported by the broker.
type Tristate uint8

// The values of Tristate.
const (
	NotSaid Tristate = iota
	No
	Yes
)

// Handler processes deliveries in the order received. It blocks while they are processed. The engine answers them with
// Consumer.Ack and Consumer.Nack, during the call or later. Besides, it does not call the consumer.
type Handler func([]Delivery)

// Placer is implemented by sessions whose brokers may be clusters.
type Placer interface {
	// Leaders returns how many queues, streams or partitions of a declared topology each node leads, by the node's
	// name. Nodes that lead nothing have 0. nil: the broker has one node, or does not report it. A
	// warning shows the error of a cluster.
	Leaders(ctx context.Context, t Topology) (map[string]int, error)
}

// Publisher publishes messages. One goroutine calls Publish and Flush. Another one may call Close, after these calls
// have returned or the Conn was cut.
type Publisher interface {
	// Publish passes one message to the driver. It blocks while the broker or the network does not accept more. On an
	// error the message was not accepted: OnConfirms is not called, but the message may have been sent. The error wraps
	// ErrClosed if the publisher cannot be used any more. Publish stores a message twice only with ByLibrary. It need
	// not return at the end of ctx while a write is blocked: see Conn.Cut.
	Publish(ctx context.Context, m Message) error
	// Flush sends buffered messages, without waiting for confirms. The engine calls it after each message of
	// confirm-each, after each batch of confirm-batch, before it waits for confirms in confirm-window, and after the
	// last message. It does not call it before it waits for the next intended send time. Otherwise buffers would never
	// fill. So a driver that buffers sends by itself within its own linger time, except parts of a batch of
	// confirm-batch.
	Flush(ctx context.Context) error
	// Done and Err report the end of the publisher. They may be those of the Conn.
	Ended
	// Close sends buffered messages and closes in an orderly way, so that it does not cause the loss of accepted
	// messages. It returns within a few seconds even if the broker is dead. It may be called twice.
	Close() error
}

// Consumer receives messages until it is stopped. Calls of Ack, Nack and the handler are serialised: Ack and Nack are
// called by the handler, or between its calls.
type Consumer interface {
	// Ack accepts the n oldest unanswered deliveries, of which there are at least n. A driver may send the answers of
	// one call of the handler when it returns. Between calls, it sends them at once. Ack may wait for the broker, and
	// from Stop on for a few seconds only. It reports no error: a failure ends the consumer. After its end it has no
	// effect.
	Ack(n int)
	// Nack rejects the n oldest unanswered deliveries, of which there are at least n. It is otherwise like Ack. The
	// broker delivers them again if the driver declares Redelivery.
	Nack(n int)
	// Stop prevents further calls of the handler, and waits for the running one, without a limit. It waits for the
	// broker for a few seconds only. Deliveries that were not handled stay unanswered. With AckAutomatic, it may
	// still call the handler with those that have arrived. Ack and Nack may follow. It may be called twice.
	Stop()
	// Done and Err report the end of the consumer. They may be those of the Conn.
	Ended
	// Close stops, sends all answers, and returns the unanswered messages to the broker. It returns within a few
	// seconds even if the broker is dead. It may be called twice.
	Close() error
}
