package runs

import (
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// timelineFile has the controller's events of a run, one event per line. With the snapshots and outcomes, it suffices
// to write all points of the run again.
const timelineFile = "timeline.jsonl"

// TimelineKind classes a TimelineEvent.
type TimelineKind string

// The kinds of timeline events.
const (
	TimelineStart  TimelineKind = "start"    // an attempt of a task began
	TimelineGiveUp TimelineKind = "given-up" // an attempt has no outcome
	TimelineEnd    TimelineKind = "end"      // the run ended
)

// TimelineEvent is an event of a run.
type TimelineEvent struct {
	At      time.Time     `json:"at"`
	Kind    TimelineKind  `json:"kind"`
	Task    string        `json:"task,omitempty"`
	Name    string        `json:"name,omitempty"`    // name of the attempt on the control plane
	Attempt int           `json:"attempt,omitempty"` // from 1
	Agents  []string      `json:"agents,omitempty"`  // by index
	Rate    float64       `json:"rate,omitempty"`    // of a step of a search
	Measure plan.Duration `json:"measure,omitempty"` // of a step of a search
	Text    string        `json:"text,omitempty"`    // given-up: the reason; end: the reason as a word
	Detail  string        `json:"detail,omitempty"`  // end: the reason in detail
}

// key identifies an event.
func (e TimelineEvent) key() [4]string {
	return [4]string{string(e.Kind), e.Task, e.Name, e.At.UTC().String()}
}

// EndOf returns the event of a run's end; false: the run has not ended, or was resumed.
func EndOf(events []TimelineEvent) (TimelineEvent, bool) {
	if len(events) == 0 {
		return TimelineEvent{}, false
	}
	last := events[len(events)-1]
	return last, last.Kind == TimelineEnd
}
