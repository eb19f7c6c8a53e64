package sink

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// Stream turns the record of a run into points, in the order in which the record came to be. It reads no clock and nothing but its
// arguments: the same record gives the same points, live or later. It belongs to one goroutine.
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
	Task   plan.Task
	Try    int       // from 1: which try of the task this is
	At     time.Time // the outcome's Started
	Agents []string  // by index; none: not known, and roles are not either
}

// task is one try of a task in flight.
type task struct {
	plan.Task
	tags    map[string]string
	measure time.Duration
	begin   time.Duration // of the measurement, since T0; below 0: to be found out while the load runs (warmup "auto")
	confirm bool
	roles   map[string]role
	groups  map[string]plan.Task // of the agents, where the cell has groups
	started time.Time
	origin  time.Time // T0; zero: not known yet
	seen    map[increment]struct{}
	at      map[string]time.Duration // since T0, of each agent's last snapshot
	parts   map[string]*sequence     // by agent
	total   *sequence
	events  map[plan.Event]int // of agents, that were written
	taken   map[eventPlace]struct{}
}

type increment struct {
	agent string
	seq   uint64
}

// Begin returns the point of the run's beginning.
func (s *Stream) Begin() []Point {
	return []Point{{measureEvent, with(s.tags(), "kind", "run-start"), map[string]any{
		"text": text(fmt.Sprintf("run %s begins: %d tasks", s.run.ID, len(s.run.Cells)*s.run.Repeat)), "tasks": int64(len(s.run.Cells) * s.run.Repeat)}, s.run.Started}}
}

// End returns the point of the run's end; reason is a word.
func (s *Stream) End(at time.Time, reason string) []Point {
	return []Point{{measureEvent, with(s.tags(), "kind", "run-stop"), map[string]any{
		"text": text(fmt.Sprintf("run %s ends: %s", s.run.ID, reason)), "reason": text(reason)}, at}}
}

func (s *Stream) tags() map[string]string {
	return with(nil, "run", s.run.ID, "matrix", s.run.Name)
}

// Start begins a try of a task; one in flight is given up.
func (s *Stream) Start(b Start) []Point {
	t := s.newTask(b)
	s.tasks[b.Task.ID] = t
	return []Point{t.event("task-start", "", b.At, 0, fmt.Sprintf("%s begins", t.words()))}
}

func (s *Stream) newTask(b Start) *task {
	w := b.Task.Cell.Workload
	t := &task{Task: b.Task, measure: w.Measure.D(), confirm: confirmed(w), started: b.At,
		roles: roles(b), groups: groups(b), seen: map[increment]struct{}{}, at: map[string]time.Duration{}, parts: map[string]*sequence{},
		events: map[plan.Event]int{}, taken: map[eventPlace]struct{}{}}
	if w.Steady.Auto {
		t.begin = -1
	}
	t.total = newSequence(t.filling(), t.begin)
	c := b.Task.Cell
	t.tags = with(s.tags(), "cell", c.ID, "repetition", strconv.Itoa(b.Task.Repetition), "try", strconv.Itoa(max(b.Try, 1)),
		"broker", c.Broker.Name, "driver", c.Broker.Driver, "mode", modeOf(w))
	if w.Contends() {
		t.tags = with(t.tags, "broker", several, "driver", several)
	}
	for _, x := range c.Coordinates {
		if x.Axis != "broker" && x.Axis != "mode" {
			maps.Copy(t.tags, with(nil, "axis_"+axisName(x.Axis), plan.Redact(x.Text())))
		}
	}
	return t
}

// axisName makes the name of an axis fit for the name of a tag.
func axisName(name string) string {
	clean := []byte(name)
	for i, c := range clean {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.') {
			clean[i] = '_'
		}
	}
	return string(clean)
}

// filling is the measurement whose empty seconds are known to be empty.
func (t *task) filling() time.Duration {
	for _, w := range t.Cell.Workload.Parts() {
		if w.Publishers.Count > 0 {
			return 0
		}
	}
	return t.measure
}

func (t *task) words() string { return fmt.Sprintf("%s repetition %d", t.Cell.Name(), t.Repetition) }

// roles are what the agents of a task do.
func roles(b Start) map[string]role {
	all := map[string]role{}
	if len(b.Agents) < b.Task.Cell.Agents() {
		return all
	}
	for _, a := range plan.Assign(b.Task, b.Agents) {
		if a.Publishers.Count > 0 {
			all[a.Agent] |= publishes
		}
		if a.Consumers.Count > 0 {
			all[a.Agent] |= consumes
		}
	}
	return all
}

func (t *task) role(agent string) role {
	if r, known := t.roles[agent]; known {
		return r
	}
	return either
}

// subscriptions is by how many consumers each message of an agent is to be received.
func (t *task) subscriptions(agent string) int {
	w := t.Cell.Workload
	if part, in := t.groups[agent]; in {
		w = part.Cell.Workload
	}
	if w.Consumers.Nodes == 0 {
		return 0
	}
	return max(1, w.Topology.Subscriptions)
}

// roleOfAll is that of the agents together.
func (t *task) roleOfAll() role {
	for _, w := range t.Cell.Workload.Parts() {
		if w.Consumers.Nodes > 0 {
			return either
		}
	}
	return publishes
}

// Snapshot takes one increment of an agent's record, which stays the caller's. One of a task that was not started, or that came already, gives
// no points.
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
		t.origin = x.Epoch // of the first that knows it, for all: agents' calendars differ, and theirs is read anew each time
	}
	if x.Begin > 0 {
		t.begins(time.Duration(x.Begin))
	}
	points := t.notes(x)
	if x.Host.Broker != "" && len(x.Windows) == 0 && t.parts[x.Agent] == nil { // an observer, who has no part in the load
		return points
	}
	part := t.parts[x.Agent]
	if part == nil {
		part = newSequence(t.filling(), t.begin)
		t.parts[x.Agent] = part
	}
	for j := range x.Windows {
		part.add(&x.Windows[j], 0)
		t.total.add(&x.Windows[j], t.subscriptions(x.Agent))
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

// begins notes when the measurement begins. What was written before is warm-up: that is told while it lies ahead.
func (t *task) begins(at time.Duration) {
	t.begin, t.total.begin = at, at
	for _, part := range t.parts {
		part.begin = at
	}
}

// atAll is the time up to which everybody has reported, except who has been silent for long.
func (t *task) atAll() time.Duration {
	const never = time.Duration(-1 << 62)
	least, most := time.Duration(1<<62), never
	for _, at := range t.at {
		least, most = min(least, at), max(most, at)
	}
	if len(t.at) < len(t.roles) { // some have not said anything yet
		least = never
	}
	return max(least, most-lost)
}

// rest writes all that is left of a task.
func (t *task) rest() []Point {
	if t.origin.IsZero() {
		return nil
	}
	var points []Point
	last := time.Duration(-1 << 62)
	for _, agent := range sorted(t.parts) {
		points = append(points, t.windows(agent, t.parts[agent].rest(t.at[agent]))...)
		last = max(last, t.at[agent])
	}
	return append(points, t.totals(t.total.rest(last))...)
}

func (t *task) windows(agent string, due []*window) []Point {
	return t.seconds(measureWindow, t.tagsOf(agent), t.role(agent), t.confirms(agent), due)
}

func (t *task) totals(due []*window) []Point {
	points := t.seconds(measureTotal, t.tags, t.roleOfAll(), t.confirm, due)
	if t.roleOfAll()&consumes == 0 {
		return points
	}
	for i, w := range due {
		points[i].Fields[expectedKey] = w.expected
	}
	return points
}

func (t *task) seconds(measurement string, tags map[string]string, r role, confirm bool, due []*window) []Point {
	points := make([]Point, 0, len(due))
	for _, w := range due {
		points = append(points, Point{measurement, with(tags, "phase", string(phase(w, t.begin, t.measure)), "measured", strconv.FormatBool(w.Measured)),
			fieldsOf(w, r, confirm), t.time(w.Start)})
	}
	return points
}

// time is that of a moment since T0.
func (t *task) time(at int64) time.Time {
	if t.origin.IsZero() {
		return t.started.Add(time.Duration(at))
	}
	return t.origin.Add(time.Duration(at))
}

// GiveUp ends a try that will have no outcome.
func (s *Stream) GiveUp(id string, at time.Time, why string) []Point {
	t := s.tasks[id]
	if t == nil {
		return nil
	}
	delete(s.tasks, id)
	return append(t.rest(), t.event("task-stop", "", at, 0, t.words()+" was given up: "+why))
}
