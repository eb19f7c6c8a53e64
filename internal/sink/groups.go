package sink

import (
	"strings"

	"lockstep/internal/plan"
	"lockstep/pkg/drivers"
)

// several stands for the mode of a cell whose groups publish in different ones, and for the broker of contenders.
const several = "several"

// modeOf is how a cell's publishers send.
func modeOf(w plan.Workload) string {
	parts := w.Parts()
	for _, p := range parts {
		if p.Publishers.Mode != parts[0].Publishers.Mode {
			return several
		}
	}
	return parts[0].Publishers.Mode
}

// confirmed tells whether any of a cell's messages are.
func confirmed(w plan.Workload) bool {
	for _, p := range w.Parts() {
		if drivers.Mode(p.Publishers.Mode).Confirmed() {
			return true
		}
	}
	return false
}

// groups are the parts of a task that its agents belong to; none where the cell has no groups.
func groups(b Start) map[string]plan.Task {
	all := map[string]plan.Task{}
	if len(b.Agents) < b.Task.Cell.Agents() || len(b.Task.Cell.Workload.Groups) == 0 {
		return all
	}
	for _, a := range plan.Assign(b.Task, b.Agents) {
		all[a.Agent] = a.Task
	}
	return all
}

// tagsOf are the tags of what an agent does: its group's, where it belongs to one.
func (t *task) tagsOf(agent string) map[string]string {
	tags := with(t.tags, "agent", agent, "role", t.role(agent).String())
	if part, in := t.groups[agent]; in {
		tags = with(tags, "group", part.Group, "mode", part.Cell.Workload.Publishers.Mode, "broker", part.Cell.Broker.Name, "driver", part.Cell.Broker.Driver)
	}
	return tags
}

// tagsOfObserver are those of an agent that measures a broker's processes and takes no load.
func (t *task) tagsOfObserver(agent, broker string) map[string]string {
	for _, b := range t.Cell.Brokers() {
		if b.Name == broker {
			return with(t.tags, "agent", agent, "role", "observer", "broker", b.Name, "driver", b.Driver)
		}
	}
	return with(t.tags, "agent", agent, "role", "observer")
}

// ofGroup are the tags of what is of a group: a contender has a broker of its own.
func (t *task) ofGroup(group string) map[string]string {
	for _, part := range t.Parts() {
		if group != "" && part.Group == group {
			return with(t.tags, "broker", part.Cell.Broker.Name, "driver", part.Cell.Broker.Driver)
		}
	}
	return t.tags
}

// confirms tells whether what an agent sends is confirmed.
func (t *task) confirms(agent string) bool {
	if part, in := t.groups[agent]; in {
		return confirmed(part.Cell.Workload)
	}
	return t.confirm
}

// groupOutcomes are what came of the groups of a task.
func (t *task) groupOutcomes(o plan.Outcome) []Point {
	var points []Point
	for _, part := range t.Parts() {
		for _, g := range o.Groups {
			if g.Name != part.Group {
				continue
			}
			fields := valueFields(g.Values)
			for key, s := range map[string]string{"reasons": strings.Join(g.Reasons, "; "), "label": part.Cell.Label} {
				if s != "" {
					fields[key] = text(plan.Redact(s))
				}
			}
			points = append(points, Point{measureGroup, with(t.tags, "group", g.Name, "mode", part.Cell.Workload.Publishers.Mode, "broker", part.Cell.Broker.Name,
				"driver", part.Cell.Broker.Driver, "verdict", string(g.Verdict)), fields, o.Ended})
		}
	}
	return points
}
