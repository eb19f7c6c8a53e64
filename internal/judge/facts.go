package judge

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// Facts are what the agents' records do not tell of a task.
type Facts struct {
	Agents   []plan.AgentPart // every agent of the task, by index
	Subject  plan.Subject
	Subjects map[string]plan.Subject // by group, where groups have brokers of their own; Subject is then one of them
	// of the agents' hosts, by agent; an agent that is missing is never called saturated
	Cores    map[string]int
	Events   []plan.Event // the controller's own; the agents' come from their records
	DrainCut bool         // the drain was ended by its limit, not by silence
	Failure  string       // why the task failed; empty if it did not
	// of Failure, or of what the agents show (one was lost); empty: none that is told apart
	Kind      plan.FailureKind
	NotSteady string // what still moved when the measurement began (warmup: "auto"); empty if nothing did
	Cancelled bool
	Started   time.Time
	Ended     time.Time
}

// Kinds of the events by which an outcome keeps the facts that it was judged from.
const (
	eventFailed    = "task-failed"
	eventCancelled = "task-cancelled"
	eventDrainCut  = "drain-cut"
	eventNotSteady = "not-steady"
	eventCores     = plan.EventCores
)

// eventTakenOver is the kind of the controller's event by which another led a task on.
const eventTakenOver = "taken-over"

// eventClosed is the kind of an agent's event by which the engine tells that a link broke.
const eventClosed = "closed"

// SinceT0 makes the times of events, which count from T0, count from the measurement, which began at cut.
func (f *Facts) SinceT0(cut time.Duration) {
	for i := range f.Events {
		f.Events[i].At -= plan.Duration(cut)
	}
}

// FactsOf recovers the facts that an outcome was judged from, given the record that it was judged from too, so that it
// can be judged again from what is kept alone.
func FactsOf(o plan.Outcome, m *record.Merged) Facts {
	agents := map[plan.Event]int{}
	for _, e := range agentEvents(m) {
		agents[e]++
	}
	f := Facts{Agents: o.Agents, Subject: o.Subject, Started: o.Started, Ended: o.Ended, Kind: o.Failure}
	if cores := CoresOf(o); len(cores) > 0 {
		f.Cores = cores
	}
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
		case e.Kind == eventCores: // CoresOf
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

// CoresOf is how many cores the agents' hosts have, by agent, as an outcome keeps it.
func CoresOf(o plan.Outcome) map[string]int {
	cores := map[string]int{}
	for _, e := range o.Events {
		if n, err := strconv.Atoi(e.Detail); e.Kind == eventCores && err == nil {
			cores[e.Agent] = n
		}
	}
	return cores
}

func agentEvents(m *record.Merged) []plan.Event {
	var events []plan.Event
	for _, e := range m.Events() {
		events = append(events, plan.Event{At: plan.Duration(e.At), Agent: e.Agent, Kind: e.Kind,
			Detail: plan.Redact(e.Detail)})
	}
	return events
}

// allEvents are the agents' events, the controller's, and those that keep facts, in order of time.
func allEvents(m *record.Merged, f Facts) []plan.Event {
	events := append(agentEvents(m), f.Events...)
	for _, agent := range slices.Sorted(maps.Keys(f.Cores)) {
		events = append(events, plan.Event{Agent: agent, Kind: eventCores, Detail: strconv.Itoa(f.Cores[agent])})
	}
	end := plan.Duration(max(m.Last().Send, m.Last().Confirm, m.Last().Delivery))
	if f.NotSteady != "" {
		events = append(events, plan.Event{Kind: eventNotSteady, Detail: f.NotSteady})
	}
	if f.DrainCut {
		events = append(events, plan.Event{At: end, Kind: eventDrainCut, Detail: "the drain reached its limit"})
	}
	if f.Failure != "" {
		events = append(events, plan.Event{At: end, Kind: eventFailed, Detail: f.Failure})
	}
	if f.Cancelled {
		events = append(events, plan.Event{At: end, Kind: eventCancelled})
	}
	slices.SortStableFunc(events, func(a, b plan.Event) int { return cmp.Compare(a.At, b.At) })
	return events
}

// withClocks are the agents, with the clock from their records where the controller did not learn of them.
func withClocks(m *record.Merged, f Facts) []plan.AgentPart {
	agents := slices.Clone(f.Agents)
	clocks := m.Clocks()
	for i := range agents {
		a := &agents[i]
		if a.Clock == "" {
			a.Clock = clocks[a.Agent]
		}
	}
	return agents
}
