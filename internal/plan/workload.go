package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Limits of runs and workloads. The memory use of agents and controllers is proportional to each of these sizes.
const (
	maxWait           = 366 * 24 * time.Hour // settle time between tasks, and grace for agents
	maxRounds         = 200                  // repetitions of a run that repeats until its values are precise enough
	maxGroups         = 1000                 // per cell
	maxAgents         = 20_000               // per cell
	maxTaskTime       = 24 * time.Hour       // per duration; records have one window per second
	maxTaskRest       = 2 * time.Hour        // Limit may exceed maxTaskTime by this
	maxInFlight       = 10_000_000           // messages per agent
	maxAllPublishers  = 1_000_000            // over all agents
	maxPublisherPairs = 10_000_000           // per agent; each consumer has one set of messages per publisher
	maxChurn          = 10_000               // bindings per second, and messages per second per binding
	maxNodes          = 500                  // of a cluster of brokers
	maxNodeName       = 256                  // bytes
	maxMetrics        = 1000                 // of a run, that only drivers declare
	maxExcluded       = 100_000              // combinations of a run
	maxReason         = 2000                 // bytes of the reason why a combination is excluded
	maxOptions        = 1 << 20              // bytes of the options of all brokers of a run
)

// Limits of runs that other packages check, too. The sizes of tables and reports are products of them.
const (
	MaxAxes        = 20   // of a run
	MaxCoordinates = 2000 // bytes of the names and values of the axes of one combination
	MaxName        = 200  // bytes of the name of a broker, and of a text in the definition of a table
	MaxTables      = 100  // of a run
	MaxTableValues = 100  // of a table
	MaxBases       = 100  // baselines that the rules of a run name
)

// Limits of workloads that other packages check, too.
const (
	MinMessageSize   = 64          // bytes: the size of the envelope
	MaxMessageSize   = 104_857_600 // bytes
	MaxInFlightBytes = 4 << 30     // bodies of messages in flight, bytes per agent
	MaxThreads       = 100_000     // per role and agent
	MaxQueues        = 100_000
	MaxSubscriptions = 10_000
)

// Publishers is the publishing side of a cell. Nodes 0 means that there are no publishers: consumers receive messages
// of existing queues.
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

// lowest returns the lowest configured rate above zero of the whole cell; 0 if none is configured.
func (p Publishers) lowest() float64 {
	rate := p.Rate
	for _, s := range p.Profile {
		for _, r := range []*float64{&s.Rate, s.To} {
			if r != nil && *r > 0 && (rate == 0 || *r < rate) {
				rate = *r
			}
		}
	}
	return rate
}

// Due returns the number of messages of the whole cell that are due until d after the beginning of the measurement.
// With Poisson arrivals it is the mean.
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
	Nack     float64      `json:"nack"`         // fraction of deliveries that are rejected and delivered again
	Lifetime Lifetime     `json:"lifetime"`     // of each consumer's link
	On       Labels       `json:"on,omitempty"` // labels that their agents need
}

// Topology describes the queues of a cell at the broker.
type Topology struct {
	Queues        int    `json:"queues"`
	Subscriptions int    `json:"subscriptions"`
	Bindings      int    `json:"bindings"`    // per queue
	Connections   string `json:"connections"` // "per-thread" or "shared" (by the threads of one role of an agent)
	Channels      int    `json:"channels"`    // "per-thread": threads that share one connection
	QueueNode     Node   `json:"queueNode"`
	Churn         Churn  `json:"churn"`
	// name of queues that exist at the broker: see drivers.QueueName; empty: queues are declared and removed
	Existing string `json:"existing,omitempty"`
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
		Topology: Topology{Queues: 1, Subscriptions: 1, Bindings: 1, Connections: "per-thread",
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

// Bounded returns an error that names the fields of a workload without groups that are beyond their limits. Such a
// workload is a mistake or hostile, and could use unlimited memory.
func (w Workload) Bounded() error {
	p, c, t := w.Publishers, w.Consumers, w.Topology
	var s Search
	if w.Search != nil {
		s = *w.Search
	}
	var errs []error
	for _, x := range []struct {
		name       string
		value, top int
	}{
		{"nodes of publishers", p.Nodes, 10_000}, {"threads of publishers", p.Threads, MaxThreads},
		{"maxInFlight", p.MaxInFlight, 100_000_000},
		{"minimum batch of publishers", p.Batch.Min, 100_000_000},
		{"maximum batch of publishers", p.Batch.Max, 100_000_000},
		{"stages of the profile", len(p.Profile), 100_000},
		{"nodes of consumers", c.Nodes, 10_000}, {"threads of consumers", c.Threads, MaxThreads},
		{"prefetch", c.Prefetch, 1_000_000},
		{"batch of consumers", c.Batch, 1_000_000}, {"ackEvery", c.AckEvery, 1_000_000},
		{"queues", t.Queues, MaxQueues}, {"subscriptions", t.Subscriptions, MaxSubscriptions},
		{"bindings", t.Bindings, 1_000_000},
		{"channels", t.Channels, 65_535}, {"message size", w.Message.Size, MaxMessageSize},
		{"message sizes", len(w.Message.Sizes), 10_000},
		{"faults", len(w.Faults), 10_000}, {"steps of the search", s.Steps, 1000},
		{"repeats of the search", s.Repeats, 100},
	} {
		if x.value < 0 || x.value > x.top {
			errs = append(errs, fmt.Errorf("%d %s: want 0 to %d", x.value, x.name, x.top))
		}
	}
	for _, s := range w.Message.Sizes {
		if s.Min < 0 || s.Max < s.Min || s.Max > MaxMessageSize {
			errs = append(errs, fmt.Errorf("%d to %d bytes of a message: want at most %d", s.Min, s.Max, MaxMessageSize))
			break
		}
	}
	for _, x := range []struct {
		name  string
		value Duration
	}{
		{"warmup", w.Warmup}, {"measure", w.Measure}, {"interval", w.Interval}, {"connect", w.Connect},
		{"idle time of the drain", w.Drain.Idle},
		{"timeout of the drain", w.Drain.Timeout}, {"maximum of steady", w.Steady.Max}, {"step of the search", s.Step},
		{"latency", w.Network.Latency}, {"jitter", w.Network.Jitter}, {"pause", p.Pause},
		{"ackInterval", c.AckInterval},
	} {
		if x.value < 0 || x.value.D() > maxTaskTime {
			errs = append(errs, fmt.Errorf("%v of %s: want 0 to %v", x.value, x.name, maxTaskTime))
		}
	}
	churns := t.Churn.Rate > 0 && t.Churn.Rate <= maxChurn && t.Churn.Probes > 0 && t.Churn.Probes <= maxChurn &&
		t.Churn.Hold > 0
	if t.Churn.Rate != 0 && !churns {
		errs = append(errs,
			fmt.Errorf("%v bindings per second for %v with %v messages per second each: want all above 0, and at most %d per second",
				t.Churn.Rate, t.Churn.Hold, t.Churn.Probes, maxChurn))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	// Products and sums of fields. Each field is within its own limit, so no product overflows.
	all, inFlight := p.Nodes*p.Threads, p.Threads*p.InFlight()
	w.Measure = max(w.Measure, s.Step)
	for _, x := range []struct {
		name       string
		value, top int
	}{
		{"publishers (nodes × threads)", all, maxAllPublishers},
		{"messages in flight per agent (threads × max in flight or batch)", inFlight, maxInFlight},
		{"bytes in flight per agent (threads × max in flight or batch × message size)",
			min(inFlight, maxInFlight) * w.Message.Size, MaxInFlightBytes},
		{"pairs of a publisher and a consumer per agent (publishers × subscriptions × threads of consumers)",
			all * w.Topology.Subscriptions * w.Consumers.Threads, maxPublisherPairs},
	} {
		if x.value > x.top {
			errs = append(errs, fmt.Errorf("%d %s: want at most %d", x.value, x.name, x.top))
		}
	}
	if limit := Limit(w); limit > maxTaskTime+maxTaskRest {
		errs = append(errs,
			fmt.Errorf("tasks of up to %v (4 × connect, warmup, measure, 2 × timeout of the drain, and undoing faults): want at most %v",
				limit, maxTaskTime+maxTaskRest))
	}
	return errors.Join(errs...)
}

// Shape returns the shape of a workload's load. ok is false if it publishes nothing.
func (w Workload) Shape() (shape LoadShape, ok bool) {
	p := w.Publishers
	shape = LoadShape{Mode: p.Mode, Size: w.Message.Size, Nodes: p.Nodes, Threads: p.Threads}
	switch p.Mode {
	case "confirm-window":
		shape.MaxInFlight = p.MaxInFlight
	case "confirm-batch":
		shape.Batch = p.Batch
	}
	return shape, p.Nodes > 0 && p.Threads > 0
}

// Absent returns the reason why a workload can never have a number for a value; empty if it can.
func (w Workload) Absent(value string) string {
	v, _ := Metrics(nil).ValueNamed(value) // only values of every run have traits
	switch {
	case v.Traits&AnyPublishers != 0 && w.Publishers.Nodes == 0:
		return "there are no publishers"
	case v.Traits.Has(NeedsConsumers) && w.Consumers.Nodes == 0:
		return "there are no consumers"
	case v.Traits.Has(NeedsPrompt) && w.Consumers.Lifetime.ConnectAt > 0:
		return "consumers connect late (consumers.lifetime.connectAt), so messages wait for them by design"
	case v.Traits.Has(NeedsConfirms) && !w.Publishers.Confirmed():
		return "the broker does not confirm messages in mode " + w.Publishers.Mode
	case v.Traits.Has(NeedsRate) && !w.Publishers.Open() && w.Search == nil:
		return "messages have no intended send time without a rate"
	}
	return ""
}

// DefaultValues returns the values of the default table for these cells. Cells with a rate have the latency from the
// intended send time, because the latency from the publish call does not show a stall late in the measurement. A narrow
// terminal omits columns from the right: with both kinds of cells, p99 of both comes first.
func DefaultValues(cells []Cell) []string {
	open, closed := false, false
	for _, c := range cells {
		for _, w := range c.Workload.Parts() {
			if w.Absent("publish.p99") == "" {
				intended := w.Absent("publish.intended.p99") == ""
				open, closed = open || intended, closed || !intended
			}
		}
	}
	latencies := []string{"publish.p50", "publish.p99"}
	switch {
	case open && closed:
		latencies = []string{"publish.p99", "publish.intended.p99", "publish.p50"}
	case open:
		latencies = []string{"publish.intended.p50", "publish.intended.p99"}
	}
	return slices.Concat([]string{"publish.rate", "consume.rate"}, latencies, []string{"e2e.p50", "e2e.p99"})
}

// Targets returns the targets of the workload's faults, each with its kinds of faults. It returns nil if there are
// none.
func (w Workload) Targets() map[string][]string {
	var targets map[string][]string
	for _, f := range w.Faults {
		if f.Connections() || slices.Contains(targets[f.Target], f.Kind) {
			continue
		}
		if targets == nil {
			targets = map[string][]string{}
		}
		targets[f.Target] = append(targets[f.Target], f.Kind)
	}
	return targets
}

// FaultsConnections reports whether any fault applies to connections.
func (w Workload) FaultsConnections() bool { return slices.ContainsFunc(w.Faults, Fault.Connections) }

// MinGap returns the minimum length of recorded gaps: between two confirms of a publisher, and between two deliveries
// of a consumer. It is 20 ms, or three times the expected time between two of them if that is longer. The expected time
// follows from the lowest rate, shared equally by all threads, and is at least the simulated latency plus jitter.
func (w Workload) MinGap() (confirm, delivery time.Duration) {
	const minimum = 20 * time.Millisecond
	between := func(threads int) time.Duration {
		expected := w.Network.Latency.D() + w.Network.Jitter.D()
		if rate := w.Publishers.lowest(); rate > 0 {
			expected = max(expected, time.Duration(float64(threads)/rate*float64(time.Second)))
		}
		return max(minimum, 3*expected)
	}
	return between(w.Publishers.Nodes * w.Publishers.Threads), between(w.Consumers.Nodes * w.Consumers.Threads)
}

// SideBySide reports whether the groups of a cell have their own brokers.
func (w Workload) SideBySide() bool {
	return slices.ContainsFunc(w.Groups, func(g Group) bool { return g.Broker != nil })
}

// With returns the workload of one of its groups.
func (w Workload) With(g Group) Workload {
	w.Publishers, w.Consumers, w.Topology, w.Message, w.Groups = g.Publishers, g.Consumers, g.Topology, g.Message, nil
	return w
}

// Parts returns the workloads that a cell consists of: itself, or those of its groups.
func (w Workload) Parts() []Workload {
	if len(w.Groups) == 0 {
		return []Workload{w}
	}
	parts := make([]Workload, len(w.Groups))
	for i, g := range w.Groups {
		parts[i] = w.With(g)
	}
	return parts
}

// agents returns the number of agents that a workload without groups needs.
func (w Workload) agents() int {
	p, k := w.Publishers.Nodes, w.Consumers.Nodes
	if w.Consumers.Colocate {
		return max(p, k)
	}
	return p + k
}

// Labels are properties of agents, or required properties, by name.
type Labels map[string]string

// Within reports whether others contain all of these labels.
func (l Labels) Within(others map[string]string) bool {
	for name, value := range l {
		if has, ok := others[name]; !ok || has != value {
			return false
		}
	}
	return true
}

// String formats the labels, sorted: "role=load zone=a".
func (l Labels) String() string {
	words := make([]string, 0, len(l))
	for _, name := range slices.Sorted(maps.Keys(l)) {
		words = append(words, name+"="+l[name])
	}
	return strings.Join(words, " ")
}

// Role is a number of agents of a cell that need the same labels.
type Role struct {
	Group  string // empty: the cell has no groups
	Name   string // "publishers", "consumers", or "publishers and consumers"
	Agents int
	On     Labels
}

// Roles returns the agents that a workload needs, in the order of Assign.
func (w Workload) Roles() (roles []Role) {
	for i, part := range w.Parts() {
		group := ""
		if len(w.Groups) > 0 {
			group = w.Groups[i].Name
		}
		p, c := part.Publishers, part.Consumers
		if c.Colocate && c.Nodes > 0 {
			both := maps.Clone(p.On)
			if both == nil {
				both = Labels{}
			}
			maps.Copy(both, c.On)
			roles = append(roles, Role{group, "publishers and consumers", part.agents(), both})
			continue
		}
		for _, r := range []Role{{group, "publishers", p.Nodes, p.On}, {group, "consumers", c.Nodes, c.On}} {
			if r.Agents > 0 {
				roles = append(roles, r)
			}
		}
	}
	return roles
}

// undoLimit is the maximum time to undo faults of a broker: stop it, start it, and wait until it is ready.
const undoLimit = time.Minute

// LongestUndo returns the maximum time to undo the faults of brokers at the end of a task; 0 without such faults.
func (w Workload) LongestUndo() time.Duration {
	if len(w.Targets()) == 0 {
		return 0
	}
	return undoLimit
}

// LongestWarmup returns the maximum time for which the load runs before the measurement.
func (w Workload) LongestWarmup() time.Duration {
	if w.Steady.Auto {
		return w.Warmup.D() + w.Steady.Max.D() + MeasureAhead + time.Second
	}
	return w.Warmup.D()
}

// Estimate returns the expected duration of a task without failures: its phases and about 300 ms of overhead. For a
// search it is the sum over all trials. Failing trials of a search also send during their drain: the first for up to
// the whole drain timeout. Each later one takes about half as long as the one before, hence twice the timeout.
func Estimate(w Workload) time.Duration {
	if s := w.Search; s != nil {
		short := Task{Cell: Cell{Workload: w}}.Step(s.From, s.Step).Cell.Workload
		w.Search = nil
		return time.Duration(s.expected())*Estimate(short) + time.Duration(s.Repeats)*Estimate(w) +
			2*short.Drain.Timeout.D()
	}
	warmup := w.Warmup.D()
	if w.Steady.Auto { // the time until a load that is steady from the start is recognised as steady
		warmup = min(max(w.Steady.Min.D(), minWatch), w.Steady.Max.D()) + MeasureAhead
	}
	return warmup + w.Measure.D() + 300*time.Millisecond
}

// Limit returns the time after which a task is aborted: the sum of all deadlines of its phases, plus a margin. For a
// search it applies to each step.
func Limit(w Workload) time.Duration {
	return 4*w.Connect.D() + w.LongestWarmup() + w.Measure.D() + 2*w.Drain.Timeout.D() + 30*time.Second +
		w.LongestUndo()
}

// MeasureAhead is the minimum notice with which the beginning of the measurement is announced while the load runs. It
// is rounded up to a whole second of the load. All agents must receive it in time.
const MeasureAhead = 2 * time.Second

// minWatch is the minimum time for which a steady load is observed.
const minWatch = 6 * time.Second
