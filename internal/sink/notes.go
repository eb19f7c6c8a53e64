package sink

import (
	"maps"
	"slices"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

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
	fields, tags := map[string]any{}, t.tagsOf(agent)
	if h.Broker == "" {
		fields["cpu"], fields["rss"], fields["spin"], fields["waited"] = h.AgentCPU, h.AgentRSS, h.AgentSpin, h.AgentWaited
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

// probes are what the broker said of itself to an agent, of a group if the cell has any: a point for each moment and node.
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
			points = append(points, Point{measureBroker, with(t.ofGroup(group), "node", p.Node, "group", group), map[string]any{}, t.time(p.At)})
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

// event is a point of something that happened. Of several that would be one point for InfluxDB, later ones move on by a nanosecond.
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

// Outcome ends a task. One that was not started in this stream, as it failed before it began or was taken from a record, is given with
// what its outcome tells of its start.
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

func (t *task) outcome(o plan.Outcome) Point {
	fields := valueFields(o.Values)
	fields["measured"], fields["agents"], fields["warnings"] = o.Measured.D().Seconds(), int64(len(o.Agents)), int64(len(o.Warnings))
	for key, s := range map[string]string{"name": plain(t.Cell.Name()), "reasons": strings.Join(o.Reasons, "; "), "label": t.Cell.Label,
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

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
