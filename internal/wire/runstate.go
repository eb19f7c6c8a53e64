package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/wire/subject"
)

// RunState is how a run stands: what a list of runs shows of it.
type RunState struct {
	Run       string    `json:"run"`
	Name      string    `json:"name"`
	State     string    `json:"state"`             // StateQueued, StateRunning, or the EndReason
	Waiting   string    `json:"waiting,omitempty"` // what it waits for
	Submitted time.Time `json:"submitted,omitzero"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	By        string    `json:"by,omitempty"`       // user@host
	Schedule  string    `json:"schedule,omitempty"` // that submitted it
	Tasks     int       `json:"tasks"`
	// there may be fewer: cells are repeated until they are known well enough
	AtMost bool     `json:"atMost,omitempty"`
	Done   int      `json:"done"`             // tasks that have an outcome
	Failed int      `json:"failed,omitempty"` // of these: not valid
	Detail string   `json:"detail,omitempty"` // why it ended as it did
	Agents []string `json:"agents,omitempty"` // reserved for it
	Key    string   `json:"key,omitempty"`    // of the submission
	Copied bool     `json:"copied,omitempty"` // a controller's directory holds all of its record
	// InFlight is what the leader does with the run: the id of a task of which an attempt is in flight, or
	// StartInFlight; empty: nothing, or the leader ended in order. Crashes are the epochs of leaderships that failed
	// with Blamed in flight, one after the other.
	InFlight string   `json:"inFlight,omitempty"`
	Blamed   string   `json:"blamed,omitempty"`
	Crashes  []uint64 `json:"crashes,omitempty"`
	Seq      uint64   `json:"seq"`   // numbers the submission
	Epoch    uint64   `json:"epoch"` // of the leader that wrote this

	revision uint64 // of the value that this was read from; 0: there was none
}

// The states of runs that have not ended.
const (
	StateQueued  = "queued"
	StateRunning = "running"
)

// StartInFlight is the time from when a leader takes a run up until it has chosen agents for a task, or waits for them.
const StartInFlight = "start"

// Over reports whether the run has ended.
func (s RunState) Over() bool { return s.State != StateQueued && s.State != StateRunning }

// maxEnded bounds how many ended runs are listed.
const maxEnded = 1000

func keyRun(run string) string { return "run." + subject.EncodeToken(run) }

func readState(ctx context.Context, kv jetstream.KeyValue, run string) (s RunState, err error) {
	e, err := kv.Get(ctx, keyRun(run))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err = json.Unmarshal(e.Value(), &s); err != nil {
		err = fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	s.revision = e.Revision()
	return s, err
}
