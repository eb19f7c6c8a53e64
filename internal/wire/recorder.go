package wire

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/plan"
)

// Recorder leads one run under one leadership: it writes the run's record. What a former leader still wants to write is refused
// by the server, with an error that wraps ErrFenced. Safe for concurrent use.
type Recorder struct {
	lease     *Lease
	run       string
	before    uint64
	events    *runStream
	snapshots *runStream
}

// TakeUp opens the record of a run to this leadership and closes it to all before. It makes the run's streams if they are
// not there.
func (l *Lease) TakeUp(ctx context.Context, run string) (*Recorder, error) {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	r := &Recorder{lease: l, run: run, events: l.conn.eventsOf(run), snapshots: l.conn.snapshotsOf(run)}
	for {
		err := r.open(ctx)
		if err == nil {
			return r, nil
		}
		forming := errors.Is(err, nats.ErrNoResponders) && wait(ctx, retryWait) == nil // a stream of a cluster, just made
		if !conflict(err) && !forming || ctx.Err() != nil {
			return nil, fmt.Errorf("take up run %s: %w", run, err)
		}
	}
}

// open makes the streams, and stores a fence in each after that of the leadership before. A run has a record as soon as it
// has a stream of events, so that this one is made last.
func (r *Recorder) open(ctx context.Context) error {
	snapshots, err := r.snapshots.prepare(ctx, r.lease.who.Epoch)
	if err != nil {
		return err
	}
	events, err := r.events.prepare(ctx, r.lease.who.Epoch)
	if err != nil {
		return err
	}
	if events.CachedInfo().State.Msgs == 0 && snapshots.CachedInfo().State.Msgs > 0 { // of a record that was just deleted
		if err := snapshots.Purge(ctx); err != nil {
			return err
		}
	}
	if r.before, err = r.fence(ctx, r.events, events); err == nil {
		_, err = r.fence(ctx, r.snapshots, snapshots)
	}
	return err
}

// fence stores the fence of this leadership in a stream, and returns the epoch of the one before.
func (r *Recorder) fence(ctx context.Context, s *runStream, made jetstream.Stream) (before uint64, err error) {
	last, err := lastOf(ctx, made, s.fenceSubject)
	if err != nil {
		return 0, err
	}
	if before = epochOf(last.Header); before > r.lease.who.Epoch {
		return before, ErrFenced
	}
	m, err := r.lease.conn.message(s.fenceSubject, nil)
	if err != nil {
		return before, err
	}
	stamp(m, r.lease.who.Epoch)
	s.fence, err = r.lease.conn.put(ctx, m, onceID(), jetstream.WithExpectLastSequencePerSubject(last.Seq))
	s.last.Store(s.fence)
	return before, err
}

// Former is the leadership that took the run up last, before now; 0: none had.
func (r *Recorder) Former() uint64 { return r.before }

// Review hands what the run's record held when it was taken up to handle, in order: plan, events and outcomes.
func (r *Recorder) Review(ctx context.Context, handle func(Entry)) error {
	ctx, cancel := r.lease.bound(ctx)
	defer cancel()
	c := r.lease.conn
	s, err := c.js.Stream(ctx, r.events.name)
	for m := (stored{}); err == nil; {
		if m, err = c.next(ctx, s, m.Seq); err == nil {
			if m.Seq == 0 || m.Seq >= r.events.fence {
				return nil
			}
			handle(c.entry(m))
		}
	}
	return fmt.Errorf("read the record of run %s: %w", r.run, err)
}

// store writes an event or an outcome behind the fence. It follows the snapshots that were stored by now.
func (r *Recorder) store(ctx context.Context, m *nats.Msg) error {
	return r.storeIn(ctx, r.events, r.snapshots, m)
}

func (r *Recorder) storeIn(ctx context.Context, s, other *runStream, m *nats.Msg) error {
	ctx, cancel := r.lease.bound(ctx)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	stamp(m, r.lease.who.Epoch)
	m.Header.Set(headerAfter, strconv.FormatUint(other.last.Load(), 10))
	seq, err := r.lease.conn.put(ctx, m, onceID(), jetstream.WithExpectLastSequenceForSubject(s.fence, s.fenceSubject))
	if err == nil {
		s.last.Store(seq)
	}
	switch {
	case fenced(err):
		return errors.Join(ErrFenced, err)
	case errors.Is(err, ErrFull):
		return fmt.Errorf("%w: the %s of a run may take %.1f MiB: start the controller with a larger --record-limit and continue the run "+
			"with ctl run --resume", ErrFull, s.holds, float64(s.config.MaxBytes)/(1<<20))
	}
	return err
}

// Plan stores a run's plan, without secrets, as the beginning of its record.
func (r *Recorder) Plan(ctx context.Context, run plan.Run) error {
	packed, err := pack(run.Redacted())
	var m *nats.Msg
	if err == nil {
		m, err = r.lease.conn.message(subjectPlan(r.run), packed)
	}
	if err == nil {
		err = r.store(ctx, m)
	}
	if err != nil {
		return fmt.Errorf("record plan of run %s: %w", r.run, err)
	}
	return nil
}

// Event stores an event of the run.
func (r *Recorder) Event(ctx context.Context, e RunEvent) error {
	m, err := r.lease.conn.encode(subjectEvent(r.run), e)
	if err == nil {
		err = r.store(ctx, m)
	}
	if errors.Is(err, ErrFull) && e.Kind == RunEnded {
		if _, err = r.events.prepare(ctx, r.lease.who.Epoch); err == nil { // with space for it
			err = r.store(ctx, m)
		}
	}
	if err != nil {
		return fmt.Errorf("record event of run %s: %w", r.run, err)
	}
	return nil
}

// Outcome stores what came of a task of the run.
func (r *Recorder) Outcome(ctx context.Context, o plan.Outcome) error {
	m, err := r.lease.conn.encode(subjectOutcome(r.run, o.Task), o)
	if err == nil {
		err = r.store(ctx, m)
	}
	if err != nil {
		return fmt.Errorf("record outcome of task %s: %w", o.Task, err)
	}
	return nil
}
