package controller

import (
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// contact is the contact with one broker before the first task of a run.
type contact struct {
	id          string   // plan.Broker.ID
	names       []string // in the matrix
	agents      []wire.AgentInfo
	assignments []plan.Assignment // of the agents
	failure     string            // empty: reached, or not known
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
