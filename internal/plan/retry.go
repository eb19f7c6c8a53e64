package plan

import (
	"fmt"
	"slices"
	"strings"
)

// FailureKind classes what kept an attempt of a task from giving numbers.
type FailureKind string

// The kinds of failures. FailedInterrupted is no failure of the attempt: nothing is retried because of it.
const (
	FailedAgentLost   FailureKind = "agent-lost"  // an agent vanished
	FailedConnect     FailureKind = "connect"     // a session, the topology, a consumer or a publisher
	FailedTimeout     FailureKind = "timeout"     // an agent lives and did not answer within a step's time
	FailedRun         FailureKind = "run"         // while messages were sent or awaited
	FailedSkewed      FailureKind = "skewed"      // complete, but the agents did not start together
	FailedInterrupted FailureKind = "interrupted" // the controller stopped or was lost in the middle of it
)

// RetryKinds lists the kinds of failures that a cell may be retried for.
func RetryKinds() []FailureKind {
	return []FailureKind{FailedAgentLost, FailedConnect, FailedTimeout, FailedRun, FailedSkewed}
}

// Retry is which failures of a task make that it is retried, and how often. It is no part of the workload, and so not
// of the cell's id.
type Retry struct {
	On  []FailureKind `json:"on"`
	Max int           `json:"max"` // attempts after the first; of a search, of each of its steps
}

// defaultRetry is of a cell that says nothing: a lost agent says nothing of the broker.
var defaultRetry = Retry{On: []FailureKind{FailedAgentLost}, Max: 1}

// Again reports whether an attempt that failed so is followed by another, given those before it. A nil Retry repeats an
// attempt that lost an agent, once.
func (r *Retry) Again(failed FailureKind, before []FailedAttempt) bool {
	if r == nil {
		r = &defaultRetry
	}
	if !slices.Contains(r.On, failed) {
		return false
	}
	used := 0
	for _, t := range before {
		if t.Kind != FailedInterrupted {
			used++
		}
	}
	return used < r.Max
}

// FailedAttempt is an attempt of a task that does not count.
type FailedAttempt struct {
	Name   string      `json:"name"` // as the control plane and the run directory have it
	Kind   FailureKind `json:"kind"`
	Reason string      `json:"reason,omitempty"`
}

func (t FailedAttempt) String() string {
	if t.Reason == "" {
		return string(t.Kind)
	}
	return string(t.Kind) + ": " + t.Reason
}

// AttemptsText says in words how often a task was tried and why not once: "3 attempts: agent-lost, connect"; nothing,
// if it was tried once.
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
