package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire"
)

const (
	// maxContacts limits the number of brokers, with different options, that are contacted at the same time.
	maxContacts = 16
	// maxContactTries is the number of agents that try to reach a broker: after a failure, of different hosts.
	maxContactTries = 2
)

// contact is the contact with one broker before the first task of a run.
type contact struct {
	id          string   // plan.Broker.ID
	names       []string // in the matrix
	agents      []wire.AgentInfo
	assignments []plan.Assignment // of the agents
	failure     string            // empty: reached, or not known
}

// contact makes agents open and close a session with each broker of the tasks that are not done. The unreachable ones
// are stored in x.unreachable and returned as events. A broker whose agents are missing is not contacted: its tasks
// wait for them.
func (x *execution) contact(tasks []plan.Task, done map[string]bool) (events []wire.RunEvent) {
	var contacts []*contact
	byKey := map[string]*contact{}
	fit := x.fit(x.between)
	for _, t := range tasks {
		if done[t.ID] {
			continue
		}
		for _, b := range t.Cell.Brokers() {
			c := byKey[b.Key()]
			if c == nil {
				c = &contact{id: b.ID()}
				byKey[b.Key()] = c
				contacts = append(contacts, c)
				c.assign(t, b, fit)
			}
			if !slices.Contains(c.names, b.Name) {
				c.names = append(c.names, b.Name)
			}
		}
	}
	var opening errgroup.Group
	opening.SetLimit(maxContacts)
	for _, c := range contacts {
		opening.Go(func() error { c.failure = x.reach(c); return nil })
	}
	_ = opening.Wait() // the functions return no errors
	for i, c := range contacts {
		same := func(o *contact) bool { return o.failure == c.failure }
		if c.failure == "" || slices.ContainsFunc(contacts[:i], same) { // reported with an earlier one
			continue
		}
		e := wire.RunEvent{Kind: wire.BrokerUnreachable, Reason: c.failure}
		var names []string
		for _, o := range contacts[i:] {
			if same(o) {
				x.unreachable[o.id], e.Brokers, names = o.failure, append(e.Brokers, o.id), append(names, o.names...)
			}
		}
		slices.Sort(names)
		e.Detail = fmt.Sprintf("broker %s: %s; start the broker, or correct its options in the matrix",
			strings.Join(slices.Compact(names), ", "), c.failure)
		x.log.Info("broker unreachable", "broker", names, "why", c.failure)
		events = append(events, e)
	}
	return events
}

// assign chooses the agents of the first task that uses a broker. It chooses none if they are missing, or if the broker
// runs in their process.
func (c *contact) assign(t plan.Task, b plan.Broker, fit []wire.AgentInfo) {
	agents, missing := assignAgents(t.Cell, fit)
	if missing != nil {
		return
	}
	for i, a := range plan.Assign(t, names(agents)) {
		if a.Task.Cell.Broker.Key() == b.Key() && !a.Task.Cell.InProcess {
			a.Contact, a.Deadline, a.Task.Attempt = true, a.Task.Cell.Workload.Connect, wire.NewName()
			c.agents, c.assignments = append(c.agents, agents[i]), append(c.assignments, a)
		}
	}
}

// reach makes agents open a session with a broker, one after the other, until one succeeds or maxContactTries have
// tried. It returns the last failure; empty: one succeeded, or none reported a result.
func (x *execution) reach(c *contact) (failure string) {
	tries, failed := 0, map[string]bool{} // by host
	for i, agent := range c.agents {
		if failed[agent.Host] {
			continue
		}
		if tries == maxContactTries || x.between.Err() != nil {
			break
		}
		tries++
		arrival, err := x.open(agent, c.assignments[i])
		switch {
		case err != nil:
			x.log.Warn("no response to the contact of a broker", "broker", c.names, "agent", agent.Agent, "err", err)
		case arrival.Error == "":
			return ""
		default:
			failed[agent.Host], failure = true, arrival.Error
		}
	}
	return failure
}

// open makes an agent execute an assignment that ends at the first step: a contact or a ceiling. An error means that the
// agent did not report the result.
func (x *execution) open(agent wire.AgentInfo, a plan.Assignment) (arrival wire.Arrival, err error) {
	m := newMailbox(x.log, a.Task, []*part{{agent: agent}})
	closeMailbox := m.open(x.leader.lease, x.journal.record, record.NewMerged())
	defer closeMailbox()
	defer x.leader.ownership.own(m)()
	m.command(agent, wire.Command{Assignment: &a})
	began, reported := time.Now(), false
	take := func(r agentReport) {
		x.leader.agents.alive(agent)
		if reported = r.arrival != nil; reported {
			arrival = *r.arrival
		}
		err = r.err
	}
	waited := x.leader.agents.await(x.between, m.reports, take, func() (time.Duration, error) {
		if reported || err != nil {
			return 0, err
		}
		if lives, _, _ := x.leader.agents.process(agent); !lives {
			return 0, fmt.Errorf("agent %s was lost", agent.Agent)
		}
		limit := a.Deadline.D() + stepMargin
		if left := limit - time.Since(began); left > 0 {
			return left, nil
		}
		return 0, fmt.Errorf("no response within %v", limit)
	})
	return arrival, waited
}

// unreachableBroker returns why the brokers of a cell cannot be used; "": all were reached, or not contacted.
func (x *execution) unreachableBroker(c plan.Cell) string {
	if len(x.unreachable) == 0 {
		return ""
	}
	for _, b := range c.Brokers() {
		if why := x.unreachable[b.ID()]; why != "" {
			return "broker " + b.Name + ": " + why
		}
	}
	return ""
}
