package sink

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// task is one attempt of a task in flight.
type task struct {
	plan.Task
	tags    map[string]string
	measure time.Duration
	fill    time.Duration // the measurement whose empty seconds are known to be empty
	begin   time.Duration // of the measurement, since T0; below 0: to be found out while the load runs (warmup "auto")
	all     agent         // the agents together
	agents  map[string]agent
	members int // agents that are known to take part
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

// agent is what is known of an agent of a task.
type agent struct {
	role          role
	tags          map[string]string // of its group, where it belongs to one
	confirm       bool              // what it sends is confirmed
	subscriptions int               // by so many consumers each of its messages is to be received
}

func (s *Stream) newTask(b Start) *task {
	c := b.Task.Cell
	w := c.Workload
	t := &task{Task: b.Task, measure: w.Measure.D(), fill: w.Measure.D(), started: b.At, agents: map[string]agent{},
		seen: map[increment]struct{}{}, at: map[string]time.Duration{}, parts: map[string]*sequence{},
		events: map[plan.Event]int{}, taken: map[eventPlace]struct{}{}}
	if w.Steady.Auto {
		t.begin = -1
	}
	mode := w.Parts()[0].Publishers.Mode
	t.all.role = publishes
	for _, part := range w.Parts() {
		if part.Publishers.Count > 0 {
			t.fill = 0
		}
		if part.Publishers.Mode != mode {
			mode = several
		}
		if part.Consumers.Nodes > 0 {
			t.all.role = either
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

func (t *task) addAgents(all []plan.Assignment) {
	roles := map[string]role{}
	for _, a := range all {
		if a.Publishers.Count > 0 {
			roles[a.Agent] |= publishes
		}
		if a.Consumers.Count > 0 {
			roles[a.Agent] |= consumes
		}
	}
	t.members = len(roles)
	for _, a := range all {
		t.agents[a.Agent] = t.newAgent(a.Agent, cmp.Or(roles[a.Agent], either), a.Task)
	}
}

// newAgent returns an agent; part is what it takes part in: a group of the task, or all of it.
func (t *task) newAgent(name string, r role, part plan.Task) agent {
	w, broker := part.Cell.Workload, part.Cell.Broker
	a := agent{role: r, tags: with(t.tags, "agent", name, "role", r.String()), confirm: t.all.confirm}
	if part.Group != "" {
		a.tags = with(a.tags, "group", part.Group, "mode", w.Publishers.Mode, "broker", broker.Name, "driver",
			broker.Driver)
		a.confirm = drivers.Mode(w.Publishers.Mode).Confirmed()
	}
	if w.Consumers.Nodes > 0 {
		a.subscriptions = max(1, w.Topology.Subscriptions)
	}
	return a
}

// agent returns an agent of the task; one of which nothing is known may do anything.
func (t *task) agent(name string) agent {
	a, known := t.agents[name]
	if !known {
		a = t.newAgent(name, either, t.Task)
		t.agents[name] = a
	}
	return a
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

func (t *task) words() string { return fmt.Sprintf("%s repetition %d", t.Cell.Name(), t.Repetition) }

// several stands for the mode of a cell whose groups publish in different ones, and for the broker of side-by-side
// brokers.
const several = "several"

// tagsOfObserver are those of an agent that measures a broker's processes and takes no load.
func (t *task) tagsOfObserver(agent, broker string) map[string]string {
	for _, b := range t.Cell.Brokers() {
		if b.Name == broker {
			return with(t.tags, "agent", agent, "role", "observer", "broker", b.Name, "driver", b.Driver)
		}
	}
	return with(t.tags, "agent", agent, "role", "observer")
}

// ofGroup are the tags of what is of a group: a side-by-side broker has a broker of its own.
func (t *task) ofGroup(group string) map[string]string {
	for _, part := range t.Parts() {
		if group != "" && part.Group == group {
			return with(t.tags, "broker", part.Cell.Broker.Name, "driver", part.Cell.Broker.Driver)
		}
	}
	return t.tags
}

// setBegin sets when the measurement begins. What was written before is warm-up: this is known while it lies ahead.
func (t *task) setBegin(at time.Duration) {
	t.begin, t.total.begin = at, at
	for _, part := range t.parts {
		part.begin = at
	}
}

// atAll is the time up to which everybody has reported, except who has been silent for long.
func (t *task) atAll() time.Duration {
	const never = time.Duration(-1 << 62)
	first, last := time.Duration(1<<62), never
	for _, at := range t.at {
		first, last = min(first, at), max(last, at)
	}
	if len(t.at) < t.members { // some have not reported yet
		first = never
	}
	return max(first, last-lost)
}

// rest writes all that is left of a task.
func (t *task) rest() []Point {
	if t.origin.IsZero() {
		return nil
	}
	var points []Point
	last := time.Duration(-1 << 62)
	for _, agent := range slices.Sorted(maps.Keys(t.parts)) {
		points = append(points, t.windows(agent, t.parts[agent].rest(t.at[agent]))...)
		last = max(last, t.at[agent])
	}
	return append(points, t.totals(t.total.rest(last))...)
}

func (t *task) windows(agent string, due []*window) []Point {
	return t.seconds(measureWindow, t.agent(agent), due)
}

func (t *task) totals(due []*window) []Point {
	points := t.seconds(measureTotal, t.all, due)
	if t.all.role&consumes != 0 {
		for i, w := range due {
			points[i].Fields[expectedKey] = w.expected
		}
	}
	return points
}

func (t *task) seconds(measurement string, a agent, due []*window) []Point {
	points := make([]Point, 0, len(due))
	for _, w := range due {
		tags := with(a.tags, "phase", string(phase(w, t.begin, t.measure)), "measured", strconv.FormatBool(w.Measured))
		points = append(points, Point{measurement, tags, fieldsOf(w, a.role, a.confirm), t.time(w.Start)})
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

// notes are the points of a snapshot besides its windows.
func (t *task) notes(x record.Snapshot) []Point {
	var points []Point
	if h := x.Host; h != (record.HostSample{}) && !t.origin.IsZero() {
		if h.At == 0 {
			h.At = x.At
		}
		if p := t.host(x.Agent, h); len(p.Fields) > 0 {
			points = append(points, p)
		}
	}
	points = append(points, t.probes(x.Group, x.Probes)...)
	for _, e := range x.Events {
		pe := plan.Event{At: plan.Duration(e.At), Agent: x.Agent, Kind: e.Kind, Detail: plan.Redact(e.Detail)}
		t.events[pe]++
		points = append(points, t.event(e.Kind, x.Agent, t.time(e.At), time.Duration(e.Nanos), pe.Detail))
	}
	return points
}

func (t *task) host(agent string, h record.HostSample) Point {
	fields, tags := map[string]any{}, t.agent(agent).tags
	if h.Broker == "" {
		fields["cpu"], fields["rss"], fields["spin"], fields["waited"] = h.AgentCPU, h.AgentRSS, h.AgentSpin,
			h.AgentWaited
	} else {
		tags = t.tagsOfObserver(agent, h.Broker)
	}
	if !h.HasBroker {
		return Point{measureAgent, tags, fields, t.time(h.At)}
	}
	fields["broker.cpu"], fields["broker.rss"] = h.BrokerCPU, h.BrokerRSS
	if h.NoDisk == "" {
		fields["broker.disk.read"], fields["broker.disk.write"] = h.DiskRead, h.DiskWrite
	}
	if h.NoNet == "" {
		fields["broker.net.in"], fields["broker.net.out"] = h.NetIn, h.NetOut
	}
	return Point{measureAgent, tags, fields, t.time(h.At)}
}

// probes are what the broker said of itself to an agent, of a group if the cell has any: a point for each moment and
// node.
func (t *task) probes(group string, samples []record.ProbeSample) []Point {
	type place struct {
		at   int64
		node string
	}
	var points []Point
	index := map[place]int{}
	for _, p := range samples {
		at := place{p.At, p.Node}
		i, there := index[at]
		if !there {
			i = len(points)
			index[at] = i
			points = append(points, Point{measureBroker, with(t.ofGroup(group), "node", p.Node, "group", group),
				map[string]any{}, t.time(p.At)})
		}
		points[i].Fields[p.Name] = p.Value
	}
	return points
}

// eventPlace is what InfluxDB would take for one event.
type eventPlace struct {
	kind, agent string
	at          time.Time
}

// event is a point of something that happened. Of several that would be one point for InfluxDB, later ones move on by
// a nanosecond.
func (t *task) event(kind, agent string, at time.Time, lasted time.Duration, words string) Point {
	place := eventPlace{kind, agent, at.Round(0).UTC()}
	for {
		if _, taken := t.taken[place]; !taken {
			break
		}
		place.at = place.at.Add(1)
	}
	t.taken[place] = struct{}{}
	fields := map[string]any{"text": text(words)}
	if lasted > 0 {
		fields["seconds"] = lasted.Seconds()
	}
	return Point{measureEvent, with(t.tags, "kind", kind, "agent", agent), fields, place.at}
}

func (t *task) outcome(o plan.Outcome) Point {
	fields := valueFields(o.Values)
	fields["measured"], fields["agents"], fields["warnings"] = o.Measured.D().Seconds(), int64(len(o.Agents)),
		int64(len(o.Warnings))
	for key, s := range map[string]string{"name": plain(t.Cell.Name()), "reasons": strings.Join(o.Reasons, "; "),
		"label":   t.Cell.Label,
		"product": o.Subject.Product, "version": o.Subject.Version, "fingerprint": o.Subject.Fingerprint} {
		if s != "" {
			fields[key] = text(plan.Redact(s))
		}
	}
	return Point{measureOutcome, with(t.tags, "verdict", string(o.Verdict)), fields, o.Ended}
}

// boundSuffix names the field that says how far the truth may be off a value.
const boundSuffix = ".bound"

// valueFields are the values that have numbers, how sure these are, and their flags.
func valueFields(values map[string]plan.Value) map[string]any {
	fields, flags := map[string]any{}, map[plan.Flag]bool{}
	for name, v := range values {
		for _, f := range v.Flags {
			flags[f] = true
		}
		if v.NA != "" {
			continue
		}
		fields[name] = v.Number
		if v.Bound > 0 {
			fields[name+boundSuffix] = v.Bound
		}
	}
	var words []string
	for _, f := range slices.Sorted(maps.Keys(flags)) {
		words = append(words, string(f))
	}
	if len(words) > 0 {
		fields["flags"] = strings.Join(words, ",")
	}
	return fields
}

// groupOutcomes are the results of the groups of a task.
func (t *task) groupOutcomes(o plan.Outcome) []Point {
	var points []Point
	for _, part := range t.Parts() {
		for _, g := range o.Groups {
			if g.Name != part.Group {
				continue
			}
			fields := valueFields(g.Values)
			for key, s := range map[string]string{"reasons": strings.Join(g.Reasons, "; "), "label": part.Cell.Label} {
				if s != "" {
					fields[key] = text(plan.Redact(s))
				}
			}
			tags := with(t.ofGroup(g.Name), "group", g.Name, "mode", part.Cell.Workload.Publishers.Mode, "verdict",
				string(g.Verdict))
			points = append(points, Point{measureGroup, tags, fields, o.Ended})
		}
	}
	return points
}
