package controller

import (
	"fmt"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// assign sends every agent its part.
func (c *conduct) assign() error {
	agents := make([]wire.AgentInfo, len(c.parts))
	for i, p := range c.parts {
		agents[i] = p.agent
	}
	_, targets, _ := disturbers(c.work, agents, agents)
	var longest plan.Duration
	assignments := plan.Assign(c.task, names(agents))
	if err := c.meet(assignments); err != nil {
		for _, p := range c.parts {
			p.dropped = true
		}
		return err
	}
	for i, a := range assignments {
		longest = max(longest, a.Deadline)
		c.parts[i].Group, a.Targets = a.Task.Group, targets[a.Agent]
		c.command(c.parts[i].agent, wire.Command{Assignment: &a})
	}
	c.observe(longest)
	return nil
}

// meet refuses a broker that lives in the memory of a process, where its agents are of several: each would have one of its own, and receive nothing.
func (c *conduct) meet(assignments []plan.Assignment) error {
	first := map[string]wire.AgentInfo{} // by group
	for i, a := range assignments {
		agent, broker := c.parts[i].agent, a.Task.Cell.Broker
		one, met := first[a.Task.Group]
		if !met {
			first[a.Task.Group] = agent
			continue
		}
		if a.Task.Cell.InProcess && agent.Memory != "" && one.Memory != "" && agent.Memory != one.Memory {
			return &failure{words: fmt.Sprintf("broker %s lives in the process of an agent, and %s and %s are two processes that each have one: "+
				"name a server in its options, give an agent enough slots (agent --slots), or run the matrix without --server", broker.Name, one.Agent, agent.Agent)}
		}
	}
	return nil
}
