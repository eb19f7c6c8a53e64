package sink

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// task is the state of one attempt in flight.
type task struct {
	task    plan.Task
	tags    map[string]string
	measure time.Duration
	fill    time.Duration // the measurement, if its empty seconds may be filled in; else 0
	begin   time.Duration // start of the measurement, since T0; below 0: not known yet (warmup "auto")
	all     agent         // all agents together
	agents  map[string]agent
	members int // number of agents that take part; 0: not known
	started time.Time
	origin  time.Time // T0; zero: not known yet
	seen    map[increment]struct{}
	at      map[string]time.Duration // of each agent's last snapshot, since T0
	parts   map[string]*sequence     // by agent
	total   *sequence
	events  map[plan.Event]int       // events of agents that were written
	taken   map[eventPlace]time.Time // with the next time that may be free
}

type increment struct {
	agent string
	seq   uint64
}

// agent has the role and the tags of an agent of a task.
type agent struct {
	role          role
	tags          map[string]string // include those of its group
	confirm       bool              // its messages are confirmed
	subscriptions int               // number of subscriptions that receive each of its messages
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

// newAgent returns an agent. part is the group of the task that it belongs to, or the whole task.
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

// agent returns an agent of the task. An unknown agent may have either role.
func (t *task) agent(name string) agent {
	a, known := t.agents[name]
	if !known {
		a = t.newAgent(name, either, t.task)
		t.agents[name] = a
	}
	return a
}

func (t *task) description() string {
	return fmt.Sprintf("%s repetition %d", t.task.Cell.Name(), t.task.Repetition)
}

// tagsOfObserver returns the tags of an agent that measures a broker's processes and gets no load.
func (t *task) tagsOfObserver(agent, broker string) map[string]string {
	for _, b := range t.task.Cell.Brokers() {
		if b.Name == broker {
			return with(t.tags, "agent", agent, "role", "observer", "broker", b.Name, "driver", b.Driver)
		}
	}
	return with(t.tags, "agent", agent, "role", "observer")
}

// ofGroup returns the tags of a group's points. With side-by-side brokers each group has its own broker.
func (t *task) ofGroup(group string) map[string]string {
	for _, part := range t.task.Parts() {
		if group != "" && part.Group == group {
			return with(t.tags, "broker", part.Cell.Broker.Name, "driver", part.Cell.Broker.Driver)
		}
	}
	return t.tags
}

// atAll returns the time up to which all agents have reported, except those that were silent for lost.
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

// rest returns the points of all remaining windows of a task.
func (t *task) rest() []Point {
	if t.origin.IsZero() {
		return nil
	}
	const incomplete = time.Duration(math.MaxInt64) // includes incomplete seconds
	var points []Point
	last := time.Duration(-1 << 62)
	for _, agent := range slices.Sorted(maps.Keys(t.parts)) {
		points = append(points, t.windows(agent, t.parts[agent].take(t.at[agent], incomplete))...)
		last = max(last, t.at[agent])
	}
	return append(points, t.totals(t.total.take(last, incomplete))...)
}

func (t *task) windows(agent string, due []*window) []Point {
	return t.seconds(measureWindow, t.agent(agent), due)
}

func (t *task) totals(due []*window) []Point {
	points := t.seconds(measureTotal, t.all, due)
	if t.all.role&consumes != 0 {
		for i, w := range due {
			points[i].Fields[expectedKey] = w.expected
			if t.all.role&publishes == 0 { // every message of an existing queue that is received was expected
				points[i].Fields[expectedKey] = points[i].Fields[counterFieldOf(record.Unique).key]
			}
		}
	}
	return points
}

func (t *task) seconds(measurement string, a agent, due []*window) []Point {
	points := make([]Point, 0, len(due))
	for _, w := range due {
		tags := with(a.tags, "phase", string(phase(w, t.begin, t.measure)), "measured", strconv.FormatBool(w.data.Measured))
		points = append(points, Point{measurement, tags, fieldsOf(w, a.role, a.confirm), t.time(w.data.Start)})
	}
	return points
}

// time returns the time of an instant since T0.
func (t *task) time(at int64) time.Time {
	if t.origin.IsZero() {
		return t.started.Add(time.Duration(at))
	}
	return t.origin.Add(time.Duration(at))
}

// notes returns the points of a snapshot, except those of its windows.
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

// probes returns the broker's metrics: one point per time and node. group is the group of the agent that probed, if the
// cell has groups.
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

// eventPlace identifies an event in InfluxDB.
type eventPlace struct {
	kind, agent string
	at          time.Time
}

// event returns the point of an event. If InfluxDB would merge it with an earlier one, its time is moved by
// nanoseconds.
func (t *task) event(kind, agent string, at time.Time, lasted time.Duration, words string) Point {
	place := eventPlace{kind, agent, at.Round(0).UTC()}
	visited := []eventPlace{place}
	for next, taken := t.taken[place]; taken; next, taken = t.taken[place] {
		place.at = next
		visited = append(visited, place)
	}
	for _, v := range visited { // the next search from one of them is short
		t.taken[v] = place.at.Add(1)
	}
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
	addTexts(fields, map[string]string{"name": plain(t.task.Cell.Name()), "reasons": strings.Join(o.Reasons, "; "),
		"label": t.task.Cell.Label})
	if t.tags["broker"] != several {
		addSubject(fields, o.Subject)
	}
	return Point{measureOutcome, with(t.tags, "verdict", string(o.Verdict)), fields, o.Ended}
}

// addSubject adds the fields of a tested broker.
func addSubject(fields map[string]any, s plan.Subject) {
	addTexts(fields, map[string]string{"product": s.Product, "version": s.Version, "fingerprint": s.Fingerprint})
}

func addTexts(fields map[string]any, texts map[string]string) {
	for key, s := range texts {
		if s != "" {
			fields[key] = text(plan.Redact(s))
		}
	}
}

// Suffixes of fields: the maximum error of a value, and the lower bound of a value without a number.
const (
	boundSuffix = ".bound"
	overSuffix  = ".over"
)

// valueFields returns the fields of values with numbers, their maximum errors, and their flags. A value of which only a
// lower bound is known has no number: a dashboard could not tell it from an exact one.
func valueFields(values map[string]plan.Value) map[string]any {
	fields, flags := map[string]any{}, map[plan.Flag]bool{}
	for name, v := range values {
		for _, f := range v.Flags {
			flags[f] = true
		}
		switch {
		case v.NA != "":
			continue
		case v.Over > 0:
			fields[name+overSuffix] = v.Number
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

// groupOutcomes returns the points of the outcomes of a task's groups.
func (t *task) groupOutcomes(o plan.Outcome) []Point {
	var points []Point
	for _, part := range t.task.Parts() {
		for _, g := range o.Groups {
			if g.Name != part.Group {
				continue
			}
			fields := valueFields(g.Values)
			addTexts(fields, map[string]string{"reasons": strings.Join(g.Reasons, "; "), "label": part.Cell.Label})
			if g.Subject != nil {
				addSubject(fields, *g.Subject)
			}
			tags := with(t.ofGroup(g.Name), "group", g.Name, "mode", part.Cell.Workload.Publishers.Mode, "verdict",
				string(g.Verdict))
			points = append(points, Point{measureGroup, tags, fields, o.Ended})
		}
	}
	return points
}

// expectedKey is a field of lockstep_total only, as a publishing agent does not know the number of consumers.
const expectedKey = "expected"
