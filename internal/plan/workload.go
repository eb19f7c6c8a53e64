package plan

import (
	"time"
)

// Publishers is the sending side of a cell.
type Publishers struct {
	Nodes       int      `json:"nodes"`
	Threads     int      `json:"threads"` // per node
	Mode        string   `json:"mode"`
	MaxInFlight int      `json:"maxInFlight"` // confirm-window
	OnFull      string   `json:"onFull"`      // confirm-window: "wait" for room, or "pause"
	Pause       Duration `json:"pause"`       // onFull "pause": how long
	Batch       Batch    `json:"batch"`       // confirm-batch
	// messages a second of the whole cell; 0 is closed loop, unless there is a profile
	Rate       float64  `json:"rate,omitempty"`
	Arrivals   string   `json:"arrivals"`          // open loop: ArrivalsEven or ArrivalsPoisson
	Profile    []Stage  `json:"profile,omitempty"` // instead of Rate
	Count      uint64   `json:"count,omitempty"`   // per publisher; ends the measurement instead of the duration
	Persistent bool     `json:"persistent"`
	Mandatory  bool     `json:"mandatory"`
	Node       Node     `json:"node"`
	Lifetime   Lifetime `json:"lifetime"`
	// what their agents must have; colocated, with what Consumers.On asks for
	On Labels `json:"on,omitempty"`
}

// Open reports whether messages are due at times of their own (open loop).
func (p Publishers) Open() bool { return p.Rate > 0 || len(p.Profile) > 0 }

// Confirmed reports whether the broker confirms the messages.
func (p Publishers) Confirmed() bool {
	return p.Mode != "fire-and-forget" && p.Mode != "connection-per-message"
}

// InFlight is the maximum number of messages that one publisher has in flight by its mode.
func (p Publishers) InFlight() int {
	switch p.Mode {
	case "confirm-window":
		return p.MaxInFlight
	case "confirm-batch":
		return p.Batch.Max
	}
	return 1
}

// Batch is a fixed size (Min == Max) or a uniformly random one.
type Batch struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Consumers is the receiving side of a cell; Nodes 0 means that there is none.
type Consumers struct {
	Nodes       int      `json:"nodes"`
	Threads     int      `json:"threads"`  // per node and subscription
	Prefetch    int      `json:"prefetch"` // 0 is unlimited
	Batch       int      `json:"batch"`
	Ack         string   `json:"ack"`
	AckEvery    int      `json:"ackEvery"`
	AckInterval Duration `json:"ackInterval"`
	Node        Node     `json:"node"`
	// on the publishers' agents, each of which receives its own messages alone
	Colocate bool         `json:"colocate"`
	Process  DurationDist `json:"process"`      // what a consumer takes over each message before it acknowledges
	Nack     float64      `json:"nack"`         // share of deliveries that are refused, to come again
	Lifetime Lifetime     `json:"lifetime"`     // of each consumer's link
	On       Labels       `json:"on,omitempty"` // what their agents must have
}

// Topology is what a cell wants at the broker.
type Topology struct {
	Queues        int    `json:"queues"`
	Subscriptions int    `json:"subscriptions"`
	Bindings      int    `json:"bindings"`    // per queue
	Mapping       string `json:"mapping"`     // publishers to queues: "round-robin" (publisher i to queue i mod queues)
	Connections   string `json:"connections"` // "per-thread" or "shared" (by the threads of one role of an agent)
	Channels      int    `json:"channels"`    // "per-thread": threads that share one connection
	QueueNode     Node   `json:"queueNode"`
	Churn         Churn  `json:"churn"`
}

// Churn is bindings that are made and removed while messages flow, each with messages of its own.
type Churn struct {
	Rate   float64  `json:"rate"`   // bindings a second of the whole cell; 0 is none
	Hold   Duration `json:"hold"`   // how long each stays
	Probes float64  `json:"probes"` // messages a second through each, while it stays
}

// Message is what is sent.
type Message struct {
	// bytes of the body, envelope included; the greatest where there are Sizes
	Size    int         `json:"size"`
	Sizes   []SizeShare `json:"sizes,omitempty"` // a distribution of sizes
	Payload Payload     `json:"payload"`         // what follows the envelope
	Keys    Keys        `json:"keys"`
}

// Network is what netsim adds between client and broker.
type Network struct {
	Latency   Duration `json:"latency"` // of the round trip: half each way
	Jitter    Duration `json:"jitter"`
	Bandwidth int64    `json:"bandwidth,omitempty"` // bytes a second each way and connection; 0 is unlimited
}

// Drain says when the wait for the last messages ends.
type Drain struct {
	Idle    Duration `json:"idle"`    // without a delivery: what is missing then is lost
	Timeout Duration `json:"timeout"` // in all: what is missing then is undrained
}

// Workload is all of a cell that its id is made from, besides the broker's name.
type Workload struct {
	Publishers Publishers `json:"publishers"`
	Consumers  Consumers  `json:"consumers"`
	Topology   Topology   `json:"topology"`
	Message    Message    `json:"message"`
	Network    Network    `json:"network"`
	Warmup     Duration   `json:"warmup"`
	Measure    Duration   `json:"measure"` // with Count: the limit
	// of the measurement, over which each of the "highest" quantiles is taken
	Interval Duration          `json:"interval"`
	Drain    Drain             `json:"drain"`
	Connect  Duration          `json:"connect"` // deadline of opening, declaring and connecting, each
	Skew     Duration          `json:"skew"`    // how far apart agents may start before values are flagged
	Steady   Steady            `json:"steady"`
	Search   *Search           `json:"search,omitempty"`
	Faults   []Fault           `json:"faults,omitempty"` // in order of time
	Groups   []Group           `json:"groups,omitempty"` // by name; none: the cell is one group of its own fields
	Labels   map[string]string `json:"labels,omitempty"`
}

// Default is a workload of nothing but defaults. The matrix schema has the same ones; a test compares them.
func Default() Workload {
	return Workload{
		Publishers: Publishers{Nodes: 1, Threads: 1, Mode: "confirm-window", MaxInFlight: 1000, OnFull: "wait",
			Pause: Duration(100 * time.Millisecond), Batch: Batch{Min: 100, Max: 100}, Arrivals: ArrivalsEven,
			Persistent: true, Node: "any"},
		Consumers: Consumers{Nodes: 1, Threads: 1, Prefetch: 100, Batch: 100, Ack: "each", AckEvery: 100,
			AckInterval: Duration(time.Second), Node: "any"},
		Topology: Topology{Queues: 1, Subscriptions: 1, Bindings: 1, Mapping: "round-robin", Connections: "per-thread",
			Channels: 1, QueueNode: "any", Churn: Churn{Hold: Duration(time.Second), Probes: 10}},
		Message:  Message{Size: 100, Payload: Payload{Kind: PayloadRandom, Repeat: 0.5}},
		Warmup:   Duration(2 * time.Second),
		Measure:  Duration(10 * time.Second),
		Interval: Duration(time.Minute),
		Drain:    Drain{Idle: Duration(5 * time.Second), Timeout: Duration(60 * time.Second)},
		Connect:  Duration(10 * time.Second),
		Skew:     Duration(20 * time.Millisecond),
		Steady:   Steady{Min: Duration(3 * time.Second), Max: Duration(time.Minute)},
	}
}
