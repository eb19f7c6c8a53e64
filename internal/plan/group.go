package plan

import (
	"slices"
	"strings"
)

// Parts returns the tasks that a task consists of. Without groups it is the task itself. With groups there is one task
// per group. Each has the group's workload, driver declaration and broker, and its own names at the broker.
func (t Task) Parts() []Task {
	groups := t.Cell.Workload.Groups
	if len(groups) == 0 || t.Group != "" {
		return []Task{t}
	}
	parts := make([]Task, len(groups))
	for i, g := range groups {
		p := t
		p.Group = g.Name
		p.Cell.Workload = t.Cell.Workload.With(g)
		if g.Broker != nil {
			p.Cell.Broker = *g.Broker
		}
		p.Cell.Label, p.Cell.Guarantees, p.Cell.CopiesBody, p.Cell.InProcess = g.Label, g.Guarantees, g.CopiesBody,
			g.InProcess
		p.Cell.RedeliverAfter, p.Cell.Resilience = g.RedeliverAfter, g.Resilience
		parts[i] = p
	}
	return parts
}

// Brokers returns the brokers that a cell uses, each once: the cell's own, or those of its groups.
func (c Cell) Brokers() (all []Broker) {
	for _, part := range (Task{Cell: c}).Parts() {
		b := part.Cell.Broker
		if !slices.ContainsFunc(all, func(o Broker) bool { return o.Name == b.Name }) {
			all = append(all, b)
		}
	}
	return all
}

// SideBySide reports whether the groups of a cell have their own brokers.
func (w Workload) SideBySide() bool {
	return slices.ContainsFunc(w.Groups, func(g Group) bool { return g.Broker != nil })
}

// With returns the workload of one of its groups.
func (w Workload) With(g Group) Workload {
	w.Publishers, w.Consumers, w.Topology, w.Message, w.Groups = g.Publishers, g.Consumers, g.Topology, g.Message, nil
	return w
}

// Parts returns the workloads that a cell consists of: itself, or those of its groups.
func (w Workload) Parts() []Workload {
	if len(w.Groups) == 0 {
		return []Workload{w}
	}
	parts := make([]Workload, len(w.Groups))
	for i, g := range w.Groups {
		parts[i] = w.With(g)
	}
	return parts
}

// agents returns the number of agents that a workload without groups needs.
func (w Workload) agents() int {
	p, k := w.Publishers.Nodes, w.Consumers.Nodes
	if w.Consumers.Colocate {
		return max(p, k)
	}
	return p + k
}

// SplitGroup splits the name of a value in tables, such as "bulk/publish.p99", into group and value. The group of
// "publish.p99" is "".
func SplitGroup(name string) (group, value string) {
	if group, value, found := strings.Cut(name, "/"); found {
		return group, value
	}
	return "", name
}

// Value returns a value of the outcome or of one of its groups, by its name in tables.
func (o Outcome) Value(name string) (Value, bool) {
	group, name := SplitGroup(name)
	if group == "" {
		v, has := o.Values[name]
		return v, has
	}
	for _, g := range o.Groups {
		if g.Name == group {
			v, has := g.Values[name]
			return v, has
		}
	}
	return Value{}, false
}

// Rate reports whether a value is a rate.
func (v ValueInfo) Rate() bool { return v.Unit == PerSecond || v.Unit == BytesRate || v.Unit == Text }
