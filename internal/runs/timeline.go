package runs

import (
	"time"

	"lockstep/internal/plan"
)

// marksFile has what the controller said of a run while it went on, one mark a line: with it, and snapshots and
// outcomes, all that was seen of the run live can be told again.
const marksFile = "timeline.jsonl"

// MarkKind classes a Mark.
type MarkKind string

// The kinds of marks.
const (
	MarkStart  MarkKind = "start"    // an attempt of a task began
	MarkGiveUp MarkKind = "given-up" // an attempt will have no outcome
	MarkEnd    MarkKind = "end"      // the run ended
)

// Mark is a moment of a run.
type Mark struct {
	At      time.Time     `json:"at"`
	Kind    MarkKind      `json:"kind"`
	Task    string        `json:"task,omitempty"`
	Name    string        `json:"name,omitempty"`    // of the attempt, as the control plane has it
	Attempt int           `json:"attempt,omitempty"` // from 1
	Agents  []string      `json:"agents,omitempty"`  // by index
	Rate    float64       `json:"rate,omitempty"`    // of a step of a search
	Measure plan.Duration `json:"measure,omitempty"` // of a step of a search
	Text    string        `json:"text,omitempty"`    // given-up: why; end: how, in a word
	Detail  string        `json:"detail,omitempty"`  // end: why
}

// markKey tells a mark from others.
type markKey struct {
	kind             MarkKind
	task, name, when string
}

func (m Mark) key() markKey { return markKey{m.Kind, m.Task, m.Name, m.At.UTC().String()} }

// EndOf returns the mark of a run's end. It is false while the run continues, as it does after it was resumed.
func EndOf(marks []Mark) (Mark, bool) {
	if len(marks) == 0 {
		return Mark{}, false
	}
	last := marks[len(marks)-1]
	return last, last.Kind == MarkEnd
}
