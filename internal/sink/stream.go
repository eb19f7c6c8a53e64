package sink

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// Stream converts the record of a run to points, in the order of the record. It depends only on its arguments, and
// reads no clock. So the same record gives the same points, live or later. One goroutine uses it.
type stream struct {
	run   plan.Run
	tasks map[string]*task
}

// newStream returns the stream of a run.
func newStream(run plan.Run) *stream { return &stream{run: run, tasks: map[string]*task{}} }

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

// Start describes the start of an attempt of a task.
type Start struct {
	Task    plan.Task
	Attempt int       // number of the attempt, from 1
	At      time.Time // start time, which is Started of the outcome
	Agents  []string  // by index; empty: agents and their roles are not known
}

// begin returns the point of the run's start.
func (s *stream) begin() []Point {
	tasks, bound := len(s.run.Cells)*s.run.Repeat, ""
	if s.run.Until != nil {
		bound = "at most "
	}
	return []Point{{measureEvent, with(s.tags(), "kind", "run-start"), map[string]any{
		"text":  text(fmt.Sprintf("run %s started: %s%d tasks", s.run.ID, bound, tasks)),
		"tasks": int64(tasks)}, s.run.Started}}
}

// end returns the point of the run's end. reason is a word.
func (s *stream) end(at time.Time, reason string) []Point {
	return []Point{{measureEvent, with(s.tags(), "kind", "run-stop"), map[string]any{
		"text": text(fmt.Sprintf("run %s ended: %s", s.run.ID, reason)), "reason": text(reason)}, at}}
}

func (s *stream) tags() map[string]string {
	return with(nil, "run", s.run.ID, "matrix", s.run.Name)
}

// start starts an attempt of a task, or a step of a search. It returns the last seconds of the one before.
func (s *stream) start(b Start) []Point {
	var points []Point
	if before := s.tasks[b.Task.ID]; before != nil {
		points = before.rest()
	}
	t := s.newTask(b)
	s.tasks[b.Task.ID] = t
	return append(points, t.event("task-start", "", b.At, 0, fmt.Sprintf("%s started", t.description())))
}

// snapshot returns the points of one snapshot, which is not changed. A snapshot of a task that was not started, or one
// that came before, has no points.
func (s *stream) snapshot(x record.Snapshot) []Point {
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
		// the first known T0 is used for all agents, as their wall clocks differ and each snapshot reads its own again
		t.origin = x.Epoch
	}
	if x.Begin > 0 {
		begin := time.Duration(x.Begin) // windows that were written before are warm-up
		t.begin, t.total.begin = begin, begin
		for _, part := range t.parts {
			part.begin = begin
		}
	}
	points := t.notes(x)
	// an observer has no part in the load
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
	points = append(points, t.windows(x.Agent, part.take(at-settle, at-settle))...)
	part.forget(at)
	all := t.atAll()
	points = append(points, t.totals(t.total.take(all-settle, all-settle))...)
	t.total.forget(all)
	return points
}

// outcome ends a task and returns its points. b describes the start of a task that was not started in this stream. That
// is a task that failed before it began, or whose outcome is from another record.
func (s *stream) outcome(o plan.Outcome, b Start) []Point {
	t := s.tasks[o.Task]
	delete(s.tasks, o.Task)
	var points []Point
	if t == nil {
		b.At = o.Started
		t = s.newTask(b)
		points = append(points, t.event("task-start", "", o.Started, 0, t.description()+" started"))
	}
	points = append(points, t.rest()...)
	for _, e := range o.Events {
		e.At += o.Cut // times of an outcome are since the start of the measurement, all others since T0
		switch {
		case e.Kind == plan.EventCores:
		case t.events[e] > 0:
			t.events[e]--
		default: // an event of the controller
			points = append(points, t.event(e.Kind, e.Agent, t.time(int64(e.At)), 0, e.Detail))
		}
	}
	words := t.description() + ": " + string(o.Verdict)
	if len(o.Reasons) > 0 {
		words += ", " + strings.Join(o.Reasons, "; ")
	}
	points = append(points, t.groupOutcomes(o)...)
	return append(points, t.event("task-stop", "", o.Ended, 0, plan.Redact(words)), t.outcome(o))
}

// giveUp ends an attempt that has no outcome, and returns its points.
func (s *stream) giveUp(id string, at time.Time, why string) []Point {
	t := s.tasks[id]
	if t == nil {
		return nil
	}
	delete(s.tasks, id)
	return append(t.rest(), t.event("task-stop", "", at, 0, t.description()+" was aborted: "+why))
}

func (s *stream) newTask(b Start) *task {
	c := b.Task.Cell
	w := c.Workload
	t := &task{task: b.Task, measure: w.Measure.D(), fill: w.Measure.D(), started: b.At, agents: map[string]agent{},
		seen: map[increment]struct{}{}, at: map[string]time.Duration{}, parts: map[string]*sequence{},
		events: map[plan.Event]int{}, taken: map[eventPlace]time.Time{}}
	if w.Steady.Auto {
		t.begin = -1
	}
	mode := w.Parts()[0].Publishers.Mode
	for _, part := range w.Parts() {
		if part.Publishers.Count > 0 || part.Publishers.Nodes == 0 {
			t.fill = 0
		}
		if part.Publishers.Mode != mode {
			mode = several
		}
		if part.Publishers.Nodes > 0 {
			t.all.role |= publishes
		}
		if part.Consumers.Nodes > 0 {
			t.all.role |= consumes
		}
		t.all.confirm = t.all.confirm || drivers.Mode(part.Publishers.Mode).Confirmed()
	}
	t.total = newSequence(t.fill, t.begin)
	broker, driver := c.Broker.Name, c.Broker.Driver
	if w.SideBySide() {
		broker, driver = several, several
	}
	t.tags = with(s.tags(), "cell", c.ID, "repetition", strconv.Itoa(b.Task.Repetition), "attempt",
		strconv.Itoa(max(b.Attempt, 1)),
		"broker", broker, "driver", driver, "mode", mode)
	for _, x := range c.Coordinates {
		if x.Axis != "broker" && x.Axis != "mode" {
			maps.Copy(t.tags, with(nil, "axis_"+axisName(x.Axis), plan.Redact(x.Text())))
		}
	}
	t.all.tags = t.tags
	if len(b.Agents) >= c.Agents() {
		t.addAgents(plan.Assign(b.Task, b.Agents))
	}
	return t
}

// axisName makes the name of an axis valid for a tag key.
func axisName(name string) string {
	clean := []byte(name)
	for i, c := range clean {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.') {
			clean[i] = '_'
		}
	}
	return string(clean)
}

// several is the mode of a cell whose groups have different modes, and the broker of side-by-side brokers.
const several = "several"
