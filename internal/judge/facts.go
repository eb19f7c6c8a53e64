package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// Facts are the facts of a task that are not in the agents' records.
type Facts struct {
	Agents   []plan.AgentPart // every agent of the task, by index
	Subject  plan.Subject
	Subjects map[string]plan.Subject // by group, if groups have their own brokers; Subject is then one of them
	// of the agents' hosts, by agent; missing: the host never counts as saturated
	Cores    map[string]int
	Events   []plan.Event // the controller's own; events of agents are in their records
	DrainCut bool         // the drain reached its timeout
	Failure  string       // why the task failed; empty: it did not fail
	// kind of Failure, or of what the agents' states show (one was lost); empty: no kind
	Kind      plan.FailureKind
	NotSteady string // what was not steady when the measurement began (warm-up "auto"); empty: nothing
	Cancelled bool
	Started   time.Time
	Ended     time.Time
}

// Kinds of the events that store facts in an outcome.
const (
	eventFailed    = "task-failed"
	eventCancelled = "task-cancelled"
	eventDrainCut  = "drain-cut"
	eventNotSteady = "not-steady"
)

// eventTakenOver is the kind of the controller's event that another controller took over the task.
const eventTakenOver = "taken-over"

// eventClosed is the kind of the engine's event that a link broke.
const eventClosed = "closed"

// SinceT0 converts event times from T0 to the beginning of the measurement, which was cut after T0.
func (f *Facts) SinceT0(cut time.Duration) {
	for i := range f.Events {
		f.Events[i].At -= plan.Duration(cut)
	}
}

// FactsOf returns the facts of an outcome, given the outcome's record. It allows the task to be judged again.
func FactsOf(o plan.Outcome, m *record.Merged) Facts {
	agents := map[plan.Event]int{}
	for _, e := range agentEvents(m) {
		agents[e]++
	}
	f := Facts{Agents: o.Agents, Subject: o.Subject, Cores: o.Cores(), Started: o.Started, Ended: o.Ended,
		Kind: o.Failure}
	for _, g := range o.Groups {
		if g.Subject != nil {
			if f.Subjects == nil {
				f.Subjects = map[string]plan.Subject{}
			}
			f.Subjects[g.Name] = *g.Subject
		}
	}
	for _, e := range o.Events {
		switch {
		case e.Kind == plan.EventCores: // read by Outcome.Cores
		case e.Kind == eventFailed:
			f.Failure = e.Detail
		case e.Kind == eventCancelled:
			f.Cancelled = true
		case e.Kind == eventNotSteady:
			f.NotSteady = e.Detail
		case e.Kind == eventDrainCut:
			f.DrainCut = true
		case agents[e] > 0:
			agents[e]--
		default:
			f.Events = append(f.Events, e)
		}
	}
	return f
}

// maxLinkEvents limits the events of broken links in an outcome, which must fit into one message of the control plane.
const maxLinkEvents = 2000

// agentEvents returns the events of agents. The number of an agent's events of broken links is limited to its share of
// maxLinkEvents. One more event then has the number of those that are only in the record.
func agentEvents(m *record.Merged) []plan.Event {
	var events []plan.Event
	all := m.Events()
	ofLink := func(e record.Event) bool { return e.Kind == eventClosed || e.Kind == record.EventGap }
	total, kept := map[string]int{}, map[string]int{} // events of broken links, by agent
	for _, e := range all {
		if ofLink(e) {
			total[e.Agent]++
		}
	}
	limit := maxLinkEvents / max(1, len(total))
	for _, e := range all {
		if ofLink(e) {
			kept[e.Agent]++
			switch n := kept[e.Agent] - limit; {
			case n == 1:
				e.Kind, e.Detail = eventClosed, fmt.Sprintf("%d more events of broken links: the record contains them",
					total[e.Agent]-limit)
			case n > 1:
				continue
			}
		}
		events = append(events, plan.Event{At: plan.Duration(e.At), Agent: e.Agent, Kind: e.Kind,
			Detail: plan.Redact(e.Detail)})
	}
	return events
}

// allEvents returns the events of agents, those of the controller, and those that store facts, in order of time.
func allEvents(m *record.Merged, f Facts) []plan.Event {
	events := append(agentEvents(m), f.Events...)
	for _, agent := range slices.Sorted(maps.Keys(f.Cores)) {
		events = append(events, plan.Event{Agent: agent, Kind: plan.EventCores, Detail: strconv.Itoa(f.Cores[agent])})
	}
	end := plan.Duration(max(m.Last().Send, m.Last().Confirm, m.Last().Delivery))
	fact := func(is bool, e plan.Event) {
		if is {
			events = append(events, e)
		}
	}
	fact(f.NotSteady != "", plan.Event{Kind: eventNotSteady, Detail: f.NotSteady})
	fact(f.DrainCut, plan.Event{At: end, Kind: eventDrainCut, Detail: "the drain reached its timeout"})
	fact(f.Failure != "", plan.Event{At: end, Kind: eventFailed, Detail: f.Failure})
	fact(f.Cancelled, plan.Event{At: end, Kind: eventCancelled})
	slices.SortStableFunc(events, func(a, b plan.Event) int { return cmp.Compare(a.At, b.At) })
	return events
}

// of returns the facts of one group.
func (f Facts) of(group string) Facts {
	all := f.Agents
	f.Agents = nil
	for _, a := range all {
		if a.Group == group {
			a.Index = len(f.Agents)
			f.Agents = append(f.Agents, a)
		}
	}
	if s, has := f.Subjects[group]; has {
		f.Subject = s
	}
	return f
}
