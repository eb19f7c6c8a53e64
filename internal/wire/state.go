package wire

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Buckets hold what is small and is looked up by name: the lease and run states, and schedules.
const (
	bucketState     = "LOCKSTEP_STATE"
	bucketSchedules = "LOCKSTEP_SCHEDULES"
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
	AtMost    bool      `json:"atMost,omitempty"` // there may be fewer: cells are repeated until they are known well enough
	Done      int       `json:"done"`             // tasks that have an outcome
	Failed    int       `json:"failed,omitempty"` // of these: not valid
	Detail    string    `json:"detail,omitempty"` // why it ended as it did
	Agents    []string  `json:"agents,omitempty"` // reserved for it
	Key       string    `json:"key,omitempty"`    // of the submission
	Copied    bool      `json:"copied,omitempty"` // a controller's directory holds all of its record
	// InFlight is what the leader does with the run: the id of a task of which an attempt is in flight, or StartInFlight;
	// empty: nothing, or the leader ended in order. Crashes are the epochs of leaderships that failed with Blamed in
	// flight, one after the other.
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

// Over tells whether the run has ended.
func (s RunState) Over() bool { return s.State != StateQueued && s.State != StateRunning }

// maxEnded bounds how many ended runs are listed.
const maxEnded = 1000

func keyRun(run string) string { return "run." + token(run) }

// state and schedules open the buckets.
func (c *Conn) state(ctx context.Context) (jetstream.KeyValue, error) {
	return c.bucket(ctx, bucketState)
}

func (c *Conn) schedules(ctx context.Context) (jetstream.KeyValue, error) {
	return c.bucket(ctx, bucketSchedules)
}

func (c *Conn) bucket(ctx context.Context, name string) (jetstream.KeyValue, error) {
	kv, err := c.js.KeyValue(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look at %s (is a controller there?): %w", name, err)
	}
	return kv, nil
}

// Runs lists the runs that the control plane knows, in the order submitted: those that wait or run, and the newest 1,000 that have ended.
func (c *Conn) Runs(ctx context.Context) ([]RunState, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var runs []RunState
	kv, err := c.state(ctx)
	if err == nil {
		err = each(ctx, kv, "run.*", func(e jetstream.KeyValueEntry) {
			var s RunState
			if json.Unmarshal(e.Value(), &s) == nil && keyRun(s.Run) == e.Key() {
				s.revision = e.Revision()
				runs = append(runs, s)
			}
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	slices.SortFunc(runs, func(a, b RunState) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), strings.Compare(a.Run, b.Run)) })
	return runs, nil
}

// each hands every value of the keys that match to take.
func each(ctx context.Context, kv jetstream.KeyValue, keys string, take func(jetstream.KeyValueEntry)) error {
	w, err := kv.Watch(ctx, keys, jetstream.IgnoreDeletes())
	if err != nil {
		return err
	}
	defer w.Stop() //nolint:errcheck // fails only when the connection is closed
	for {
		select {
		case e, open := <-w.Updates():
			if e == nil || !open { // all that is there has come
				return nil
			}
			take(e)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// PutRun stores how a run stands. A later leader's word is not overwritten: the error then wraps ErrFenced.
func (l *Lease) PutRun(ctx context.Context, s RunState) error {
	Progress(ctx, storeTimeout)
	ctx, cancel := l.bound(ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, storeTimeout)
	defer stop()
	s.Epoch = l.who.Epoch
	value, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("store the state of run %s: %w", s.Run, err)
	}
	kv, err := l.conn.state(ctx)
	for err == nil {
		var there RunState
		there, err = readState(ctx, kv, s.Run)
		switch {
		case err != nil && !errors.Is(err, ErrUnreadable):
		case there.Epoch > s.Epoch:
			err = ErrFenced
		default:
			if _, err = replaceValue(ctx, kv, keyRun(s.Run), value, there.revision); err == nil {
				return nil
			}
			if conflict(err) {
				err = wait(ctx, retryWait)
			}
		}
	}
	return fmt.Errorf("store the state of run %s: %w", s.Run, err)
}

// replaceValue stores the value of a key over a revision, 0: none, and returns its new revision.
func replaceValue(ctx context.Context, kv jetstream.KeyValue, key string, value []byte, revision uint64) (uint64, error) {
	if revision == 0 {
		return kv.Create(ctx, key, value)
	}
	return kv.Update(ctx, key, value, revision)
}

// RunState is how a run stands as last stored; the zero value if nothing is known of it.
func (c *Conn) RunState(ctx context.Context, run string) (s RunState, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	kv, err := c.state(ctx)
	if err != nil {
		return s, err
	}
	if s, err = readState(ctx, kv, run); err != nil {
		return s, fmt.Errorf("read the state of run %s: %w", run, err)
	}
	return s, nil
}

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

// MarkCopied notes in the state of a run that has ended that a controller's directory holds all of its record. Nothing
// happens if the state has changed since s was read: the caller looks again.
func (c *Conn) MarkCopied(ctx context.Context, s RunState) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	s.Copied = true
	value, err := json.Marshal(s)
	if err != nil {
		return err
	}
	kv, err := c.state(ctx)
	if err == nil {
		_, err = replaceValue(ctx, kv, keyRun(s.Run), value, s.revision)
	}
	if conflict(err) {
		return nil
	}
	return err
}

// ForgetRuns deletes the states of the oldest runs that have ended, beyond the newest 1,000. It keeps those of runs that
// have streams, and those that are needed.
func (l *Lease) ForgetRuns(ctx context.Context, needed func(run string) bool) error {
	runs, err := l.conn.Runs(ctx)
	if err != nil {
		return err
	}
	over := slices.DeleteFunc(runs, func(s RunState) bool { return !s.Over() })
	if len(over) <= maxEnded {
		return nil
	}
	ctx, cancel := l.bound(ctx)
	defer cancel()
	streams, err := l.conn.runStreams(ctx)
	var kv jetstream.KeyValue
	if err == nil {
		kv, err = l.conn.state(ctx)
	}
	for _, s := range over[:len(over)-maxEnded] {
		if err == nil && streams[s.Run] == nil && !needed(s.Run) {
			err = kv.Delete(ctx, keyRun(s.Run), jetstream.LastRevision(s.revision))
			if conflict(err) { // it has changed
				err = nil
			}
		}
	}
	if err != nil {
		return fmt.Errorf("forget old runs: %w", err)
	}
	return nil
}
