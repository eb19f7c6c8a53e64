package controller

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire"
)

// maxContacts limits the number of brokers, with different options, that are contacted at the same time.
const maxContacts = 16

// contact makes agents open and close a session with each broker of the tasks that are not done. The failures are in
// x.unreachable and in the run's record. A broker whose agents are missing is not contacted: its tasks wait for them.
func (x *execution) contact(tasks []plan.Task, done map[string]bool) error {
	fit, failures := x.fit(x.between), map[string]*string{} // by plan.Broker.Key
	var contacts errgroup.Group
	contacts.SetLimit(maxContacts)
	for _, t := range tasks {
		if done[t.ID] {
			continue
		}
		for _, b := range t.Cell.Brokers() {
			if failures[b.Key()] != nil {
				continue
			}
			failure := new(string)
			failures[b.Key()] = failure
			agents, missing := assignAgents(t.Cell, fit)
			if missing != nil {
				continue
			}
			assignments := plan.Assign(t, names(agents))
			i := slices.IndexFunc(assignments, func(a plan.Assignment) bool { return a.Task.Cell.Broker.Key() == b.Key() })
			if !assignments[i].Task.Cell.InProcess {
				contacts.Go(func() error {
					*failure = x.open(agents[i], assignments[i])
					return nil
				})
			}
		}
	}
	_ = contacts.Wait() // the functions return no errors
	x.unreachable = map[string]string{}
	reported := map[string]bool{}
	for _, t := range tasks { // in the order of the run
		for _, b := range t.Cell.Brokers() {
			if failures[b.Key()] == nil || *failures[b.Key()] == "" {
				continue
			}
			why := *failures[b.Key()]
			if x.unreachable[b.Key()] = why; reported[why] {
				continue
			}
			reported[why] = true
			x.log.Info("broker unreachable", "why", why)
			e := wire.RunEvent{Kind: wire.BrokerUnreachable,
				Detail: why + "; start the broker, or correct its options in the matrix"}
			if err := x.journal.event(x.between, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// open makes an agent open and close a session with the broker of an assignment. It returns why the agent could not.
// Without a report of the agent it returns "": the tasks will show the reason.
func (x *execution) open(agent wire.AgentInfo, a plan.Assignment) (failure string) {
	a.Contact, a.Deadline, a.Task.Attempt = true, a.Task.Cell.Workload.Connect, wire.NewName()
	m := newMailbox(x.log, a.Task, []*part{{agent: agent}})
	closeMailbox := m.open(x.leader.lease, x.journal.record, record.NewMerged())
	defer closeMailbox()
	defer x.leader.ownership.own(m)()
	m.command(agent, wire.Command{Assignment: &a})
	began, arrived := time.Now(), false
	take := func(r agentReport) {
		if arrived = r.arrival != nil || r.err != nil; r.arrival != nil && r.arrival.Error != "" {
			failure = fmt.Sprintf("broker %s: %s", a.Task.Cell.Broker.Name, r.arrival.Error)
		}
	}
	// the next step finds the end of the run
	_ = x.leader.agents.await(x.between, m.reports, take, func() (time.Duration, error) {
		if lives, _, _ := x.leader.agents.process(agent); arrived || !lives {
			return 0, nil
		}
		return a.Deadline.D() + stepMargin - time.Since(began), nil
	})
	return failure
}

// unreachableBroker returns why a broker of a cell is unreachable; "": all were reached, or not contacted.
func (x *execution) unreachableBroker(c plan.Cell) string {
	if len(x.unreachable) == 0 {
		return ""
	}
	for _, b := range c.Brokers() {
		if why := x.unreachable[b.Key()]; why != "" {
			return why
		}
	}
	return ""
}
