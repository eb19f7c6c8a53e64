package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// schedulingPass is what one look at the queue finds in use. Runs are looked at in the order submitted, and each reserves
// what the later ones must leave it. The queue's mutex is held.
type schedulingPass struct {
	living  []wire.AgentInfo      // that can take a task, sorted by name
	users   map[string]*queuedRun // of agents
	brokers map[string]*queuedRun // of identities of brokers
	running int
}

// pass begins a look at the queue: executed runs have what they have, and free agents in place of those that they lost.
func (q *queue) pass() *schedulingPass {
	p := &schedulingPass{living: q.agents.fit(), users: map[string]*queuedRun{}, brokers: map[string]*queuedRun{}}
	for _, r := range q.runs {
		if !r.executed() {
			continue
		}
		p.running++
		for id := range r.brokers {
			p.brokers[id] = r
		}
		for name := range r.agents {
			if r.former || q.agents.there(name) {
				p.users[name] = r
			} else {
				delete(r.agents, name)
			}
		}
	}
	for _, r := range q.runs {
		if r.begun && !r.former {
			p.supply(r)
		}
	}
	return p
}

// supply gives a run the free agents that it lacks, and returns the first cell that there are too few for. Then all free
// agents that the run could use are reserved for it.
func (p *schedulingPass) supply(r *queuedRun) (short *plan.Cell) {
	for i, c := range r.needs {
		chosen, missing := staff(c, append(p.of(r), p.of(nil)...)) // what it has comes first
		if missing != nil && short == nil {
			short = &r.needs[i]
		}
		for _, a := range chosen {
			r.agents[a.Agent], p.users[a.Agent] = true, r
		}
	}
	for _, a := range p.of(nil) {
		if short != nil && slices.ContainsFunc(r.needs, func(c plan.Cell) bool { return useful(a, c.Workload) }) {
			p.users[a.Agent] = r
		}
	}
	return short
}

// of lists the agents that a run uses, or those that none does.
func (p *schedulingPass) of(user *queuedRun) []wire.AgentInfo {
	return slices.DeleteFunc(slices.Clone(p.living), func(a wire.AgentInfo) bool { return p.users[a.Agent] != user })
}

// useful reports whether an agent could take part in a cell.
func useful(a wire.AgentInfo, w plan.Workload) bool {
	for name := range w.Targets() {
		if a.Targets[name] != nil {
			return true
		}
	}
	return slices.ContainsFunc(w.Roles(), func(r plan.Role) bool { return !a.Observer && r.On.Within(a.Labels) })
}

// admit says what a run waits for; empty: it begins. A run that waits for others to end reserves its brokers, and the free
// agents that it needs, or all that it could use while these are too few: nothing that was submitted later delays it. A run
// whose agents are missing, as all that live could not serve it, reserves nothing. It is refused when they have been missing
// for gather and nothing else keeps it from beginning.
func (q *queue) admit(p *schedulingPass, r *queuedRun) (waiting string) {
	var missing *wire.End
	for _, c := range r.needs {
		if _, missing = staff(c, p.living); missing != nil {
			break
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.brokers)) {
		if user := p.brokers[id]; user != nil && waiting == "" {
			waiting = fmt.Sprintf("broker %s, %s", r.brokers[id], user.uses())
		} else if user == nil && missing == nil {
			p.brokers[id] = r
		}
	}
	if waiting == "" && p.running >= q.maxRuns {
		waiting = fmt.Sprintf("its turn: at most %d runs are executed side by side", q.maxRuns)
	}
	if missing != nil {
		if r.short.IsZero() {
			r.short = time.Now()
			time.AfterFunc(q.gather, q.wake)
		}
		if waiting == "" && time.Since(r.short) >= q.gather {
			r.refusal, r.needs, r.brokers = missing, nil, nil
			return ""
		}
		return missing.Detail
	}
	r.short = time.Time{}
	if short := p.supply(r); short != nil && waiting == "" {
		waiting = q.lack(p, r, short.Workload)
	}
	if waiting == "" {
		p.running++
	} else {
		clear(r.agents)
	}
	return waiting
}

// lack says how many agents a run waits for, and which runs have them.
func (q *queue) lack(p *schedulingPass, r *queuedRun, w plan.Workload) string {
	_, lack := cast(w, p.of(r))
	need := map[string]int{} // by labels
	for _, role := range lack {
		need[role.On.String()] += role.Agents
	}
	var wanted []string
	for _, on := range slices.Sorted(maps.Keys(need)) {
		text := fmt.Sprintf("%d more agents with %s", need[on], on)
		if need[on] == 1 {
			text = "1 more agent with " + on
		}
		wanted = append(wanted, strings.TrimSuffix(text, " with "))
	}
	words := []string{cmp.Or(strings.Join(wanted, " and "), "agents for its faults")}
	for _, user := range q.runs {
		if slices.ContainsFunc(p.living, func(a wire.AgentInfo) bool { return user != r && p.users[a.Agent] == user && useful(a, w) }) {
			words = append(words, user.uses())
		}
	}
	return strings.Join(words, ", ")
}

// uses says that a run has what another waits for, or will have it first.
func (r *queuedRun) uses() string {
	if r.executed() {
		return "used by run " + r.Run
	}
	return "reserved for run " + r.Run
}
