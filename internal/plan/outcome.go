package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Verdict is whether a task's numbers may be used.
type Verdict string

// The verdicts.
const (
	Valid   Verdict = "valid"
	Invalid Verdict = "invalid" // a declared guarantee was broken
	Unknown Verdict = "unknown" // no usable number: the task failed, or part of it is not known
)

// Flag is a warning about one value, shown beside it.
type Flag string

// The flags.
const (
	Backlog     Flag = "backlog"      // receiving did not keep up with sending
	ClockUnsafe Flag = "clock-unsafe" // clocks of two hosts, offset unknown or too coarse
	ClientBound Flag = "client-bound" // the load generator's own work was the limit
	SharedHost  Flag = "shared-host"  // broker and load generator share CPUs that were fully used
	HostBusy    Flag = "host-busy"    // other processes used the CPU
	Skewed      Flag = "skewed"       // agents did not start together
	Degraded    Flag = "degraded"     // only some of the agents
	Clipped     Flag = "clipped"      // samples beyond the histogram's range
	NotSteady   Flag = "not-steady"   // warm-up: auto found no steady state
	Drifting    Flag = "drifting"     // rates or the median latency moved during the measurement
	LatencyOff  Flag = "latency-off"  // the simulated latency was not the one asked for
)

// Flags lists every flag.
func Flags() []Flag {
	return []Flag{Backlog, ClockUnsafe, ClientBound, SharedHost, HostBusy, Skewed, Degraded, Clipped, NotSteady,
		Drifting, LatencyOff}
}

// Incomparable reports whether a number with the flag cannot be compared with that of another run. Four flags leave it
// comparable: with backlog it is the rate that the broker reached; with shared-host it is that of broker and load
// generator together, and with latency-off that of another latency, in every run; with host-busy it is noisier, as the
// spread of the repetitions shows.
func (f Flag) Incomparable() bool {
	return slices.Contains(Flags(), f) && !slices.Contains([]Flag{Backlog, SharedHost, HostBusy, LatencyOff}, f)
}

// Value is one metric of an outcome. Exactly one of Number and NA is meaningful.
type Value struct {
	Number float64 `json:"-"`
	// Bound is how far the truth may be from Number, either way, because of the clocks or because seconds are all that
	// was seen; in the value's unit, 0 where that does not matter.
	Bound float64 `json:"bound,omitempty"`
	// Over is above 0 where the value is known to be more than Number, and no more: a quantile that lies among samples
	// beyond the histogram's range, or depends on messages that were due and not sent when the drain ended, or of fewer
	// than 10/(1-q) samples. It is the number of these, or of samples from Number on.
	Over uint64 `json:"over,omitempty"`
	// Sample is the quantile of the samples, where these are so few that Number is only a lower bound of it (95 %
	// confidence).
	Sample float64 `json:"sample,omitempty"`
	NA     string  `json:"na,omitempty"` // why there is no number: "fire-and-forget", "no consumers", "backlog"
	Flags  []Flag  `json:"flags,omitempty"`
}

// LessThan says what a value is less than, in seconds, where that is all that is known of it; its NA says so for
// people: "< 20 ms".
func (v Value) LessThan() (seconds float64, is bool) {
	text, is := strings.CutPrefix(v.NA, "< ")
	d, err := time.ParseDuration(strings.ReplaceAll(text, " ", ""))
	return d.Seconds(), is && err == nil
}

type valueJSON struct {
	Number *float64 `json:"number,omitempty"`
	Bound  float64  `json:"bound,omitempty"`
	Over   uint64   `json:"over,omitempty"`
	Sample float64  `json:"sample,omitempty"`
	NA     string   `json:"na,omitempty"`
	Flags  []Flag   `json:"flags,omitempty"`
}

// MarshalJSON writes a number, zero included, or why there is none.
func (v Value) MarshalJSON() ([]byte, error) {
	out := valueJSON{Bound: v.Bound, Over: v.Over, Sample: v.Sample, NA: v.NA, Flags: v.Flags}
	if v.NA == "" {
		out.Number = &v.Number
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (v *Value) UnmarshalJSON(text []byte) error {
	var in valueJSON
	if err := json.Unmarshal(text, &in); err != nil {
		return fmt.Errorf("read value: %w", err)
	}
	*v = Value{Bound: in.Bound, Over: in.Over, Sample: in.Sample, NA: in.NA, Flags: in.Flags}
	if in.Number != nil {
		v.Number = *in.Number
	}
	return nil
}

// Outcome is what came of a task: written last and at once. A task without one is not done.
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
	Measured    Duration         `json:"measured"` // what rates are per
	// Cut is how much of the load before the measurement was cut off as warm-up, where that was found out (warmup:
	// "auto").
	Cut    Duration       `json:"cut,omitempty"`
	Clocks []ClockPair    `json:"clocks,omitempty"` // agents that share the cell and read different clocks
	Search *SearchResult  `json:"search,omitempty"`
	Groups []GroupOutcome `json:"groups,omitempty"` // the parts that Values and Ledger are the sum of
	// Attempt is which attempt of its task this came of, from 1, and Attempts are those before it, none of which
	// entered the values. Of a search it is 1, and Attempts are those of its steps that were retried.
	Attempt        int             `json:"attempt,omitempty"`
	FailedAttempts []FailedAttempt `json:"failedAttempts,omitempty"`
	// what kept this attempt from giving numbers; empty: nothing of a kind that is told apart
	Failure FailureKind `json:"failure,omitempty"`
}

// ClockPair is how well the clocks of two agents of a task were known.
type ClockPair struct {
	Publisher string `json:"publisher"`
	Consumer  string `json:"consumer"`
	// consumer's clock minus publisher's, beyond the agreed start, in the middle of the measurement
	Offset Duration `json:"offset"`
	// the most that the corrected times may be wrong, either way, at any time of the measurement
	Bound Duration `json:"bound"`
	Drift float64  `json:"drift"` // parts per million
}

// GroupOutcome is what came of one group of a cell.
type GroupOutcome struct {
	Name     string           `json:"name"`
	Subject  *Subject         `json:"subject,omitempty"` // of a side-by-side broker's own broker; nil: the outcome's
	Verdict  Verdict          `json:"verdict"`
	Values   map[string]Value `json:"values"`
	Ledger   Ledger           `json:"ledger"`
	Reasons  []string         `json:"reasons,omitempty"`
	Warnings []string         `json:"warnings,omitempty"`
}

// Ledger is the exact accounting of a task's messages. Received, Lost, Undrained, Unknown, Duplicated and Reordered are
// summed over the subscriptions.
type Ledger struct {
	Sent          uint64 `json:"sent"`      // accepted by Publish
	Uncertain     uint64 `json:"uncertain"` // Publish returned an error: may have gone out
	Confirmed     uint64 `json:"confirmed"`
	Rejected      uint64 `json:"rejected"`    // confirmed with an error by the broker
	Unconfirmed   uint64 `json:"unconfirmed"` // accepted, and never confirmed
	Unroutable    uint64 `json:"unroutable"`  // returned
	Received      uint64 `json:"received"`    // different messages
	Lost          uint64 `json:"lost"`        // accepted, not returned, not received after the idle time of the drain
	LostConfirmed uint64 `json:"lostConfirmed"`
	Undrained     uint64 `json:"undrained"` // not received when the drain was cut by its limit
	Unknown       uint64 `json:"unknown"`   // beyond what a lost agent had reported
	Duplicated    uint64 `json:"duplicated"`
	Reordered     uint64 `json:"reordered"`
	Corrupt       uint64 `json:"corrupt"` // bodies whose envelope did not verify
	Foreign       uint64 `json:"foreign"` // whole envelopes of another task
}

// AgentPart is what one agent did in a task.
type AgentPart struct {
	Agent   string   `json:"agent"`
	Index   int      `json:"index"`
	Group   string   `json:"group,omitempty"` // of the cell, that the agent belonged to
	Host    string   `json:"host"`
	Clock   string   `json:"clock"`           // id of the clock its times were read from
	Phase   Phase    `json:"phase"`           // the last it reached
	Lost    bool     `json:"lost,omitempty"`  // it vanished there
	Left    bool     `json:"left,omitempty"`  // it said goodbye before the end
	Error   string   `json:"error,omitempty"` //
	Skew    Duration `json:"skew,omitempty"`  // actual minus agreed start
	Version string   `json:"version,omitempty"`
}

// EventCores is the kind of the event by which an outcome keeps how many cores the host of an agent has.
const EventCores = "host-cores"

// Hosts lists the hosts of the agents, each once, with their cores as far as they are known: "bench-1 (16 cores)".
func (o Outcome) Hosts() []string {
	cores := map[string]string{}
	for _, e := range o.Events {
		if e.Kind == EventCores {
			cores[e.Agent] = " (" + e.Detail + " cores)"
		}
	}
	var hosts []string
	for _, a := range o.Agents {
		hosts = append(hosts, a.Host+cores[a.Agent])
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// Subject is what was really tested.
type Subject struct {
	Fingerprint string            `json:"fingerprint,omitempty"`
	Endpoints   []string          `json:"endpoints,omitempty"` // redacted
	Product     string            `json:"product,omitempty"`
	Version     string            `json:"version,omitempty"`
	Members     []string          `json:"members,omitempty"`
	Settings    map[string]string `json:"settings,omitempty"`
	Label       string            `json:"label,omitempty"` // the user's version label
}

// Event is something that happened during a task.
type Event struct {
	At     Duration `json:"at"` // since the measurement began; negative in warm-up
	Agent  string   `json:"agent,omitempty"`
	Kind   string   `json:"kind"`
	Detail string   `json:"detail,omitempty"`
}

// Failed reports whether a run that holds this outcome must not be called a success.
func (o Outcome) Failed() bool { return o.Verdict != Valid }
