package plan

import "slices"

// FailureKind is the kind of failure of an attempt of a task.
type FailureKind string

// The kinds of failures. FailedInterrupted is not a failure of the task. It and FailedUnreachable never cause a retry.
const (
	FailedAgentLost   FailureKind = "agent-lost"  // an agent disappeared
	FailedConnect     FailureKind = "connect"     // of a session, the topology, a consumer or a publisher
	FailedUnreachable FailureKind = "unreachable" // no attempt, as no session could be opened before the first task
	FailedTimeout     FailureKind = "timeout"     // a running agent did not answer within the time of a step
	FailedRun         FailureKind = "run"         // while messages were sent or drained
	FailedSkewed      FailureKind = "skewed"      // complete, but the agents did not start together
	FailedInterrupted FailureKind = "interrupted" // the controller stopped or was lost during the attempt
)

// RetryKinds returns the kinds of failures for which a cell can be retried.
func RetryKinds() []FailureKind {
	return []FailureKind{FailedAgentLost, FailedConnect, FailedTimeout, FailedRun, FailedSkewed}
}

// Retry determines which failures of a task are retried, and how often. It is not part of the workload, and so does not
// affect the cell's id.
type Retry struct {
	On  []FailureKind `json:"on"`
	Max int           `json:"max"` // retries after the first attempt; in a search, of each step
}

// defaultRetry applies to cells without a retry field. The loss of an agent is not a result of the broker.
var defaultRetry = Retry{On: []FailureKind{FailedAgentLost}, Max: 1}

// Again reports whether a failed attempt is retried, given the failed attempts before it. A nil Retry retries once
// after the loss of an agent.
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

// FailedAttempt is an attempt of a task that does not contribute to the outcome.
type FailedAttempt struct {
	Name   string      `json:"name"` // name in the control plane and the run directory
	Kind   FailureKind `json:"kind"`
	Reason string      `json:"reason,omitempty"`
}

func (t FailedAttempt) String() string {
	if t.Reason == "" {
		return string(t.Kind)
	}
	return string(t.Kind) + ": " + t.Reason
}
