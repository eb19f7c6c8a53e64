package schedule

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Entry is what came of one slot.
type Entry struct {
	Slot
	Run      string    `json:"run,omitempty"`
	State    State     `json:"state"`
	Why      string    `json:"why,omitempty"`    // it was skipped, failed, or ended early
	Begun    int       `json:"begun,omitempty"`  // how many controllers began to make the run, and
	Epoch    uint64    `json:"epoch,omitempty"`  // the epoch of the last of them
	Started  time.Time `json:"started,omitzero"` // the leader took it up
	Ended    time.Time `json:"ended,omitzero"`
	Tasks    Tasks     `json:"tasks"`
	Problems []string  `json:"problems,omitempty"` // the first of them
	Previous string    `json:"previous,omitempty"` // the run before it that had outcomes
	Hooks    []Call    `json:"hooks,omitempty"`
	// what comparison hooks said, by name: {"NAME": JSON or a text}
	Compared json.RawMessage `json:"compared,omitempty"`
}

// State is how far a slot is, or what came of it.
type State string

// The states. A run that ended has its end's reason as state: done, interrupted, no-agents, no-target, refused, failed.
const (
	Starting  State = "starting"  // the run is being made: it may have been submitted, or not
	Submitted State = "submitted" // it waits in the queue, or runs
	Done      State = "done"      // every task has an outcome
	Skipped   State = "skipped"   // by a policy
	Faulty    State = "faulty"    // no run could be made of the matrix
	Gone      State = "gone"      // the control plane does not know any more what came of it
)

// Tasks counts the tasks of a run that have an outcome, by verdict.
type Tasks struct {
	Valid   int `json:"valid"`
	Invalid int `json:"invalid"`
	Unknown int `json:"unknown"`
}

// Total is how many have one.
func (t Tasks) Total() int { return t.Valid + t.Invalid + t.Unknown }

// Call is one hook of an entry.
type Call struct {
	Hook     string    `json:"hook"`
	State    CallState `json:"state"`
	Why      string    `json:"why,omitempty"`
	Attempts int       `json:"attempts,omitempty"`
	At       time.Time `json:"at,omitzero"`
}

// CallState is how far a call is.
type CallState string

// The states of a call. One that is pending when its controller ends is made again by the next.
const (
	CallPending CallState = "pending"
	CallDone    CallState = "done"
	CallFailed  CallState = "failed"
	CallNone    CallState = "none" // a comparison of a run that has no outcome
)

// Bounds of what an entry keeps.
const (
	MaxCompared = 64 << 10 // bytes, of all comparison hooks together, in the newest entries
	maxOld      = 1 << 10  // in older ones
	newest      = 5
	maxProblems = 20
	maxProblem  = 300
	maxWhy      = 2000
)

// Problem adds one, if there is room.
func (e *Entry) Problem(text string) {
	if len(e.Problems) < maxProblems {
		e.Problems = append(e.Problems, Cut(text, maxProblem))
	}
}

// Pending is the name of the first hook that is not called yet.
func (e *Entry) Pending() (hook string, is bool) {
	for _, c := range e.Hooks {
		if c.State == CallPending {
			return c.Hook, true
		}
	}
	return "", false
}

// Compare keeps what a comparison hook said: as it is if it is JSON, else as a text. It reports whether there was room.
func (e *Entry) Compare(hook string, said []byte) bool {
	all := map[string]json.RawMessage{}
	if len(e.Compared) > 0 && json.Unmarshal(e.Compared, &all) != nil {
		return false
	}
	if !json.Valid(said) {
		// a string always marshals
		said, _ = json.Marshal(strings.ToValidUTF8(strings.TrimSpace(string(said)), "\uFFFD"))
	}
	all[hook] = said
	text, err := json.Marshal(all)
	if err != nil || len(text) > MaxCompared {
		return false
	}
	e.Compared = text
	return true
}

// Cut shortens a text to at most n bytes, and shows that it did.
func Cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n -= len("…"); n > 0 && !utf8.RuneStart(text[n]); n-- {
	}
	return text[:n] + "…"
}

// close puts an entry into the history and keeps that within its bounds.
func (s *Schedule) close(e Entry) {
	e.Why = Cut(e.Why, maxWhy)
	s.History = append(s.History, e)
	if over := len(s.History) - MaxHistory; over > 0 {
		s.History = slices.Delete(s.History, 0, over)
	}
	for i := range s.History[:max(0, len(s.History)-newest)] {
		if old := &s.History[i]; len(old.Compared) > maxOld {
			old.Compared, _ = json.Marshal(Cut(string(old.Compared), maxOld/2)) // a string always marshals
		}
	}
}
