// Package plan holds the plain data that the other packages hand to each other: what is to be measured
// (Run, Cell, Task, Assignment), how far it is (Phase), and what came of it (Outcome). It computes stable
// cell ids and keeps secrets out of records; it knows no broker, no file and no network.
package plan

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that reads and writes as text ("5ms") in JSON.
type Duration time.Duration

// D returns the standard type.
func (d Duration) D() time.Duration { return time.Duration(d) }

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes Go's duration syntax.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads Go's duration syntax.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("read duration %q: write it like \"250ms\", \"10s\" or \"1m30s\"", text)
	}
	*d = Duration(v)
	return nil
}

// Node places something in a broker's cluster: "any", an index into its endpoints, "leader" or "follower".
type Node string

// UnmarshalJSON takes an index as a number too.
func (n *Node) UnmarshalJSON(b []byte) error {
	*n = Node(strings.Trim(string(b), `"`))
	return nil
}

// Coordinate is one axis value of a cell, as the matrix wrote it (JSON), in the order of the axes.
type Coordinate struct {
	Axis  string          `json:"axis"`
	Value json.RawMessage `json:"value"`
}

// Text is the value as a table shows it: strings without quotes, anything else as JSON.
func (c Coordinate) Text() string {
	var s string
	if json.Unmarshal(c.Value, &s) == nil {
		return s
	}
	return string(c.Value)
}

// Broker is a named system under test.
type Broker struct {
	Name    string          `json:"name"`
	Driver  string          `json:"driver"`
	Options json.RawMessage `json:"options"`           // validated, with the schema's defaults; may hold secret references
	Version string          `json:"version,omitempty"` // a label of the user's
	Via     string          `json:"via,omitempty"`     // host:port that every dial goes to instead (a proxy)
	Process Processes       `json:"process,omitempty"`
}

// Processes are a broker's processes: one, or those of a cluster. JSON has one by itself or a list.
type Processes []Process

// UnmarshalJSON takes one by itself too.
func (p *Processes) UnmarshalJSON(text []byte) error {
	var several []Process
	err := json.Unmarshal(text, &several)
	if err != nil {
		var one Process
		if err = json.Unmarshal(text, &one); err == nil {
			several = []Process{one}
		}
	}
	if err != nil {
		return fmt.Errorf("read process: %w", err)
	}
	*p = several
	return nil
}

// Process names a process of the broker on an agent's host, for figures of what it uses, in one of the three ways.
type Process struct {
	PID     int    `json:"pid,omitempty"`
	Port    int    `json:"port,omitempty"`    // the process that listens there
	Command string `json:"command,omitempty"` // a part of its command line
}

// String writes it as an agent's --observe does: "port:5672".
func (p Process) String() string {
	switch {
	case p.PID != 0:
		return "pid:" + strconv.Itoa(p.PID)
	case p.Port != 0:
		return "port:" + strconv.Itoa(p.Port)
	}
	return "command:" + p.Command
}

// Publishers is the sending side of a cell.
type Publishers struct {
	Nodes      int      `json:"nodes"`
	Threads    int      `json:"threads"` // per node
	Mode       string   `json:"mode"`
	Window     int      `json:"window"`            // confirm-window
	OnFull     string   `json:"onFull"`            // confirm-window: "wait" for room, or "pause"
	Pause      Duration `json:"pause"`             // onFull "pause": how long
	Batch      Batch    `json:"batch"`             // confirm-batch
	Rate       float64  `json:"rate,omitempty"`    // messages a second of the whole cell; 0 is closed loop, unless there is a profile
	Arrivals   string   `json:"arrivals"`          // open loop: ArrivalsEven or ArrivalsPoisson
	Profile    []Stage  `json:"profile,omitempty"` // instead of Rate
	Count      uint64   `json:"count,omitempty"`   // per publisher; ends the measurement instead of the duration
	Persistent bool     `json:"persistent"`
	Mandatory  bool     `json:"mandatory"`
	Node       Node     `json:"node"`
	Presence   Presence `json:"presence"`
	On         Labels   `json:"on,omitempty"` // what their agents must have; colocated, with what Consumers.On asks for
}

// Open tells whether messages are due at times of their own (open loop).
func (p Publishers) Open() bool { return p.Rate > 0 || len(p.Profile) > 0 }

// Batch is a fixed size (Least == Most) or a uniformly random one.
type Batch struct {
	Least int `json:"least"`
	Most  int `json:"most"`
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
	Colocate    bool     `json:"colocate"`     // on the publishers' agents, each of which receives its own messages alone
	Process     Spread   `json:"process"`      // what a consumer takes over each message before it acknowledges
	Nack        float64  `json:"nack"`         // share of deliveries that are refused, to come again
	Presence    Presence `json:"presence"`     // of each consumer's link
	On          Labels   `json:"on,omitempty"` // what their agents must have
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
	Size    int         `json:"size"`            // bytes of the body, envelope included; the greatest where there are Sizes
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
	Silence Duration `json:"silence"` // without a receipt: what is missing then is lost
	Most    Duration `json:"most"`    // in all: what is missing then is undrained
}

// Workload is all of a cell that its id is made from, besides the broker's name.
type Workload struct {
	Publishers Publishers        `json:"publishers"`
	Consumers  Consumers         `json:"consumers"`
	Topology   Topology          `json:"topology"`
	Message    Message           `json:"message"`
	Network    Network           `json:"network"`
	Warmup     Duration          `json:"warmup"`
	Measure    Duration          `json:"measure"`  // with Count: the limit
	Interval   Duration          `json:"interval"` // of the measurement, over which each of the "highest" quantiles is taken
	Drain      Drain             `json:"drain"`
	Connect    Duration          `json:"connect"` // deadline of opening, declaring and connecting, each
	Skew       Duration          `json:"skew"`    // how far apart agents may start before values are flagged
	Steady     Steady            `json:"steady"`
	Search     *Search           `json:"search,omitempty"`
	Faults     []Fault           `json:"faults,omitempty"` // in order of time
	Groups     []Group           `json:"groups,omitempty"` // by name; none: the cell is one group of its own fields
	Labels     map[string]string `json:"labels,omitempty"`
}

// Default is a workload of nothing but defaults. The matrix schema has the same ones; a test compares them.
func Default() Workload {
	return Workload{
		Publishers: Publishers{Nodes: 1, Threads: 1, Mode: "confirm-window", Window: 1000, OnFull: "wait",
			Pause: Duration(100 * time.Millisecond), Batch: Batch{Least: 100, Most: 100}, Arrivals: ArrivalsEven, Persistent: true, Node: "any"},
		Consumers: Consumers{Nodes: 1, Threads: 1, Prefetch: 100, Batch: 100, Ack: "each", AckEvery: 100,
			AckInterval: Duration(time.Second), Node: "any"},
		Topology: Topology{Queues: 1, Subscriptions: 1, Bindings: 1, Mapping: "round-robin", Connections: "per-thread",
			Channels: 1, QueueNode: "any", Churn: Churn{Hold: Duration(time.Second), Probes: 10}},
		Message:  Message{Size: 100, Payload: Payload{Kind: PayloadRandom, Repeat: 0.5}},
		Warmup:   Duration(2 * time.Second),
		Measure:  Duration(10 * time.Second),
		Interval: Duration(time.Minute),
		Drain:    Drain{Silence: Duration(5 * time.Second), Most: Duration(60 * time.Second)},
		Connect:  Duration(10 * time.Second),
		Skew:     Duration(20 * time.Millisecond),
		Steady:   Steady{Least: Duration(3 * time.Second), Most: Duration(time.Minute)},
	}
}

// Cell is one combination of a matrix, filled in.
type Cell struct {
	ID          string       `json:"id"`
	Index       int          `json:"index"` // in the order of the matrix, from 0
	Coordinates []Coordinate `json:"coordinates"`
	Broker      Broker       `json:"broker"`
	Workload    Workload     `json:"workload"`
	Label       string       `json:"label,omitempty"`      // what a confirm means here, from the driver
	Promises    Promises     `json:"promises"`             // from the driver
	CopiesBody  bool         `json:"copiesBody,omitempty"` // from the driver: it keeps no body once Publish has returned
	InProcess   bool         `json:"inProcess,omitempty"`  // from the driver: the broker is in the memory of an agent's process
	Notes       []string     `json:"notes,omitempty"`      // from the driver: what is possible but perhaps not meant
	Retry       *Retry       `json:"retry,omitempty"`      // nil: what fails is not tried again
	Require     []string     `json:"require,omitempty"`    // conditions (ParseCondition) over what came of the repetitions; no part of the workload
}

// Promises mirrors drivers.Promises: what breaking makes a cell invalid.
type Promises struct {
	ConfirmedKept bool `json:"confirmedKept"`
	SentKept      bool `json:"sentKept"`
	NoDuplicates  bool `json:"noDuplicates"`
	Ordered       bool `json:"ordered"`
}

// Coordinate returns the value of an axis as text.
func (c Cell) Coordinate(axis string) (string, bool) {
	for _, x := range c.Coordinates {
		if x.Axis == axis {
			return x.Text(), true
		}
	}
	return "", false
}

// Name is the cell's coordinates on one line, for people: "broker=nats mode=confirm-each threads=5".
func (c Cell) Name() string {
	parts := make([]string, len(c.Coordinates))
	for i, x := range c.Coordinates {
		parts[i] = x.Axis + "=" + x.Text()
	}
	return strings.Join(parts, " ")
}

// Agents is how many agents the cell needs.
func (c Cell) Agents() (n int) {
	for _, w := range c.Workload.Parts() {
		n += w.agents()
	}
	return n
}

// Excluded is a combination that is not run, and why.
type Excluded struct {
	Coordinates []Coordinate `json:"coordinates"`
	Kind        string       `json:"kind"` // "skipped" by a pattern of the matrix, or "n/a": the broker cannot
	Reason      string       `json:"reason"`
}

// Table is a summary table that a matrix asks for.
type Table struct {
	Title   string   `json:"title,omitempty"`
	Split   []string `json:"split,omitempty"`   // axes: one table for each combination of their values
	Rows    []string `json:"rows"`              // axes
	Columns []string `json:"columns,omitempty"` // axes
	Values  []string `json:"values"`            // names of values, as in Values()
	// Highest or Lowest names a value: a row then shows only the best of its cells by it, and where that is. At most one is set.
	Highest string `json:"highest,omitempty"`
	Lowest  string `json:"lowest,omitempty"`
	// Headings replace the headings of axes and values, by their names.
	Headings map[string]string `json:"headings,omitempty"`
}

// Run is one execution of a matrix: everything that was decided before it began.
type Run struct {
	Version  int        `json:"version"`
	ID       string     `json:"id"`
	Name     string     `json:"name"` // the matrix's
	Cells    []Cell     `json:"cells"`
	Excluded []Excluded `json:"excluded,omitempty"`
	Tables   []Table    `json:"tables"`
	Repeat   int        `json:"repeat"`
	Order    Order      `json:"order"`
	Settle   Duration   `json:"settle"`
	Grace    Duration   `json:"grace"`  // how long a cell waits for agents that are missing
	Strict   bool       `json:"strict"` // flags count as failures
	Source   Source     `json:"source"`
	Started  time.Time  `json:"started"`
	Agents   int        `json:"agents"` // most that any cell needs
	Axes     []string   `json:"axes"`   // in the order of the matrix
	Influx   *Influx    `json:"influx,omitempty"`
}

// Order is the order of tasks: interleaved repetitions, or shuffled with a seed.
type Order struct {
	Random bool   `json:"random,omitempty"`
	Seed   uint64 `json:"seed,omitempty"`
}

// Source is where a run's matrix came from and how it was changed.
type Source struct {
	File   string   `json:"file"`   // base name
	Path   string   `json:"path"`   // as given, absolute
	SHA256 string   `json:"sha256"` // of the file as it was, secrets included
	Text   string   `json:"text"`   // redacted
	Short  bool     `json:"short,omitempty"`
	Set    []string `json:"set,omitempty"`
	Only   []string `json:"only,omitempty"`
	Server string   `json:"server,omitempty"` // of the fleet, redacted; empty: a local run
}

// Task is one repetition of one cell.
type Task struct {
	Run        string `json:"run"`
	ID         string `json:"id"` // cell id and repetition: "3f9c2d81aa07-r1"
	Cell       Cell   `json:"cell"`
	Repetition int    `json:"repetition"`      // from 1
	Group      string `json:"group,omitempty"` // of Parts: the one that Cell is the workload of
}

// Topic is the name that everything the task declares at a broker begins with; that of a group begins with the whole task's.
func (t Task) Topic() string {
	topic := "lockstep-" + t.Run + "-" + t.ID
	if t.Group != "" {
		topic += "-" + t.Group
	}
	return topic
}

// Assignment is one agent's part of a task; where the cell has groups, Task is that of the agent's group.
type Assignment struct {
	Protocol   int      `json:"protocol"`
	Task       Task     `json:"task"`
	Agent      string   `json:"agent"`
	Index      int      `json:"index"` // among the agents of the task, or of its group, from 0; agent 0 does Setup and Teardown
	Publishers Share    `json:"publishers"`
	Consumers  Share    `json:"consumers"`
	Targets    []string `json:"targets,omitempty"` // what this agent is to disturb on its host
	// Observe has this agent measure brokers' processes, and nothing else: it opens no session, and its Task has no options of a broker.
	Observe []Observation `json:"observe,omitempty"`
	// Deadline is how long after receipt the agent gives up by itself, whatever the controller says.
	Deadline Duration `json:"deadline"`
}

// Share is the part of a role's threads that one agent has: numbers First … First+Count-1 of Total.
type Share struct {
	First int `json:"first"`
	Count int `json:"count"`
	Total int `json:"total"`
}

// Phase is where a task is. Agents cross each together.
type Phase string

// The phases, in order.
const (
	PhasePrepare  Phase = "prepare"
	PhaseReady    Phase = "ready"
	PhaseWarmup   Phase = "warm-up"
	PhaseMeasure  Phase = "measure"
	PhaseDrain    Phase = "drain"
	PhaseTeardown Phase = "teardown"
)

// Tasks lists a run's tasks in the order to execute them: all cells once, then all again (interleaved), or shuffled
// within each repetition by the seed.
func (r Run) Tasks() []Task {
	tasks := make([]Task, 0, len(r.Cells)*r.Repeat)
	for rep := 1; rep <= r.Repeat; rep++ {
		for _, i := range r.Order.permutation(len(r.Cells), rep) {
			c := r.Cells[i]
			tasks = append(tasks, Task{Run: r.ID, ID: fmt.Sprintf("%s-r%d", c.ID, rep), Cell: c, Repetition: rep})
		}
	}
	return tasks
}

// Notes lists what drivers remark about the run's cells, each remark once for each broker.
func (r Run) Notes() []string {
	type remark struct{ broker, text string }
	var order []remark
	cells, first := map[remark]int{}, map[remark]string{}
	all := map[string]int{}
	for _, c := range r.Cells {
		all[c.Broker.Name]++
		for _, text := range c.Notes {
			x := remark{c.Broker.Name, text}
			if cells[x]++; cells[x] == 1 {
				order = append(order, x)
				first[x] = c.Name()
			}
		}
	}
	lines := make([]string, len(order))
	for i, x := range order {
		switch n := cells[x]; {
		case n == 1:
			lines[i] = first[x]
		case n == all[x.broker]:
			lines[i] = "broker=" + x.broker
		default:
			lines[i] = fmt.Sprintf("%s and %d more of broker=%s", first[x], n-1, x.broker)
		}
		lines[i] += ": " + x.text
	}
	return lines
}
