package plan

// Assign distributes a task over agents, in the given order. Group by group, it first takes the agents of the
// publishers, then those of the consumers, or the same agents if they are colocated. It returns one assignment per
// agent. In a task with faults the remaining agents only inject faults.
func Assign(t Task, agents []string) []Assignment {
	var all []Assignment
	for _, part := range t.Parts() {
		all = append(all, assign(part, agents[len(all):])...)
	}
	for i := len(all); i < len(agents) && len(t.Cell.Workload.Faults) > 0; i++ {
		a := all[0]
		a.Agent, a.Index, a.Publishers, a.Consumers = agents[i], i, Share{Total: a.Publishers.Total},
			Share{Total: a.Consumers.Total}
		all = append(all, a)
	}
	return all
}

// assign distributes a task without groups.
func assign(t Task, agents []string) []Assignment {
	w := t.Cell.Workload
	out := make([]Assignment, w.agents())
	for i := range out {
		out[i] = Assignment{Protocol: Protocol, Task: t, Agent: agents[i], Index: i, Deadline: Duration(Limit(w))}
	}
	p, c := w.Publishers, w.Consumers
	for i := range out { // every agent gets the total of each role
		out[i].Publishers.Total, out[i].Consumers.Total = p.Nodes*p.Threads, c.Nodes*c.Threads
	}
	for i := range p.Nodes {
		out[i].Publishers.First, out[i].Publishers.Count = i*p.Threads, p.Threads
	}
	first := p.Nodes
	if c.Colocate {
		first = 0
	}
	for i := range c.Nodes {
		out[first+i].Consumers.First, out[first+i].Consumers.Count = i*c.Threads, c.Threads
	}
	return out
}
