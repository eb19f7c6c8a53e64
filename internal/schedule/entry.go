package schedule

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Entry is the result of one slot.
type Entry struct {
	Slot
	Run      string    `json:"run,omitempty"`
	State    State     `json:"state"`
	Why      string    `json:"why,omitempty"`    // why it was skipped, failed or ended early
	Begun    int       `json:"begun,omitempty"`  // number of controllers that began to make the run
	Epoch    uint64    `json:"epoch,omitempty"`  // the epoch of the last of them
	Started  time.Time `json:"started,omitzero"` // time of the last Begin
	Ended    time.Time `json:"ended,omitzero"`
	Tasks    Tasks     `json:"tasks"`
	Problems []string  `json:"problems,omitempty"` // the first of them
	Previous string    `json:"previous,omitempty"` // the run before it with outcomes
	Hooks    []Call    `json:"hooks,omitempty"`
	// outputs of comparison hooks, by name of the hook: JSON or a text
	Compared json.RawMessage `json:"compared,omitempty"`
}

// State is the state or the result of a slot.
type State string

// The states. A run that has ended has the reason of its end as its state: done, interrupted, no-agents, no-target,
// refused, failed, quarantined.
const (
	Starting    State = "starting"     // the run is being made, and may have been submitted
	Submitted   State = "submitted"    // the run is queued or executed
	Done        State = "done"         // every task has an outcome
	Skipped     State = "skipped"      // because of a policy
	MatrixError State = "matrix-error" // no run could be made from the matrix
	Gone        State = "gone"         // the control plane no longer has the result
)

// Tasks counts the tasks of a run with an outcome, by verdict.
type Tasks struct {
	Valid   int `json:"valid"`
	Invalid int `json:"invalid"`
	Unknown int `json:"unknown"`
}

// Total returns the number of tasks with an outcome.
func (t Tasks) Total() int { return t.Valid + t.Invalid + t.Unknown }

// Call is the call of one hook of an entry.
type Call struct {
	Hook     string    `json:"hook"`
	State    CallState `json:"state"`
	Why      string    `json:"why,omitempty"`
	Attempts int       `json:"attempts,omitempty"`
	At       time.Time `json:"at,omitzero"`
}

// CallState is the state of a call.
type CallState string

// The states of a call. A call that is pending when its controller ends is repeated by the next controller.
const (
	CallPending CallState = "pending"
	CallDone    CallState = "done"
	CallFailed  CallState = "failed"
	CallNone    CallState = "none" // a comparison of a run without outcomes
)

// Limits of an entry.
const (
	MaxCompared = 64 << 10 // bytes of all comparison outputs together, in the newest entries
	maxOld      = 1 << 10  // the same in older entries
	newest      = 5
	maxProblems = 20
	maxProblem  = 300
	maxWhy      = 2000
)

// Problem adds a problem, up to maxProblems.
func (e *Entry) Problem(text string) {
	if len(e.Problems) < maxProblems {
		e.Problems = append(e.Problems, Cut(text, maxProblem))
	}
}

// compare stores the output of a comparison hook: unchanged if it is JSON, else as a text. It reports whether there was
// space.
func (e *Entry) compare(hook string, output []byte) bool {
	all := map[string]json.RawMessage{}
	if len(e.Compared) > 0 && json.Unmarshal(e.Compared, &all) != nil {
		return false
	}
	if !json.Valid(output) {
		// a string always marshals
		output, _ = json.Marshal(strings.ToValidUTF8(strings.TrimSpace(string(output)), "\uFFFD"))
	}
	all[hook] = output
	text, err := json.Marshal(all)
	if err != nil || len(text) > MaxCompared {
		return false
	}
	e.Compared = text
	return true
}

// Cut shortens a text to at most n bytes. A shortened text ends with an ellipsis.
func Cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n -= len("…"); n > 0 && !utf8.RuneStart(text[n]); n-- {
	}
	return text[:n] + "…"
}

func (e Entry) clone() Entry {
	e.Problems, e.Hooks = slices.Clone(e.Problems), slices.Clone(e.Hooks)
	return e
}

// Notice is the JSON that a hook receives. docs/reference/schedules.md documents it for the authors of hooks.
type Notice struct {
	Version  int    `json:"version"` // of this format: 1
	Key      string `json:"key"`     // the same for every call of the same hook about the same run
	Hook     string `json:"hook"`
	Schedule string `json:"schedule"`
	Slot     string `json:"slot"` // RFC 3339, in the schedule's time zone
	Asked    bool   `json:"asked"`
	Missed   int    `json:"missed"`
	Run      string `json:"run"`
	State    State  `json:"state"`
	Why      string `json:"why,omitempty"`

	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	Tasks   Tasks     `json:"tasks"`

	Problems          []string        `json:"problems"`
	Previous          string          `json:"previous,omitempty"`
	Directory         string          `json:"directory,omitempty"`
	PreviousDirectory string          `json:"previousDirectory,omitempty"`
	Comparison        json.RawMessage `json:"comparison,omitempty"`
}
