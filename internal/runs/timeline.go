package runs

import (
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// marksFile has the controller's events of a run, one mark per line. With the snapshots and outcomes, it suffices to
// write all points of the run again.
const marksFile = "timeline.jsonl"

// MarkKind classes a Mark.
type MarkKind string

// The kinds of marks.
const (
	MarkStart  MarkKind = "start"    // an attempt of a task began
	MarkGiveUp MarkKind = "given-up" // an attempt has no outcome
	MarkEnd    MarkKind = "end"      // the run ended
)

// Mark is an event of a run.
type Mark struct {
	At      time.Time     `json:"at"`
	Kind    MarkKind      `json:"kind"`
	Task    string        `json:"task,omitempty"`
	Name    string        `json:"name,omitempty"`    // name of the attempt on the control plane
	Attempt int           `json:"attempt,omitempty"` // from 1
	Agents  []string      `json:"agents,omitempty"`  // by index
	Rate    float64       `json:"rate,omitempty"`    // of a step of a search
	Measure plan.Duration `json:"measure,omitempty"` // of a step of a search
	Text    string        `json:"text,omitempty"`    // given-up: the reason; end: the reason as a word
	Detail  string        `json:"detail,omitempty"`  // end: the reason in detail
}

// key identifies a mark.
func (m Mark) key() [4]string { return [4]string{string(m.Kind), m.Task, m.Name, m.At.UTC().String()} }

// EndOf returns the mark of a run's end; false: the run has not ended, or was resumed.
func EndOf(marks []Mark) (Mark, bool) {
	if len(marks) == 0 {
		return Mark{}, false
	}
	last := marks[len(marks)-1]
	return last, last.Kind == MarkEnd
}
