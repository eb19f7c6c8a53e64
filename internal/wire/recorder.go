package wire

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire/lease"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// Recorder writes the record of one run under one leadership. The server refuses writes of a former leader; their error
// wraps lease.ErrFenced. Safe for concurrent use.
type Recorder struct {
	leader    *Leader
	run       string
	previous  uint64
	events    *runStream
	snapshots *runStream
}

// open creates the streams and stores a fence in each, after the fence of the previous leadership. A run has a record
// as soon as it has a stream of events, so that stream is created last.
func (r *Recorder) open(ctx context.Context) error {
	snapshots, err := r.snapshots.prepare(ctx, r.leader.who.Epoch)
	if err != nil {
		return err
	}
	events, err := r.events.prepare(ctx, r.leader.who.Epoch)
	if err != nil {
		return err
	}
	// snapshots of a record that was just deleted
	if events.CachedInfo().State.Msgs == 0 && snapshots.CachedInfo().State.Msgs > 0 {
		if err := snapshots.Purge(ctx); err != nil {
			return err
		}
	}
	if r.previous, err = r.fence(ctx, r.events, events); err == nil {
		_, err = r.fence(ctx, r.snapshots, snapshots)
	}
	return err
}

// fence stores the fence of this leadership in a stream, and returns the epoch of the previous fence.
func (r *Recorder) fence(ctx context.Context, s *runStream, made jetstream.Stream) (before uint64, err error) {
	last, err := lastOf(ctx, made, s.fenceSubject)
	if err != nil {
		return 0, err
	}
	if before = lease.Epoch(last.Header); before > r.leader.who.Epoch {
		return before, lease.ErrFenced
	}
	m, err := r.leader.conn.codec.encode(s.fenceSubject, []byte(nil))
	if err != nil {
		return before, err
	}
	lease.Stamp(m.Header, r.leader.who.Epoch)
	s.fence, err = r.leader.store.put(ctx, m, onceID(), jetstream.WithExpectLastSequencePerSubject(last.Seq))
	s.last.Store(s.fence)
	return before, err
}

// PreviousEpoch returns the epoch of the previous leadership of the run; 0: none.
func (r *Recorder) PreviousEpoch() uint64 { return r.previous }

// Review passes the messages that the record had when it was acquired to handle in order: plan, events and outcomes.
func (r *Recorder) Review(ctx context.Context, handle func(Entry)) error {
	ctx, cancel := Either(ctx, r.leader.ctx)
	defer cancel()
	reader := recordReader{store: r.leader.store}
	s, err := reader.store.js.Stream(ctx, r.events.config.Name)
	for m := (stored{}); err == nil; {
		if m, err = reader.next(ctx, s, m.Seq); err == nil {
			if m.Seq == 0 || m.Seq >= r.events.fence {
				return nil
			}
			handle(entryOf(reader.connection(), m))
		}
	}
	return fmt.Errorf("read the record of run %s: %w", r.run, err)
}

// store writes v after the fence. Readers get it after the messages of the other stream that are stored now.
func (r *Recorder) store(ctx context.Context, s *runStream, to string, v any) error {
	m, err := r.leader.conn.codec.encode(to, v)
	if err != nil {
		return err
	}
	ctx, cancel := Either(ctx, r.leader.ctx)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	lease.Stamp(m.Header, r.leader.who.Epoch)
	m.Header.Set(headerAfter, strconv.FormatUint(s.other.last.Load(), 10))
	seq, err := r.leader.store.put(ctx, m, onceID(),
		jetstream.WithExpectLastSequenceForSubject(s.fence, s.fenceSubject))
	if err == nil {
		s.last.Store(seq)
	}
	switch {
	case lease.IsFenced(err):
		return errors.Join(lease.ErrFenced, err)
	case errors.Is(err, ErrFull):
		return fmt.Errorf("%w: the %s of a run may use %.1f MiB; start the controller with a larger --record-limit, and continue the run "+
			"with ctl run --resume", ErrFull, s.holds, float64(s.config.MaxBytes)/(1<<20))
	}
	return err
}

// Plan stores a run's plan without secrets, as the first message of its record.
func (r *Recorder) Plan(ctx context.Context, run plan.Run) error {
	packed, err := pack(run.Redacted())
	if err == nil {
		err = r.store(ctx, r.events, subject.Plan(r.run), packed)
	}
	return wrap(err, "record plan of run %s", r.run)
}

// Event stores an event of the run.
func (r *Recorder) Event(ctx context.Context, e RunEvent) error {
	err := r.store(ctx, r.events, subject.Event(r.run), e)
	if errors.Is(err, ErrFull) && e.Kind == RunEnded {
		if _, err = r.events.prepare(ctx, r.leader.who.Epoch); err == nil { // with space for the end
			err = r.store(ctx, r.events, subject.Event(r.run), e)
		}
	}
	return wrap(err, "record event of run %s", r.run)
}

// Outcome stores the outcome of a task.
func (r *Recorder) Outcome(ctx context.Context, o plan.Outcome) error {
	return wrap(r.store(ctx, r.events, subject.Outcome(r.run, o.Task), o), "record outcome of task %s", o.Task)
}

// Snapshots returns a store for the snapshots of an attempt. limit is the maximum number of bytes per agent. stored is
// called once for each stored snapshot, from one goroutine at a time, before Store returns. ctx bounds the writes.
func (r *Recorder) Snapshots(ctx context.Context, ref Ref, limit int, stored func(record.Snapshot)) *SnapshotStore {
	return &SnapshotStore{ctx: ctx, record: r, ref: ref, limit: limit, stored: stored,
		turn: make(chan struct{}, 1), agents: map[string]*agentSnapshots{}}
}

func (r *Recorder) storeSnapshots(ctx context.Context, ref Ref, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	switch err := r.store(ctx, r.snapshots, subject.AttemptSnapshots(ref.Run, ref.Task, ref.Attempt), body); {
	case errors.Is(err, ErrFull):
		return fmt.Errorf("store snapshots of task %s: %w", ref.Task, err)
	case err != nil:
		return fmt.Errorf("%w: snapshots of task %s: %v", ErrNotStored, ref.Task, err)
	}
	return nil
}
