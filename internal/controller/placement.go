package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// assignAgents chooses the agents of a cell, including those that inject its faults. missing: there are too few.
func assignAgents(c plan.Cell, there []wire.AgentInfo) (all []wire.AgentInfo, missing *wire.End) {
	chosen, unfilled := assignRoles(c.Workload, there)
	if len(unfilled) > 0 {
		return nil, shortage(c, there)
	}
	all, _, words := faultAgents(c.Workload, chosen, there)
	if words != "" {
		return nil, &wire.End{Reason: wire.EndNoTarget, Detail: words}
	}
	return all, nil
}

// assignRoles chooses the agents of a workload, in the order of its roles and then of names. It finds an assignment if
// one exists, and the same one for the same agents. Roles that the fewest agents fit are assigned first. If no
// assignment exists, unfilled has the roles that lack agents, each with the missing number.
func assignRoles(w plan.Workload, there []wire.AgentInfo) (chosen []wire.AgentInfo, unfilled []plan.Role) {
	there = slices.DeleteFunc(slices.Clone(there), func(a wire.AgentInfo) bool { return a.Observer })
	roles := w.Roles()
	fits := func(agent, role int) bool { return roles[role].On.Within(there[agent].Labels) }
	order, fit := make([]int, len(roles)), make([]int, len(roles))
	for r := range roles {
		order[r] = r
		for i := range there {
			if fits(i, r) {
				fit[r]++
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return fit[a] - fit[b] })
	roleOf := slices.Repeat([]int{-1}, len(there)) // by agent; -1: free
	next := make([]int, len(roles))                // by role: no agent before this one is free and fits
	// assign gives a role one more agent: a free one, or one of another role that gets a different agent instead (an
	// augmenting path of bipartite matching). Visited roles are not visited again.
	var assign func(role int, visited []bool) bool
	assign = func(role int, visited []bool) bool {
		visited[role] = true
		for ; next[role] < len(there); next[role]++ { // an agent with a role never becomes free again
			if i := next[role]; roleOf[i] < 0 && fits(i, role) {
				roleOf[i] = role
				return true
			}
		}
		for i, other := range roleOf {
			if other >= 0 && !visited[other] && fits(i, role) && assign(other, visited) {
				roleOf[i] = role
				return true
			}
		}
		return false
	}
	for _, r := range order {
		for n := range roles[r].Agents {
			if !assign(r, make([]bool, len(roles))) {
				short := roles[r]
				short.Agents -= n // the remaining agents of this role cannot be found either
				unfilled = append(unfilled, short)
				break
			}
		}
	}
	if len(unfilled) > 0 {
		return nil, unfilled
	}
	for r := range roles {
		for i, a := range there {
			if roleOf[i] == r {
				chosen = append(chosen, a)
			}
		}
	}
	return chosen, nil
}

// maxNamed is the maximum number of agents that a message lists.
const maxNamed = 20

// shortage returns the end of a run that has too few agents, with the numbers of available and needed agents.
func shortage(c plan.Cell, there []wire.AgentInfo) *wire.End {
	available := func(on plan.Labels) (n int) {
		for _, a := range there {
			if !a.Observer && on.Within(a.Labels) {
				n++
			}
		}
		return n
	}
	have, labelled := available(nil), false
	var wanted []string
	for _, r := range c.Workload.Roles() {
		labelled = labelled || len(r.On) > 0
		name := r.Name
		if r.Group != "" {
			name += " of group " + r.Group
		}
		if len(r.On) > 0 {
			name += " with " + r.On.String()
		}
		wanted = append(wanted, fmt.Sprintf("%d for %s (%d available)", r.Agents, name, available(r.On)))
	}
	text := fmt.Sprintf("too few agents: %d available%s, %d required", have, roster(there, labelled), c.Agents())
	if labelled {
		text = fmt.Sprintf("too few agents with matching labels: %d available%s; required: %s", have,
			roster(there, labelled), strings.Join(wanted, ", "))
	}
	return &wire.End{Reason: wire.EndNoAgents, Detail: text}
}

func roster(there []wire.AgentInfo, labelled bool) string {
	var list []string
	for i, a := range there {
		if i == maxNamed {
			list = append(list, fmt.Sprintf("and %d more", len(there)-i))
			break
		}
		text := a.Agent
		switch {
		case a.Observer:
			text += " as observer"
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

// faultAgents finds the agents that inject the faults of a cell, by target. It prefers chosen agents and adds others to
// them. missing is the reason if a target has no agent; empty: none is missing.
func faultAgents(w plan.Workload, chosen, there []wire.AgentInfo) (all []wire.AgentInfo, targets map[string][]string,
	missing string) {
	all, targets = slices.Clone(chosen), map[string][]string{}
	wanted := w.Targets()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		has := func(a wire.AgentInfo) bool { return a.Targets[name] != nil }
		who := slices.IndexFunc(all, has)
		if who < 0 {
			i := slices.IndexFunc(there, has)
			if i < 0 {
				return all, nil, fmt.Sprintf("no agent can inject faults into %q: start one on that host with --faults FILE; %s",
					name, targetList(there))
			}
			all, who = append(all, there[i]), len(all)
		}
		for _, a := range there {
			if has(a) && a.Host != all[who].Host {
				return all, nil,
					fmt.Sprintf("agents on the hosts %s and %s both have the target %q; use different target names",
						all[who].Host, a.Host, name)
			}
		}
		can := all[who].Targets[name]
		for _, kind := range wanted[name] {
			if !slices.Contains(can, kind) {
				return all, nil, fmt.Sprintf("agent %s cannot %s %q: its --faults file allows only %s", all[who].Agent, kind,
					name, strings.Join(can, ", "))
			}
		}
		targets[all[who].Agent] = append(targets[all[who].Agent], name)
	}
	return all, targets, ""
}

func targetList(agents []wire.AgentInfo) string {
	var list []string
	for _, a := range agents {
		for _, name := range slices.Sorted(maps.Keys(a.Targets)) {
			if text := fmt.Sprintf("%s (%s)", name, strings.Join(a.Targets[name], ", ")); !slices.Contains(list, text) {
				list = append(list, text)
			}
		}
	}
	if len(list) == 0 {
		return "no available agent has a target"
	}
	return "available targets: " + strings.Join(list, "; ")
}

func names(agents []wire.AgentInfo) []string {
	list := make([]string, len(agents))
	for i, a := range agents {
		list[i] = a.Agent
	}
	return list
}
