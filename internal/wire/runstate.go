package wire

import (
	"time"

	"example.org/lockstep/lockstep/internal/wire/subject"
)

// RunState is the state of a run that lists of runs show. It is one value of a bucket, which is replaced as a whole.
type RunState struct {
	Run       string    `json:"run"`
	Name      string    `json:"name"`
	State     string    `json:"state"`             // StateQueued, StateRunning, or the EndReason
	Waiting   string    `json:"waiting,omitempty"` // the reason
	Submitted time.Time `json:"submitted,omitzero"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	By        string    `json:"by,omitempty"`       // user@host
	Schedule  string    `json:"schedule,omitempty"` // the schedule that submitted it
	Tasks     int       `json:"tasks"`
	// Tasks is a maximum: cells are repeated until they are known well enough
	AtMost bool     `json:"atMost,omitempty"`
	Done   int      `json:"done"`             // tasks that have an outcome
	Failed int      `json:"failed,omitempty"` // the part of Done that is not valid
	Detail string   `json:"detail,omitempty"` // the reason of its end
	Agents []string `json:"agents,omitempty"` // reserved for it
	Key    string   `json:"key,omitempty"`    // of the submission
	Copied bool     `json:"copied,omitempty"` // a controller's folder has a complete copy of its record
	// InFlight is the id of the task with an attempt in flight, or StartInFlight. Empty: nothing is in flight, or the
	// leader ended in order. Crashes are the epochs of consecutive leaderships that failed with Blamed in flight.
	InFlight string   `json:"inFlight,omitempty"`
	Blamed   string   `json:"blamed,omitempty"`
	Crashes  []uint64 `json:"crashes,omitempty"`
	Seq      uint64   `json:"seq"`   // sequence number of the submission
	Epoch    uint64   `json:"epoch"` // of the leader that wrote this

	revision uint64 // of the value in the bucket; 0: none was read
}

// The states of runs that have not ended.
const (
	StateQueued  = "queued"
	StateRunning = "running"
)

// StartInFlight marks the time between a leader's start of a run and its first task, or its wait for agents.
const StartInFlight = "start"

// Over reports whether the run has ended.
func (s RunState) Over() bool { return s.State != StateQueued && s.State != StateRunning }

// maxEnded is the maximum number of ended runs without streams in the list.
const maxEnded = 1000

func keyRun(run string) string { return "run." + subject.EncodeToken(run) }
