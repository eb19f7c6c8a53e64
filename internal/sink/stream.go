package sink

import (
	"fmt"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// Stream turns the record of a run into points, in the order in which the record came to be. It reads no clock and
// nothing but its arguments: the same record gives the same points, live or later. It belongs to one goroutine.
type Stream struct {
	run   plan.Run
	tasks map[string]*task
}

// NewStream returns the stream of a run.
func NewStream(run plan.Run) *Stream { return &Stream{run: run, tasks: map[string]*task{}} }

// Measurements.
const (
	measureWindow  = "lockstep_window"
	measureTotal   = "lockstep_total"
	measureOutcome = "lockstep_outcome"
	measureGroup   = "lockstep_group"
	measureAgent   = "lockstep_agent"
	measureBroker  = "lockstep_broker"
	measureEvent   = "lockstep_event"
)

// Start is a task that begins.
type Start struct {
	Task    plan.Task
	Attempt int       // from 1: which attempt of the task this is
	At      time.Time // the outcome's Started
	Agents  []string  // by index; none: not known, and roles are not either
}

// Begin returns the point of the run's beginning.
func (s *Stream) Begin() []Point {
	return []Point{{measureEvent, with(s.tags(), "kind", "run-start"), map[string]any{
		"text":  text(fmt.Sprintf("run %s begins: %d tasks", s.run.ID, len(s.run.Cells)*s.run.Repeat)),
		"tasks": int64(len(s.run.Cells) * s.run.Repeat)}, s.run.Started}}
}

// End returns the point of the run's end; reason is a word.
func (s *Stream) End(at time.Time, reason string) []Point {
	return []Point{{measureEvent, with(s.tags(), "kind", "run-stop"), map[string]any{
		"text": text(fmt.Sprintf("run %s ends: %s", s.run.ID, reason)), "reason": text(reason)}, at}}
}

func (s *Stream) tags() map[string]string {
	return with(nil, "run", s.run.ID, "matrix", s.run.Name)
}

// Start begins an attempt of a task; one in flight is given up.
func (s *Stream) Start(b Start) []Point {
	t := s.newTask(b)
	s.tasks[b.Task.ID] = t
	return []Point{t.event("task-start", "", b.At, 0, fmt.Sprintf("%s begins", t.words()))}
}

// Snapshot takes one increment of an agent's record, which stays the caller's. One of a task that was not started, or
// that came already, gives no points.
func (s *Stream) Snapshot(x record.Snapshot) []Point {
	t := s.tasks[x.Task]
	if t == nil {
		return nil
	}
	i := increment{x.Agent, x.Seq}
	if _, already := t.seen[i]; already {
		return nil
	}
	t.seen[i] = struct{}{}
	if t.origin.IsZero() {
		// of the first that knows it, for all: agents' calendars differ, and theirs is read anew each time
		t.origin = x.Epoch
	}
	if x.Begin > 0 {
		t.setBegin(time.Duration(x.Begin))
	}
	points := t.notes(x)
	// an observer, who has no part in the load
	if x.Host.Broker != "" && len(x.Windows) == 0 && t.parts[x.Agent] == nil {
		return points
	}
	part := t.parts[x.Agent]
	if part == nil {
		part = newSequence(t.fill, t.begin)
		t.parts[x.Agent] = part
	}
	for j := range x.Windows {
		part.add(&x.Windows[j], 0)
		t.total.add(&x.Windows[j], t.agent(x.Agent).subscriptions)
	}
	if t.origin.IsZero() {
		return points
	}
	at := max(t.at[x.Agent], time.Duration(x.At))
	t.at[x.Agent] = at
	points = append(points, t.windows(x.Agent, part.take(at-settle))...)
	part.forget(at)
	all := t.atAll()
	points = append(points, t.totals(t.total.take(all-settle))...)
	t.total.forget(all)
	return points
}

// Outcome ends a task. One that was not started in this stream, as it failed before it began or was taken from a
// record, is given with what its outcome tells of its start.
func (s *Stream) Outcome(o plan.Outcome, b Start) []Point {
	t := s.tasks[o.Task]
	delete(s.tasks, o.Task)
	var points []Point
	if t == nil {
		b.At = o.Started
		t = s.newTask(b)
		points = append(points, t.event("task-start", "", o.Started, 0, t.words()+" begins"))
	}
	points = append(points, t.rest()...)
	for _, e := range o.Events {
		e.At += o.Cut // they count from the measurement, and all else from T0
		switch {
		case e.Kind == coresEvent:
		case t.events[e] > 0:
			t.events[e]--
		default: // the controller's own
			points = append(points, t.event(e.Kind, e.Agent, t.time(int64(e.At)), 0, e.Detail))
		}
	}
	words := t.words() + ": " + string(o.Verdict)
	if len(o.Reasons) > 0 {
		words += ", " + strings.Join(o.Reasons, "; ")
	}
	points = append(points, t.groupOutcomes(o)...)
	return append(points, t.event("task-stop", "", o.Ended, 0, plan.Redact(words)), t.outcome(o))
}

// coresEvent is the kind of the events by which an outcome keeps how many cores hosts have.
const coresEvent = "host-cores"

// GiveUp ends an attempt that will have no outcome.
func (s *Stream) GiveUp(id string, at time.Time, why string) []Point {
	t := s.tasks[id]
	if t == nil {
		return nil
	}
	delete(s.tasks, id)
	return append(t.rest(), t.event("task-stop", "", at, 0, t.words()+" was given up: "+why))
}
