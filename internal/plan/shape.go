package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Values of Publishers.Arrivals: the distribution of intended send times.
const (
	ArrivalsEven    = "even"    // evenly spaced over the whole cell
	ArrivalsPoisson = "poisson" // each publisher: a Poisson process with its share of the rate
)

// Stage is a part of a rate profile. Stages follow each other from the beginning of the measurement, in a loop. Warm-up
// runs at the rate of the first stage.
type Stage struct {
	For  Duration `json:"for"`
	Rate float64  `json:"rate"`         // messages per second of the whole cell; 0 sends nothing
	To   *float64 `json:"to,omitempty"` // the rate changes linearly to this value; nil: it is constant
}

// Messages returns the number of messages that are due in the first d of the stage.
func (s Stage) Messages(d time.Duration) float64 {
	d = min(d, s.For.D())
	last := s.Rate
	if s.To != nil && s.For > 0 {
		last += (*s.To - s.Rate) * d.Seconds() / s.For.D().Seconds()
	}
	return (s.Rate + last) / 2 * d.Seconds()
}

// Lifetime determines when the publishers or consumers of a cell are connected. The zero value means always. Times
// count from the beginning of the measurement. All connect once before the start, so that an unreachable broker fails
// the cell at once.
type Lifetime struct {
	ConnectAt    Duration `json:"connectAt"`    // 0: connected from the start of warm-up
	DisconnectAt Duration `json:"disconnectAt"` // 0: connected until the end
	// With Stay and Away each thread disconnects after Stay and connects again after Away, in a cycle. The cycles of
	// the threads are spread evenly.
	Stay Duration `json:"stay"`
	Away Duration `json:"away"`
}

// DurationDist is a distribution of durations. The zero value is always zero.
type DurationDist struct {
	Min  Duration `json:"min"`  // minimum of a uniform distribution
	Max  Duration `json:"max"`  // its maximum
	Mean Duration `json:"mean"` // above 0: exponential with this mean instead, truncated at ten times the mean
}

// SizeShare is a part of a distribution of sizes. It is drawn with a probability proportional to Weight. Within it,
// sizes are uniform from Min to Max bytes, envelope included.
type SizeShare struct {
	Min    int     `json:"min"`
	Max    int     `json:"max"`
	Weight float64 `json:"weight"`
}

// Payload determines the content of bodies after the envelope. The agent generates it from the task's seed and the
// publisher's number.
type Payload struct {
	Kind   string  `json:"kind"`   // one of the constants below
	Repeat float64 `json:"repeat"` // PayloadCompressible: the fraction of each body that repeats
	// PayloadFile: a path on the agent's host; payloads are consecutive parts of the file
	File string `json:"file"`
}

const (
	PayloadRandom       = "random"
	PayloadCompressible = "compressible"
	PayloadFile         = "file"
)

// Keys are the routing or partition keys of messages. The zero value gives each message a different key.
type Keys struct {
	Count int     `json:"count"` // number of keys, 0 … Count-1; 0: a different key per message
	Skew  float64 `json:"skew"`  // Zipf: key k has a probability proportional to 1/(k+1)^Skew; 0 is uniform
}

// Steady configures a warm-up that ends when the load is steady on all agents together.
type Steady struct {
	Auto bool     `json:"auto,omitempty"` // Workload.Warmup is then 0
	Min  Duration `json:"min"`            // minimum duration of warm-up
	// maximum duration; the measurement then begins anyway and is flagged not-steady
	Max Duration `json:"max"`
}

// Fault is a fault of the connections or of the broker that is injected during the load and undone afterwards.
type Fault struct {
	Kind string   `json:"kind"`         // one of the constants below
	At   Duration `json:"at"`           // since the beginning of the measurement
	For  Duration `json:"for"`          // duration
	On   string   `json:"on,omitempty"` // connections: "publishers", "consumers" or "all"
	// Target is the name of a target in the configuration of an agent on the broker's host. Empty: the fault applies to
	// the client's connections.
	Target    string   `json:"target,omitempty"`
	Share     float64  `json:"share,omitempty"`     // connections: affected fraction, 0 … 1
	Latency   Duration `json:"latency,omitempty"`   // FaultSlow: added to the round trip
	Bandwidth int64    `json:"bandwidth,omitempty"` // FaultSlow: bytes/s per direction and connection; 0: unlimited
}

// The kinds of faults. The first three apply to connections, and the agents that own them inject them (Target is
// empty). The others apply to a broker's process or host.
const (
	FaultCut     = "cut"     // connections break, and new ones are refused until the end
	FaultStall   = "stall"   // nothing passes until the end, then everything
	FaultSlow    = "slow"    // latency is added and bandwidth limited until the end
	FaultKill    = "kill"    // SIGKILL; started again at the end
	FaultPause   = "pause"   // SIGSTOP; SIGCONT at the end
	FaultRestart = "restart" // stopped in an orderly way (SIGTERM); started again at the end
	FaultIsolate = "isolate" // cut off from its network until the end
)

// Group is one of several workloads in one cell, with its own agents, publishers, consumers, queues and delivery
// accounting. All groups of a cell start, measure and stop together.
type Group struct {
	Name       string     `json:"name"`
	Broker     *Broker    `json:"broker,omitempty"` // of a side-by-side group; nil: the cell's broker
	Publishers Publishers `json:"publishers"`
	Consumers  Consumers  `json:"consumers"`
	Topology   Topology   `json:"topology"`
	Message    Message    `json:"message"`
	Label      string     `json:"label,omitempty"` // from the driver, as in Cell
	Guarantees Guarantees `json:"guarantees"`
	CopiesBody bool       `json:"copiesBody,omitempty"`
	InProcess  bool       `json:"inProcess,omitempty"`
	Resilience string     `json:"resilience,omitempty"`

	RedeliverAfter Duration `json:"redeliverAfter,omitempty"`
}

// Connections reports whether the fault applies to connections. The agents that own them inject it.
func (f Fault) Connections() bool { return f.Target == "" }

// BreaksLinks reports whether the fault itself breaks links to the broker, instead of only causing timeouts.
func (f Fault) BreaksLinks() bool {
	return slices.Contains([]string{FaultCut, FaultKill, FaultRestart, FaultIsolate}, f.Kind)
}

// Ends reports whether the fault ends a process of the broker, so that its memory is lost.
func (f Fault) Ends() bool { return f.Kind == FaultKill || f.Kind == FaultRestart }

// String returns a name that is unique within the cell: "pause rabbit at 3s for 1s", "cut 0.5 of publishers at 3s for
// 1s". The details of the fault's events begin with it.
func (f Fault) String() string {
	if !f.Connections() {
		return fmt.Sprintf("%s %s at %s for %s", f.Kind, f.Target, f.At, f.For)
	}
	whose := f.On
	if f.Share < 1 {
		whose = fmt.Sprintf("%g of %s", f.Share, f.On)
	}
	return fmt.Sprintf("%s %s at %s for %s", f.Kind, whose, f.At, f.For)
}

// Matches reports whether an event of kind "fault" with this detail belongs to this fault.
func (f Fault) Matches(detail string) bool { return strings.HasPrefix(detail, f.String()+": ") }

// Detail returns the detail of an event of this fault.
func (f Fault) Detail(what string) string { return f.String() + ": " + what }
