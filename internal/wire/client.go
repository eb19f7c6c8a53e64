package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// Deadlines of what a client asks for; a submission waits for a controller that is just starting.
const (
	requestTimeout = 2 * time.Second
	submitTimeout  = 10 * time.Second
)

// Submit stores a run in the queue of the controller, which executes queued runs in turn.
func (c *Conn) Submit(ctx context.Context, s Submission) error {
	if s.Run.ID == "" {
		return errors.New("submit run: it has no id")
	}
	m, err := c.pack(subjectSubmit(s.Run.ID), s)
	if err != nil {
		return fmt.Errorf("submit run %s: %w", s.Run.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	if err := c.store(ctx, m, onceID()); err != nil {
		return fmt.Errorf("submit run %s (is a controller there?): %w", s.Run.ID, err)
	}
	return nil
}

// Cancel asks the controller to stop a run: the task in flight is closed, torn down and left without an outcome. It returns when the
// request is stored; the run's record tells when it has ended, and by whom: a name of the form user@host. A run that waits in the queue is removed from it.
func (c *Conn) Cancel(ctx context.Context, run, by string) error {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	text, err := json.Marshal(cancellation{By: by})
	var m *nats.Msg
	if err == nil {
		m, err = c.message(subjectCancel(run), text)
	}
	if err == nil {
		err = c.store(ctx, m, onceID())
	}
	if err != nil {
		return fmt.Errorf("cancel run %s: %w", run, err)
	}
	return nil
}

// Agents lists the agents that live, sorted by name, as the controller sees them, and after them those that it has refused in the last half minute.
func (c *Conn) Agents(ctx context.Context) ([]AgentInfo, error) {
	ask, err := c.message(subjectAgents, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := c.ask(ctx, ask)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("list agents: %w", ErrNoController)
	}
	if err != nil {
		return nil, fmt.Errorf("list agents: ask the controller: %w", err)
	}
	var agents []AgentInfo
	if err := c.decode(m.Header, m.Data, "the controller", &agents); err != nil {
		return nil, fmt.Errorf("list agents: %w", err)
	}
	return agents, nil
}

// Follow hands the record of a run to handle, from its beginning, in order: plan, events, snapshots, outcomes (arrivals left out). It
// returns the run's end when that was handled, or the error of handle or of ctx; one that wraps ErrNoRecord when the record is deleted before. One goroutine calls handle.
func (c *Conn) Follow(ctx context.Context, run string, handle func(Entry) error) (End, error) {
	last, err := c.endOf(ctx, run)
	if err != nil {
		return End{}, fmt.Errorf("follow run %s: %w", run, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go c.lookFor(ctx, run, cancel)
	var end *End
	var failed error
	err = c.follow(ctx, streamRecord, recordOf(run), func(m jetstream.Msg, seq uint64) bool {
		e := c.entry(m, seq)
		if failed = handle(e); failed != nil {
			return false
		}
		if e.Event != nil && e.Event.Kind == RunEnded && e.Event.End != nil && last(e.Event.End, seq) {
			end = e.Event.End
		}
		return end == nil
	})
	if cause := context.Cause(ctx); errors.Is(cause, ErrNoRecord) && end == nil {
		err = cause
	}
	if err = errors.Join(failed, err); err != nil {
		return End{}, fmt.Errorf("follow run %s: %w", run, err)
	}
	return *end, nil
}

// lookEvery is how often a follower looks whether its run is still there.
const lookEvery = 5 * time.Second

// lookFor ends a follower's wait, with a cause, when the record of its run is gone and nothing of it is in the queue: twice, for it begins
// and ends in between. A control plane that does not answer says nothing.
func (c *Conn) lookFor(ctx context.Context, run string, gone context.CancelCauseFunc) {
	for missed := 0; missed < 2; {
		if wait(ctx, c.times.look*lookEvery/usualTimes.look) != nil {
			return
		}
		pending, err := c.pending(ctx, run)
		event, err2 := c.top(ctx, streamRecord, subjectEvent(run))
		if err != nil || err2 != nil || pending > 0 || event.seq > 0 {
			missed = 0
			continue
		}
		missed++
	}
	gone(fmt.Errorf("%w any more: it was deleted for room before its end was read; a controller with --dir has a copy, below runs", ErrNoRecord))
}

// endOf tells which end of a run is its last: that of the submission in the queue, else the last one recorded.
func (c *Conn) endOf(ctx context.Context, run string) (func(*End, uint64) bool, error) {
	pending, err := c.pending(ctx, run)
	if err != nil {
		return nil, err
	}
	if pending > 0 {
		return func(e *End, _ uint64) bool { return e.Submission >= pending }, nil
	}
	event, err := c.last(ctx, streamRecord, subjectEvent(run))
	if err != nil {
		return nil, err
	}
	if event == 0 {
		return nil, errors.New("the control plane knows no such run: it was never submitted, or its record is too old")
	}
	return func(_ *End, seq uint64) bool { return seq >= event }, nil
}

// pending numbers the submission of a run that is in the queue, or 0. Who may not read the queue, which holds options as they were written, learns it of the
// run's state: what was submitted in this very moment is not known to him yet.
func (c *Conn) pending(ctx context.Context, run string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	subject := subjectSubmit(run)
	s, err := c.stream(ctx, streamQueue)
	if err != nil {
		return 0, fmt.Errorf("look at %s (is a controller there?): %w", streamQueue, err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w", streamQueue, err)
	}
	if info.State.Subjects[subject] == 0 {
		return 0, nil
	}
	last, err := c.last(ctx, streamQueue, subject)
	if err == nil || !c.refused.has(api+"DIRECT.GET."+streamQueue+"."+subject) {
		return last, err
	}
	state, err := c.RunState(ctx, run)
	if err != nil || state.Over() {
		return 0, err
	}
	return state.Seq, nil
}

// last is the sequence number of a subject's last message, or 0.
func (c *Conn) last(ctx context.Context, stream, subject string) (uint64, error) {
	m, err := c.lastMessage(ctx, stream, subject)
	return m.seq, err
}

// entry reads one message of the record stream.
func (c *Conn) entry(m jetstream.Msg, seq uint64) Entry {
	e := Entry{Seq: seq}
	if e.Err = c.genuine(m.Headers(), m.Subject()); e.Err != nil {
		return e
	}
	words := strings.Split(strings.TrimPrefix(m.Subject(), root+"record."), ".")
	for i, to := range []*string{&e.Ref.Run, nil, &e.Ref.Task, &e.Ref.Try, &e.Agent} {
		if to == nil || i >= len(words) {
			continue
		}
		if *to, e.Err = untoken(words[i]); e.Err != nil {
			return e
		}
	}
	if len(words) < 2 {
		e.Err = fmt.Errorf("read subject %q: not one of ours", m.Subject())
		return e
	}
	e.Err = Guard(c.log, m.Subject(), func() error { return c.body(&e, words[1], m) })
	return e
}

func (c *Conn) body(e *Entry, kind string, m jetstream.Msg) error {
	who := "the controller"
	if e.Agent != "" {
		who = "agent " + e.Agent
	}
	var err error
	switch kind {
	case "plan":
		var v plan.Run
		if err = c.unpack(m.Headers(), m.Data(), who, &v); err == nil {
			err = v.CheckTasks()
		}
		if err == nil {
			e.Plan = &v
		}
	case "epoch":
		if err = c.check(m.Headers(), who); err == nil {
			e.Epoch = epochOf(m.Headers())
		}
	case "event":
		if err = decodeInto(c, m, who, &e.Event); err == nil {
			err = checkNames(e.Event.Task, e.Event.Try)
		}
	case "outcome":
		if err = decodeInto(c, m, who, &e.Outcome); err == nil && (e.Outcome.Run != e.Ref.Run || e.Outcome.Task != e.Ref.Task) {
			e.Outcome, err = nil, fmt.Errorf("read message of %s: it is of another task", who)
		}
	case "arrive":
		if err = decodeInto(c, m, who, &e.Arrival); err == nil && (e.Arrival.Ref != e.Ref || e.Arrival.Agent != e.Agent) {
			e.Arrival, err = nil, fmt.Errorf("read message of %s: it speaks for another", who)
		}
	case "snapshot":
		var s *record.Snapshot
		if err = decodeInto(c, m, who, &s); err != nil {
			break
		}
		if s.Agent != e.Agent || s.Task != e.Ref.Task {
			return fmt.Errorf("read message of %s: it speaks for another", who)
		}
		e.Snapshot = s
	default:
		err = fmt.Errorf("read subject %q: not one of ours", m.Subject())
	}
	return err
}

// decodeInto sets *to only if the message is whole.
func decodeInto[T any](c *Conn, m jetstream.Msg, who string, to **T) error {
	v := new(T)
	if err := c.decode(m.Headers(), m.Data(), who, v); err != nil {
		return err
	}
	if string(m.Data()) == "null" {
		return fmt.Errorf("read message of %s: it is empty", who)
	}
	*to = v
	return nil
}

// Stored counts the messages that the control plane keeps, by subject.
func (c *Conn) Stored(ctx context.Context) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	all := map[string]uint64{}
	for _, stream := range []string{streamQueue, streamTasks, streamReleases, streamRecord} {
		s, err := c.js.Stream(ctx, stream)
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", stream, err)
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", stream, err)
		}
		for subject, n := range info.State.Subjects {
			all[subject] += n
		}
	}
	return all, nil
}
