package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/plan"
)

// Recorder leads one run under one leadership: it writes the run's record and sends its agents on. What a former leader still wants to write is refused
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
	if _, err := c.clean(ctx, streamRecord, subject); err != nil {
		return err
	}
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

// Since is the sequence number in the record at which this leadership begins.
func (r *Recorder) Since() uint64 { return r.fence }

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

// Released lists the releases of a try that were made. The error of what cannot be read wraps ErrUnreadable.
func (c *Conn) Released(ctx context.Context, ref Ref) ([]Release, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	last, err := c.last(ctx, streamReleases, subjectRelease(ref))
	var made []Release
	var at []time.Time
	if err == nil && last > 0 {
		var unread error
		err = c.follow(ctx, streamReleases, []string{subjectRelease(ref)}, func(m jetstream.Msg, seq uint64) bool {
			if seq > last || c.genuine(m.Headers(), m.Subject()) != nil {
				return seq < last
			}
			var one Release
			meta, none := m.Metadata()
			if unread = errors.Join(none, c.decode(m.Headers(), m.Data(), "the controller", &one)); unread == nil {
				made, at = append(made, one), append(at, meta.Timestamp)
			}
			return unread == nil && seq < last
		})
		if unread != nil {
			err = fmt.Errorf("%w: %w", ErrUnreadable, unread)
		}
	}
	if err == nil && len(made) > 0 {
		err = c.age(ctx, made, at)
	}
	if err != nil {
		return nil, fmt.Errorf("read the releases of task %s: %w", ref.Task, err)
	}
	return made, nil
}

// age says how long ago releases were stored: by the server that tells the time now, and stored them (or by another of its cluster).
func (c *Conn) age(ctx context.Context, made []Release, at []time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	asked := time.Now()
	s, err := c.js.Stream(ctx, streamReleases)
	if err != nil {
		return err
	}
	late := time.Since(asked)
	for i := range made {
		if now := s.CachedInfo().TimeStamp; !now.IsZero() {
			made[i].Age = max(1, now.Sub(at[i])+late/2)
		}
	}
	return nil
}

// store writes to the record, behind the fence.
func (r *Recorder) store(ctx context.Context, m *nats.Msg) error {
	ctx, cancel := r.lease.bound(ctx)
	defer cancel()
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	stamp(m, r.lease.who.Epoch)
	expected := jetstream.WithExpectLastSequenceForSubject(r.fence, subjectEpoch(r.run))
	c := r.lease.conn
	_, err := c.putOr(ctx, m, onceID(), c.draw(m), expected)
	if fenced(err) {
		if cleaned, _ := c.clean(ctx, streamRecord, subjectEpoch(r.run)); cleaned { // else it stays refused
			_, err = c.putOr(ctx, m, onceID(), c.draw(m), expected)
		}
	}
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

// Assign stores an assignment for one agent process.
func (r *Recorder) Assign(ctx context.Context, instance string, a Assignment) error {
	m, err := r.lease.conn.encode(subjectAssign(a.Agent, instance, a.Ref()), a)
	if err == nil {
		m.Header.Set(headerRef, a.Ref().tokens())
		err = r.lease.send(ctx, m)
	}
	if err != nil {
		return fmt.Errorf("assign %s to %s: %w", a.Task.ID, a.Agent, err)
	}
	return nil
}

// Release sends the agents of a task on.
func (r *Recorder) Release(ctx context.Context, ref Ref, to Release) error {
	return r.lease.Release(ctx, ref, to)
}

// Release sends the agents of a try on, of whatever run.
func (l *Lease) Release(ctx context.Context, ref Ref, to Release) error {
	m, err := l.conn.encode(subjectRelease(ref), to)
	if err == nil {
		err = l.send(ctx, m)
	}
	if err != nil {
		return fmt.Errorf("release %s to %s: %w", ref.Task, to.Step, err)
	}
	return nil
}

// send stores a message for agents: these refuse what a former leader sends.
func (l *Lease) send(ctx context.Context, m *nats.Msg) error {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	stamp(m, l.who.Epoch)
	return l.conn.store(ctx, m, onceID())
}

// Clear deletes what was sent to the agents of a try: assignments, with the secrets they may hold, and releases.
func (l *Lease) Clear(ctx context.Context, ref Ref) error {
	if err := l.purge(ctx, streamTasks, 0, subjectAssignedTo(ref)); err != nil {
		return err
	}
	return l.purge(ctx, streamReleases, 0, subjectRelease(ref))
}

// Unassign deletes the assignments of a try, with the secrets they may hold.
func (r *Recorder) Unassign(ctx context.Context, ref Ref) error {
	return r.lease.purge(ctx, streamTasks, 0, subjectAssignedTo(ref))
}

// Unrelease deletes the releases of a try that every agent has left.
func (r *Recorder) Unrelease(ctx context.Context, ref Ref) error {
	return r.lease.purge(ctx, streamReleases, 0, subjectRelease(ref))
}
