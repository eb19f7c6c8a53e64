package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Verdict is the result of judging a task: whether its numbers may be used.
type Verdict string

const (
	Valid   Verdict = "valid"
	Invalid Verdict = "invalid" // a declared guarantee was broken
	Unknown Verdict = "unknown" // no usable number: the task failed, or part of its record is missing
)

// Word returns the verdict as texts for people show it. An unknown result is shown as failed, as in tables.
func (v Verdict) Word() string {
	if v == Unknown {
		return "failed"
	}
	return string(v)
}

// Worst returns the worst of several verdicts; "" without any.
func Worst(all ...Verdict) Verdict {
	for _, v := range []Verdict{Invalid, Unknown, Valid} {
		if slices.Contains(all, v) {
			return v
		}
	}
	return ""
}

// Flag is a warning about one value. Tables show it beside the value.
type Flag string

const (
	Backlog     Flag = "backlog"      // consuming did not keep up with publishing
	ClockUnsafe Flag = "clock-unsafe" // clocks of two hosts whose offset is unknown or too inaccurate
	ClientBound Flag = "client-bound" // the load generator's own work was the limit
	SharedHost  Flag = "shared-host"  // broker and load generator share CPUs that were fully used
	HostBusy    Flag = "host-busy"    // other processes used the CPU
	Skewed      Flag = "skewed"       // agents did not start together
	Degraded    Flag = "degraded"     // only some of the agents
	Clipped     Flag = "clipped"      // samples beyond the range of the histogram
	NotSteady   Flag = "not-steady"   // warm-up "auto" found no steady state
	Drifting    Flag = "drifting"     // rates or the median latency changed during the measurement
	LatencyOff  Flag = "latency-off"  // the simulated latency differed from the configured one
)

// Flags returns all flags.
func Flags() []Flag {
	return []Flag{Backlog, ClockUnsafe, ClientBound, SharedHost, HostBusy, Skewed, Degraded, Clipped, NotSteady,
		Drifting, LatencyOff}
}

// Incomparable reports whether a number with the flag cannot be compared with numbers of other runs. Flags that leave
// it comparable:
//   - backlog: the number is the rate that the broker reached
//   - shared-host, latency-off: the condition is the same in every run
//   - host-busy: the number is noisier, which the spread of the repetitions shows
func (f Flag) Incomparable() bool {
	return slices.Contains(Flags(), f) && !slices.Contains([]Flag{Backlog, SharedHost, HostBusy, LatencyOff}, f)
}

// Value is one metric of an outcome. Exactly one of Number and NA is meaningful.
type Value struct {
	Number float64 `json:"-"`
	// Bound is the maximum error of Number in either direction, in the unit of the value. It is caused by the clocks,
	// or by the resolution of one second. 0 if neither matters.
	Bound float64 `json:"bound,omitempty"`
	// Over is above 0 if Number is only a lower bound. The value is then a quantile among samples beyond the range of
	// the histogram, or depends on messages that were not sent, confirmed or delivered, or has fewer than 10/(1-q)
	// samples. Over is the number of such messages, or of samples from Number on.
	Over uint64 `json:"over,omitempty"`
	// Sample is the quantile of the samples when there are too few of them. Number is then a lower bound of the
	// quantile at 95 % confidence.
	Sample float64 `json:"sample,omitempty"`
	NA     string  `json:"na,omitempty"` // reason for no number: "fire-and-forget", "no consumers", "backlog"
	Flags  []Flag  `json:"flags,omitempty"`
}

// LessThan returns the upper bound of a value of which only that is known, in seconds. Its NA has the form "< 20 ms".
func (v Value) LessThan() (seconds float64, is bool) {
	text, is := strings.CutPrefix(v.NA, "< ")
	d, err := time.ParseDuration(strings.ReplaceAll(text, " ", ""))
	return d.Seconds(), is && err == nil
}

// plainValue is a Value without its methods.
type plainValue Value

type valueJSON struct {
	Number *float64 `json:"number,omitempty"`
	plainValue
}

// MarshalJSON writes the number, also if it is zero, or the reason for no number.
func (v Value) MarshalJSON() ([]byte, error) {
	out := valueJSON{plainValue: plainValue(v)}
	if v.NA == "" {
		out.Number = &v.Number
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads the output of MarshalJSON.
func (v *Value) UnmarshalJSON(text []byte) error {
	var in valueJSON
	if err := json.Unmarshal(text, &in); err != nil {
		return fmt.Errorf("read value: %w", err)
	}
	*v = Value(in.plainValue)
	if in.Number != nil {
		v.Number = *in.Number
	}
	return nil
}

// Outcome is the result of a task. It is written last, in one write. A task without an outcome is not done.
// It is the format of outcomes in records: each of its more than 20 fields is one fact, and most are optional.
type Outcome struct {
	Version    int      `json:"version"` // RecordFormat
	Run        string   `json:"run"`
	Task       string   `json:"task"`
	Cell       string   `json:"cell"`
	Index      int      `json:"index"` // of the cell in the matrix
	Repetition int      `json:"repetition"`
	Verdict    Verdict  `json:"verdict"`
	Reasons    []string `json:"reasons,omitempty"`
	Warnings   []string `json:"warnings,omitempty"`
	// Limitations are why values have the flags ClientBound, SharedHost and HostBusy.
	Limitations []Limitation     `json:"limitations,omitempty"`
	Values      map[string]Value `json:"values"`
	Ledger      Ledger           `json:"ledger"`
	Agents      []AgentPart      `json:"agents"`
	Subject     Subject          `json:"subject"`
	Events      []Event          `json:"events,omitempty"`
	Started     time.Time        `json:"started"`
	Ended       time.Time        `json:"ended"`
	Measured    Duration         `json:"measured"` // time to which rates refer
	// Cut is the duration of the load before the measurement, if warm-up "auto" determined it.
	Cut    Duration       `json:"cut,omitempty"`
	Clocks []ClockPair    `json:"clocks,omitempty"` // pairs of agents of the cell with different clocks
	Search *SearchResult  `json:"search,omitempty"`
	Groups []GroupOutcome `json:"groups,omitempty"` // parts of which Values and Ledger are the sum
	// Attempt is the number of this attempt, from 1. FailedAttempts are the earlier ones, none of which contributes to
	// the values. In a search Attempt is 1, and FailedAttempts are the retried attempts of its steps.
	Attempt        int             `json:"attempt,omitempty"`
	FailedAttempts []FailedAttempt `json:"failedAttempts,omitempty"`
	// why this attempt has no usable numbers; empty: it has, or the failure has no kind
	Failure FailureKind `json:"failure,omitempty"`
}

// ClockPair is the accuracy with which the clocks of two agents of a task were compared.
type ClockPair struct {
	Publisher string `json:"publisher"`
	Consumer  string `json:"consumer"`
	// consumer's clock minus publisher's clock, in the middle of the measurement, relative to the agreed start
	Offset Duration `json:"offset"`
	// maximum error of the corrected times, in either direction, at any time of the measurement
	Bound Duration `json:"bound"`
	Drift float64  `json:"drift"` // parts per million
}

// GroupOutcome is the result of one group of a cell.
type GroupOutcome struct {
	Name     string           `json:"name"`
	Subject  *Subject         `json:"subject,omitempty"` // with its own broker (side by side); nil: that of the outcome
	Verdict  Verdict          `json:"verdict"`
	Values   map[string]Value `json:"values"`
	Ledger   Ledger           `json:"ledger"`
	Reasons  []string         `json:"reasons,omitempty"`
	Warnings []string         `json:"warnings,omitempty"`
}

// Ledger is the delivery accounting of a task. It is exact. Received, Dropped, Lost, Undrained, Unknown, Duplicated and
// Reordered are summed over the subscriptions.
type Ledger struct {
	Sent          uint64 `json:"sent"`      // accepted by Publish
	Uncertain     uint64 `json:"uncertain"` // Publish returned an error; the message may have been sent
	Confirmed     uint64 `json:"confirmed"`
	Rejected      uint64 `json:"rejected"`    // confirmed with an error by the broker
	Unconfirmed   uint64 `json:"unconfirmed"` // accepted and never confirmed
	Unroutable    uint64 `json:"unroutable"`  // returned
	Received      uint64 `json:"received"`    // distinct messages
	Dropped       uint64 `json:"dropped"`     // by the broker, after its maximum number of deliveries
	Lost          uint64 `json:"lost"`        // accepted, not returned, not received after the idle time of the drain
	LostConfirmed uint64 `json:"lostConfirmed"`
	Undrained     uint64 `json:"undrained"` // not received when the drain reached its timeout
	Unknown       uint64 `json:"unknown"`   // beyond the last report of a lost agent
	Duplicated    uint64 `json:"duplicated"`
	Reordered     uint64 `json:"reordered"`
	Corrupt       uint64 `json:"corrupt"` // bodies whose envelope did not verify
	Foreign       uint64 `json:"foreign"` // intact envelopes of another task; of existing queues, any other messages
}

// AgentPart describes one agent's part of a task.
type AgentPart struct {
	Agent   string   `json:"agent"`
	Index   int      `json:"index"`
	Group   string   `json:"group,omitempty"` // group of the cell that the agent belongs to
	Host    string   `json:"host"`
	Clock   string   `json:"clock"`           // id of the clock of its times
	Phase   Phase    `json:"phase"`           // the last phase that it reached
	Lost    bool     `json:"lost,omitempty"`  // its heartbeats ended in that phase
	Left    bool     `json:"left,omitempty"`  // it announced its departure before the end
	Error   string   `json:"error,omitempty"` //
	Skew    Duration `json:"skew,omitempty"`  // actual minus agreed start
	Version string   `json:"version,omitempty"`
	// duration of the declaration of the topology, by one agent of the task or group
	Declared Duration `json:"declared,omitempty"`
	// when the agent was ready; nil: it was not, or nothing is known
	Placement *Placement `json:"placement,omitempty"`
}

// Placement is what is on each node of a cluster when the load starts, by the node's name or address.
type Placement struct {
	Leaders    map[string]int `json:"leaders,omitempty"`    // queues, streams or partitions that it leads; from one agent
	Publishers map[string]int `json:"publishers,omitempty"` // of this agent
	Consumers  map[string]int `json:"consumers,omitempty"`  // of this agent
	Unknown    string         `json:"unknown,omitempty"`    // why the driver could not read the leaders; empty: it could
}

// Check returns an error if a placement has more nodes than a cluster can have, or names that are too long.
func (p Placement) Check() error {
	for _, nodes := range []map[string]int{p.Leaders, p.Publishers, p.Consumers} {
		if len(nodes) > maxNodes {
			return fmt.Errorf("a placement has %d nodes: want at most %d", len(nodes), maxNodes)
		}
		for name := range nodes {
			if len(name) > maxNodeName {
				return fmt.Errorf("the name of a node has %d bytes: want at most %d", len(name), maxNodeName)
			}
		}
	}
	return nil
}

// Kinds of events of an outcome.
const (
	EventCores     = "host-cores" // the number of cores of an agent's host
	EventAgentLost = "agent-lost" // the controller lost an agent
)

// Cores returns the number of cores of the agents' hosts, by agent, where known.
func (o Outcome) Cores() map[string]int {
	cores := map[string]int{}
	for _, e := range o.Events {
		if n, err := strconv.Atoi(e.Detail); e.Kind == EventCores && err == nil {
			cores[e.Agent] = n
		}
	}
	return cores
}

// Hosts returns the hosts of the agents, each once, with their cores if known: "bench-1 (16 cores)".
func (o Outcome) Hosts() []string {
	var hosts []string
	cores := o.Cores()
	for _, a := range o.Agents {
		host := a.Host
		if n, known := cores[a.Agent]; known {
			host += fmt.Sprintf(" (%d cores)", n)
		}
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// Subject describes the tested broker, as far as its driver could read it.
type Subject struct {
	Fingerprint string            `json:"fingerprint,omitempty"`
	Endpoints   []string          `json:"endpoints,omitempty"` // redacted
	Product     string            `json:"product,omitempty"`
	StandIn     string            `json:"standIn,omitempty"` // product in whose place it runs; empty: itself
	Version     string            `json:"version,omitempty"`
	Members     []string          `json:"members,omitempty"`
	Settings    map[string]string `json:"settings,omitempty"`
	Label       string            `json:"label,omitempty"` // the user's version label
}

// Event is an event during a task.
type Event struct {
	At     Duration `json:"at"` // since the measurement began; negative in warm-up
	Agent  string   `json:"agent,omitempty"`
	Kind   string   `json:"kind"`
	Detail string   `json:"detail,omitempty"`
}

// Failed reports whether this outcome makes its run a failure.
func (o Outcome) Failed() bool { return o.Verdict != Valid }

// Value returns a value of the outcome or of one of its groups, by its name in tables.
func (o Outcome) Value(name string) (Value, bool) {
	group, name := SplitGroup(name)
	if group == "" {
		v, has := o.Values[name]
		return v, has
	}
	for _, g := range o.Groups {
		if g.Name == group {
			v, has := g.Values[name]
			return v, has
		}
	}
	return Value{}, false
}

// Incomparable returns why a value cannot be compared with others: no number, only a lower bound, or an incomparable
// flag. It returns "" if it can be compared.
func (v Value) Incomparable() string {
	switch {
	case v.NA != "":
		return "no number: " + v.NA
	case v.Over > 0:
		return "only a lower bound"
	}
	for _, f := range v.Flags {
		if f.Incomparable() {
			return string(f)
		}
	}
	return ""
}

// AttemptsText describes the attempts of a task: "3 attempts: agent-lost, connect". It returns "" if there was one.
func (o Outcome) AttemptsText() string {
	if len(o.FailedAttempts) == 0 {
		return ""
	}
	kinds := make([]string, len(o.FailedAttempts))
	for i, t := range o.FailedAttempts {
		kinds[i] = string(t.Kind)
	}
	if o.Search != nil {
		return fmt.Sprintf("steps retried %d times: %s", len(kinds), strings.Join(kinds, ", "))
	}
	return fmt.Sprintf("%d attempts: %s", len(kinds)+1, strings.Join(kinds, ", "))
}
