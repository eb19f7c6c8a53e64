package plan

import (
	"encoding/json"
	"time"
)

// What Publishers.Arrivals says of the times at which messages are due.
const (
	ArrivalsEven    = "even"    // evenly spaced over the whole cell
	ArrivalsPoisson = "poisson" // each publisher a Poisson stream of its share of the rate
)

// Stage is a part of a rate profile. Stages follow each other from the beginning of the measurement, and begin again
// after the last; warm-up runs at the first one's rate.
type Stage struct {
	For  Duration `json:"for"`
	Rate float64  `json:"rate"`         // messages a second of the whole cell; 0 sends nothing
	To   *float64 `json:"to,omitempty"` // the rate changes to this evenly over the stage; nil: it does not change
}

// Messages is how many the stage has until d after it began, at most all of it.
func (s Stage) Messages(d time.Duration) float64 {
	d = min(d, s.For.D())
	last := s.Rate
	if s.To != nil && s.For > 0 {
		last += (*s.To - s.Rate) * d.Seconds() / s.For.D().Seconds()
	}
	return (s.Rate + last) / 2 * d.Seconds()
}

// Due is how many messages of the whole cell are due until d after the beginning of the measurement; of Poisson
// arrivals, on average.
func (p Publishers) Due(d time.Duration) float64 {
	if len(p.Profile) == 0 {
		return p.Rate * d.Seconds()
	}
	var length time.Duration
	var all, due float64
	for _, s := range p.Profile {
		length += s.For.D()
		all += s.Messages(s.For.D())
	}
	if length > 0 {
		due = all * float64(d/length)
		d %= length
	}
	for _, s := range p.Profile {
		due += s.Messages(max(0, d))
		d -= s.For.D()
	}
	return due
}

// Lifetime says when the publishers or consumers of a cell are there. The zero value is always. Times count from the
// beginning of the measurement; everybody connects before the start all the same, so that a broker that cannot be
// reached fails the cell at once.
type Lifetime struct {
	ConnectAt    Duration `json:"connectAt"`    // they connect then; 0: they are there from the start of warm-up
	DisconnectAt Duration `json:"disconnectAt"` // they disconnect then; 0: they stay to the end
	// Stay and Away have each thread leave after Stay and join again after Away, over and over; the cycles of threads
	// are spread evenly.
	Stay Duration `json:"stay"`
	Away Duration `json:"away"`
}

// DurationDist is a distribution of durations. The zero value is no time at all.
type DurationDist struct {
	Min  Duration `json:"min"`  // uniform from here …
	Max  Duration `json:"max"`  // … to here
	Mean Duration `json:"mean"` // above 0: exponential with this mean instead, cut at ten times the mean
}

// SizeShare is a part of a distribution of sizes: uniform from Min to Max bytes, envelope included, drawn with a
// probability proportional to Weight.
type SizeShare struct {
	Min    int     `json:"min"`
	Max    int     `json:"max"`
	Weight float64 `json:"weight"`
}

// Payload is what the bodies hold behind the envelope. It is made on the agent, from the task's seed and the
// publisher's number.
type Payload struct {
	Kind   string  `json:"kind"`   // one of the constants
	Repeat float64 `json:"repeat"` // PayloadCompressible: the part of each body that repeats
	// PayloadFile: a path on the agent's host; bodies are cut out of it, one after the other
	File string `json:"file"`
}

// The kinds of payload.
const (
	PayloadRandom       = "random"
	PayloadCompressible = "compressible"
	PayloadFile         = "file"
)

// Keys are the routing or partition keys of messages. The zero value gives each message another one.
type Keys struct {
	Count int     `json:"count"` // different keys, 0 … Count-1; 0: as many as messages
	Skew  float64 `json:"skew"`  // Zipf: key k is drawn with a probability proportional to 1/(k+1)^Skew; 0 is uniform
}

// Steady is a warm-up that ends when the load has become steady, on all agents together.
type Steady struct {
	Auto bool     `json:"auto,omitempty"` // Workload.Warmup is 0 then
	Min  Duration `json:"min"`            // it takes this long at least,
	// and at most; then the measurement begins all the same, and is flagged not-steady
	Max Duration `json:"max"`
}

// Fault is something that is done to the connections or to the broker while messages flow, and undone again.
type Fault struct {
	Kind string   `json:"kind"`         // one of the constants
	At   Duration `json:"at"`           // since the measurement began
	For  Duration `json:"for"`          // for how long; FaultCut of connections, FaultKill: until they may come back
	On   string   `json:"on,omitempty"` // connections: "publishers", "consumers" or "all"
	// Target names what an agent on the broker's host may disturb, as that agent was told at its start; empty: the
	// fault is the client side's.
	Target    string   `json:"target,omitempty"`
	Share     float64  `json:"share,omitempty"`     // connections: which part of them, 0 … 1
	Latency   Duration `json:"latency,omitempty"`   // FaultSlow: what is added to the round trip
	Bandwidth int64    `json:"bandwidth,omitempty"` // FaultSlow: bytes a second each way and connection; 0 is unlimited
}

// The kinds of faults. The first three are done to connections by the agents that own them (Target is empty), the
// others to a broker's process or host.
const (
	FaultCut     = "cut"     // connections break, and new ones are refused, for the time
	FaultStall   = "stall"   // nothing passes for the time, then all of it
	FaultSlow    = "slow"    // latency is added and bandwidth limited for the time
	FaultKill    = "kill"    // SIGKILL; started again after the time
	FaultPause   = "pause"   // SIGSTOP; SIGCONT after the time
	FaultRestart = "restart" // stopped in an orderly way (SIGTERM); started again after the time
	FaultIsolate = "isolate" // cut off from its network for the time
)

// Group is a workload of its own beside others in one cell: its own agents, publishers, consumers, queues and delivery
// accounting. All groups of a cell start, measure and stop together.
type Group struct {
	Name       string     `json:"name"`
	Broker     *Broker    `json:"broker,omitempty"` // a side-by-side broker's own; nil: the cell's
	Publishers Publishers `json:"publishers"`
	Consumers  Consumers  `json:"consumers"`
	Topology   Topology   `json:"topology"`
	Message    Message    `json:"message"`
	Label      string     `json:"label,omitempty"` // from the driver, as in Cell
	Guarantees Guarantees `json:"guarantees"`
	CopiesBody bool       `json:"copiesBody,omitempty"`
	InProcess  bool       `json:"inProcess,omitempty"`

	RedeliverAfter Duration `json:"redeliverAfter,omitempty"`
}

// UnmarshalJSON fills in the defaults of a workload for what is left out.
func (g *Group) UnmarshalJSON(text []byte) error {
	type plain Group
	d := Default()
	p := plain{Publishers: d.Publishers, Consumers: d.Consumers, Topology: d.Topology, Message: d.Message}
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	*g = Group(p)
	return nil
}

// UnmarshalJSON fills in the defaults of a fault for what is left out.
func (f *Fault) UnmarshalJSON(text []byte) error {
	type plain Fault
	p := plain{On: "all", Share: 1}
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	*f = Fault(p)
	return nil
}
