package controller

import (
	"slices"

	"lockstep/internal/plan"
)

// consumes tells whether any group has consumers.
func (c *conduct) consumes() bool {
	return slices.ContainsFunc(c.groups, func(t plan.Task) bool { return t.Cell.Workload.Consumers.Nodes > 0 })
}

// redeliverAfter is that of a group of the cell, ns; "" is the cell without groups.
func (c *conduct) redeliverAfter(group string) int64 {
	i := slices.IndexFunc(c.groups, func(t plan.Task) bool { return t.Group == group })
	return c.groups[max(0, i)].Cell.RedeliverAfter.D().Nanoseconds()
}

// allIn tells whether all that was sent has arrived, in every group.
func (c *conduct) allIn() bool {
	return !slices.ContainsFunc(c.groups, func(t plan.Task) bool {
		w := t.Cell.Workload
		return w.Consumers.Nodes > 0 && !c.merge.Group(t.Group).AllIn(w.Topology.Subscriptions)
	})
}
