package plan

import (
	"time"

	"lockstep/pkg/drivers"
)

// Publishers is the publishing side of a cell.
type Publishers struct {
	Nodes       int      `json:"nodes"`
	Threads     int      `json:"threads"` // per node
	Mode        string   `json:"mode"`
	MaxInFlight int      `json:"maxInFlight"` // confirm-window
	OnFull      string   `json:"onFull"`      // confirm-window: "wait" for a free slot, or "pause"
	Pause       Duration `json:"pause"`       // duration of a pause with onFull "pause"
	Batch       Batch    `json:"batch"`       // confirm-batch
	// messages per second of the whole cell; 0 is closed loop, unless there is a profile
	Rate       float64  `json:"rate,omitempty"`
	Arrivals   string   `json:"arrivals"`          // open loop: ArrivalsEven or ArrivalsPoisson
	Profile    []Stage  `json:"profile,omitempty"` // instead of Rate
	Count      uint64   `json:"count,omitempty"`   // per publisher; ends the measurement instead of the duration
	Persistent bool     `json:"persistent"`
	Mandatory  bool     `json:"mandatory"`
	Node       Node     `json:"node"`
	Lifetime   Lifetime `json:"lifetime"`
	// labels that their agents need; colocated agents also need those of Consumers.On
	On Labels `json:"on,omitempty"`
}

// Open reports whether messages have intended send times (open loop).
func (p Publishers) Open() bool { return p.Rate > 0 || len(p.Profile) > 0 }

// Confirmed reports whether the broker confirms the messages.
func (p Publishers) Confirmed() bool { return drivers.Mode(p.Mode).Confirmed() }

// InFlight returns the maximum number of messages in flight per publisher in its mode.
func (p Publishers) InFlight() int {
	switch p.Mode {
	case "confirm-window":
		return p.MaxInFlight
	case "confirm-batch":
		return p.Batch.Max
	}
	return 1
}

// Batch is a fixed size (Min == Max) or a uniform distribution of sizes.
type Batch struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Consumers is the consuming side of a cell. Nodes 0 means that there are no consumers.
type Consumers struct {
	Nodes       int      `json:"nodes"`
	Threads     int      `json:"threads"`  // per node and subscription
	Prefetch    int      `json:"prefetch"` // 0 is unlimited
	Batch       int      `json:"batch"`
	Ack         string   `json:"ack"`
	AckEvery    int      `json:"ackEvery"`
	AckInterval Duration `json:"ackInterval"`
	Node        Node     `json:"node"`
	// on the publishers' agents; each agent receives only its own messages
	Colocate bool         `json:"colocate"`
	Process  DurationDist `json:"process"`      // processing time per message before it is acknowledged
	Nack     float64      `json:"nack"`         // fraction of deliveries that are refused and delivered again
	Lifetime Lifetime     `json:"lifetime"`     // of each consumer's link
	On       Labels       `json:"on,omitempty"` // labels that their agents need
}

// Topology describes the queues of a cell at the broker.
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

// Churn configures bindings that are made and removed during the load. Each has its own messages.
type Churn struct {
	Rate   float64  `json:"rate"`   // bindings per second of the whole cell; 0: no churn
	Hold   Duration `json:"hold"`   // lifetime of each binding
	Probes float64  `json:"probes"` // messages per second through each binding
}

// Message describes the messages of a cell.
type Message struct {
	// bytes of the body, envelope included; with Sizes, the maximum
	Size    int         `json:"size"`
	Sizes   []SizeShare `json:"sizes,omitempty"` // a distribution of sizes
	Payload Payload     `json:"payload"`         // what follows the envelope
	Keys    Keys        `json:"keys"`
}

// Varies reports whether bodies differ in size or payload.
func (m Message) Varies() bool {
	return len(m.Sizes) > 0 || m.Payload.Kind == PayloadCompressible || m.Payload.Kind == PayloadFile
}

// Network is the network that netsim simulates between client and broker.
type Network struct {
	Latency   Duration `json:"latency"` // of the round trip; half in each direction
	Jitter    Duration `json:"jitter"`
	Bandwidth int64    `json:"bandwidth,omitempty"` // bytes per second, direction and connection; 0 is unlimited
}

// Drain determines when the wait for the last messages ends.
type Drain struct {
	Idle    Duration `json:"idle"`    // time without a delivery; missing messages are then lost
	Timeout Duration `json:"timeout"` // maximum duration; missing messages are then undrained
}

// Workload contains everything that determines a cell's id, besides the broker's name.
type Workload struct {
	Publishers Publishers `json:"publishers"`
	Consumers  Consumers  `json:"consumers"`
	Topology   Topology   `json:"topology"`
	Message    Message    `json:"message"`
	Network    Network    `json:"network"`
	Warmup     Duration   `json:"warmup"`
	Measure    Duration   `json:"measure"` // with Count: the maximum
	// length of the intervals over which the "highest" quantiles are computed
	Interval Duration          `json:"interval"`
	Drain    Drain             `json:"drain"`
	Connect  Duration          `json:"connect"` // timeout of each open, declare and connect
	Skew     Duration          `json:"skew"`    // maximum difference of the agents' starts before values are flagged
	Steady   Steady            `json:"steady"`
	Search   *Search           `json:"search,omitempty"`
	Faults   []Fault           `json:"faults,omitempty"` // in order of time
	Groups   []Group           `json:"groups,omitempty"` // empty: the cell has one group, the fields above
	Labels   map[string]string `json:"labels,omitempty"`
}

// Default returns a workload with all defaults. The matrix schema has the same defaults; a test compares them.
func Default() Workload {
	return Workload{
		Publishers: Publishers{Nodes: 1, Threads: 1, Mode: "confirm-window", MaxInFlight: 1000, OnFull: "wait",
			Pause: Duration(100 * time.Millisecond), Batch: Batch{Min: 100, Max: 100}, Arrivals: ArrivalsEven,
			Persistent: true, Node: "spread"},
		Consumers: Consumers{Nodes: 1, Threads: 1, Prefetch: 100, Batch: 100, Ack: "each", AckEvery: 100,
			AckInterval: Duration(time.Second), Node: "spread"},
		Topology: Topology{Queues: 1, Subscriptions: 1, Bindings: 1, Mapping: "round-robin", Connections: "per-thread",
			Channels: 1, QueueNode: "spread", Churn: Churn{Hold: Duration(time.Second), Probes: 10}},
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
