package controller

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// casting gives agents roles, each agent one at most.
type casting struct {
	roles []plan.Role
	there []wire.AgentInfo
	role  []int // of each agent; -1: it is free
	next  []int // of each role: agents before this one are not free, or do not fit
}

// cast chooses the agents of a workload, in the order of its roles and of names. It finds a choice wherever there is one, and the same one for the
// same agents: roles that the fewest agents fit choose first. lack has the roles that do not get all their agents, each with
// how many it lacks; then there is no choice.
func cast(w plan.Workload, there []wire.AgentInfo) (chosen []wire.AgentInfo, lack []plan.Role) {
	there = slices.DeleteFunc(slices.Clone(there), func(a wire.AgentInfo) bool { return a.Observer })
	c := casting{roles: w.Roles(), there: there, role: make([]int, len(there))}
	c.next = make([]int, len(c.roles))
	for i := range c.role {
		c.role[i] = -1
	}
	for _, r := range c.narrowest() {
		for n := range c.roles[r].Agents {
			if !c.seat(r, make([]bool, len(c.roles))) {
				short := c.roles[r]
				short.Agents -= n // the others of this role find none either
				lack = append(lack, short)
				break
			}
		}
	}
	if len(lack) > 0 {
		return nil, lack
	}
	for r := range c.roles {
		for i, a := range there {
			if c.role[i] == r {
				chosen = append(chosen, a)
			}
		}
	}
	return chosen, nil
}

func (c *casting) fits(agent, role int) bool { return c.roles[role].On.Within(c.there[agent].Labels) }

// narrowest lists the roles, those that the fewest agents fit first.
func (c *casting) narrowest() []int {
	order, fit := make([]int, len(c.roles)), make([]int, len(c.roles))
	for r := range c.roles {
		order[r] = r
		for i := range c.there {
			if c.fits(i, r) {
				fit[r]++
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return fit[a] - fit[b] })
	return order
}

// seat gives a role one more agent: a free one, or one of another role that finds another in its place. The roles looked at on the way are not
// looked at again.
func (c *casting) seat(role int, looked []bool) bool {
	looked[role] = true
	for ; c.next[role] < len(c.there); c.next[role]++ { // who has a role is never free again
		if i := c.next[role]; c.role[i] < 0 && c.fits(i, role) {
			c.role[i] = role
			return true
		}
	}
	for i, other := range c.role {
		if other < 0 || looked[other] || !c.fits(i, role) {
			continue
		}
		if c.seat(other, looked) {
			c.role[i] = role
			return true
		}
	}
	return false
}

// mostNamed bounds how many agents a message lists.
const mostNamed = 20

// shortage says that a cell cannot have its agents, and how many there are that may have a role.
func shortage(c plan.Cell, there []wire.AgentInfo) *wire.End {
	have := 0
	for _, a := range there {
		if !a.Observer {
			have++
		}
	}
	labelled := false
	var wanted []string
	for _, r := range c.Workload.Roles() {
		labelled = labelled || len(r.On) > 0
		fit := 0
		for _, a := range there {
			if !a.Observer && r.On.Within(a.Labels) {
				fit++
			}
		}
		name := r.Name
		if r.Group != "" {
			name += " of group " + r.Group
		}
		if len(r.On) > 0 {
			name += " with " + r.On.String()
		}
		wanted = append(wanted, fmt.Sprintf("%d for %s (%d fit)", r.Agents, name, fit))
	}
	text := fmt.Sprintf("too few agents: %d there%s, %d needed", have, roster(there, labelled), c.Agents())
	if labelled {
		text = fmt.Sprintf("too few agents with the labels wanted: %d there%s; needed: %s", have, roster(there, labelled), strings.Join(wanted, ", "))
	}
	return &wire.End{Reason: wire.EndNoAgents, Detail: text, Have: have, Need: c.Agents()}
}

// roster lists agents, in brackets.
func roster(there []wire.AgentInfo, labelled bool) string {
	var list []string
	for i, a := range there {
		if i == mostNamed {
			list = append(list, fmt.Sprintf("and %d more", len(there)-i))
			break
		}
		text := a.Agent
		switch {
		case a.Observer:
			text += " only observes"
		case labelled && len(a.Labels) > 0:
			text += " with " + plan.Labels(a.Labels).String()
		case labelled:
			text += " without labels"
		}
		list = append(list, text)
	}
	if len(list) == 0 {
		return ""
	}
	return " (" + strings.Join(list, ", ") + ")"
}
