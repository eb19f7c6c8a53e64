package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/plan"
)

// Recorder leads one run under one leadership: it writes the run's record. What a former leader still wants to write is refused
// by the server, with an error that wraps ErrFenced. Safe for concurrent use.
type Recorder struct {
	lease  *Lease
	run    string
	fence  uint64 // sequence number of the message that opened the run to this leadership
	before uint64
	turn   chan struct{} // one write at a time: a cluster refuses a second one while it decides on the first
}

// TakeUp opens the record of a run to this leadership and closes it to all before.
func (l *Lease) TakeUp(ctx context.Context, run string) (*Recorder, error) {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	r := &Recorder{lease: l, run: run, turn: make(chan struct{}, 1)}
	for {
		err := r.open(ctx)
		if err == nil {
			return r, nil
		}
		if !conflict(err) || ctx.Err() != nil {
			return nil, fmt.Errorf("take up run %s: %w", run, err)
		}
	}
}

// open stores the fence after that of the leadership before.
func (r *Recorder) open(ctx context.Context) error {
	c, subject := r.lease.conn, subjectEpoch(r.run)
	last, err := c.lastMessage(ctx, streamRecord, subject)
	if err != nil {
		return err
	}
	if r.before = epochOf(last.Header); r.before > r.lease.who.Epoch {
		return ErrFenced
	}
	m, err := c.message(subject, nil)
	if err != nil {
		return err
	}
	stamp(m, r.lease.who.Epoch)
	r.fence, err = c.putOr(ctx, m, onceID(), c.draw(m), jetstream.WithExpectLastSequencePerSubject(last.Seq))
	return err
}

// Former is the leadership that took the run up last, before now; 0: none had.
func (r *Recorder) Former() uint64 { return r.before }

// Review hands what the run's record held when it was taken up to handle, in order: plan, events and outcomes.
func (r *Recorder) Review(ctx context.Context, handle func(Entry)) error {
	ctx, cancel := r.lease.bound(ctx)
	defer cancel()
	c := r.lease.conn
	filters := []string{subjectPlan(r.run), subjectEvent(r.run), subjectEpoch(r.run), subjectsOf(r.run, "outcome")}
	err := c.follow(ctx, streamRecord, filters, func(m jetstream.Msg, seq uint64) bool {
		if e := c.entry(messageOf(m, seq)); seq < r.fence {
			handle(e)
		}
		return seq < r.fence
	})
	if err != nil {
		return fmt.Errorf("read the record of run %s: %w", r.run, err)
	}
	return nil
}

// store writes to the record, behind the fence, and draws on the record's reserve.
func (r *Recorder) store(ctx context.Context, m *nats.Msg) error {
	return r.storeOr(ctx, m, r.lease.conn.draw(m))
}

// storeOr is store with more for a record that is full: see putOr.
func (r *Recorder) storeOr(ctx context.Context, m *nats.Msg, more func(context.Context) error) error {
	ctx, cancel := r.lease.bound(ctx)
	defer cancel()
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	stamp(m, r.lease.who.Epoch)
	_, err := r.lease.conn.putOr(ctx, m, onceID(), more, jetstream.WithExpectLastSequenceForSubject(r.fence, subjectEpoch(r.run)))
	if fenced(err) {
		err = errors.Join(ErrFenced, err)
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
