package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// walk is one pass over all claims, in the order submitted: each takes what it needs of what those before it left. A run that waits keeps its brokers
// and as many free agents as it needs, or all that it could use while they are too few; so nothing that comes later delays it.
type walk struct {
	fit     []wire.AgentInfo  // of the fleet, sorted by name
	free    []wire.AgentInfo  // of these, what nobody has or keeps
	user    map[string]*claim // agents to the run that has or keeps them
	brokers map[string]*claim
	runs    int // that are executed
	most    int
}

// survey begins a walk. The caller holds mu.
func (q *queue) survey() *walk {
	w := &walk{fit: q.agents.fit(), user: map[string]*claim{}, brokers: map[string]*claim{}, most: q.most}
	for _, c := range q.claims {
		if !c.begun && !c.former {
			continue
		}
		w.runs++
		for name := range c.agents {
			if !c.former && !q.agents.there(name) {
				delete(c.agents, name) // lost; another may take its place
				continue
			}
			w.user[name] = c
		}
		for key := range c.brokers {
			w.brokers[key] = c
		}
	}
	for _, a := range w.fit {
		if w.user[a.Agent] == nil {
			w.free = append(w.free, a)
		}
	}
	return w
}

// next makes the runs begin whose turn it is, and returns them, and those that wait for something else than before.
func (q *queue) next() (begin, waiting []*claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.read { // one that is further back may have been begun by a former leader, and have its agents
		return nil, nil
	}
	w := q.survey()
	for i, c := range q.claims {
		switch {
		case c.begun:
			if !c.former {
				w.supply(c)
			}
			continue
		case c.former:
		case c.over:
			if q.earlier(i) != nil {
				continue
			}
		default:
			short := w.supply(c)
			why := ""
			if before := q.earlier(i); before != nil {
				why = "its earlier submission"
			} else {
				why = w.waits(c, short)
			}
			if why != "" {
				w.keep(c)
				if c.waiting != why {
					c.waiting = why
					waiting = append(waiting, c)
				}
				continue
			}
			w.runs++
		}
		for key := range c.brokers {
			w.brokers[key] = c
		}
		c.begun = true
		begin = append(begin, c)
	}
	return begin, waiting
}

// earlier is another submission of the same run, before this one.
func (q *queue) earlier(i int) *claim {
	for _, c := range q.claims[:i] {
		if c.Run == q.claims[i].Run {
			return c
		}
	}
	return nil
}

// fit returns the agents that an executed run may use, sorted by name; those that were lost are replaced by what is free for it.
func (q *queue) fit(c *claim) []wire.AgentInfo {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.survey()
	for _, o := range q.claims {
		if !o.former {
			w.supply(o)
		}
		if o == c {
			break
		}
		if !o.begun && !o.former {
			w.keep(o)
		}
	}
	return w.of(c)
}

// of lists the agents of a claim that can take a task.
func (w *walk) of(c *claim) []wire.AgentInfo {
	return slices.DeleteFunc(slices.Clone(w.fit), func(a wire.AgentInfo) bool { return !c.agents[a.Agent] })
}

// supply gives a claim the agents that it lacks, as far as there are any, and returns the first need that stays unmet.
func (w *walk) supply(c *claim) (short *plan.Workload) {
	for i := range c.wants {
		own := w.of(c)
		all, met := pick(c.wants[i], own)
		if !met {
			all, met = pick(c.wants[i], append(own, w.free...)) // what it has comes first
		}
		if !met {
			if short == nil {
				short = &c.wants[i]
			}
			continue
		}
		for _, a := range all {
			c.agents[a.Agent] = true
			w.take(a.Agent, c)
		}
	}
	if short != nil { // what it could use is its own as soon as it is enough
		for i := range c.wants {
			w.hold(c, c.wants[i])
		}
	}
	return short
}

// pick chooses the agents of a workload, those that do its faults included.
func pick(w plan.Workload, there []wire.AgentInfo) (all []wire.AgentInfo, met bool) {
	chosen, lack := cast(w, there)
	if lack > 0 {
		return nil, false
	}
	all, _, missing := disturbers(w, chosen, there)
	return all, missing == ""
}

func (w *walk) take(name string, c *claim) {
	w.user[name] = c
	w.free = slices.DeleteFunc(w.free, func(a wire.AgentInfo) bool { return a.Agent == name })
}

// hold keeps all free agents that a workload could use from the claims that follow.
func (w *walk) hold(c *claim, work plan.Workload) {
	targets := work.Targets()
	for _, a := range slices.Clone(w.free) {
		use := slices.ContainsFunc(work.Roles(), func(r plan.Role) bool { return !a.Observer && r.On.Within(a.Labels) })
		for name := range targets {
			use = use || a.Targets[name] != nil
		}
		if use {
			w.take(a.Agent, c)
		}
	}
}

// keep lets a run that waits keep its brokers and agents from those that follow, without having them.
func (w *walk) keep(c *claim) {
	clear(c.agents)
	for key := range c.brokers {
		if w.brokers[key] == nil {
			w.brokers[key] = c
		}
	}
}

// waits says what a run waits for; empty: it begins. One that all agents which are there could not serve begins, too: it is refused if they do not come.
func (w *walk) waits(c *claim, short *plan.Workload) string {
	for _, key := range slices.Sorted(maps.Keys(c.brokers)) {
		if by := w.brokers[key]; by != nil && by != c {
			return fmt.Sprintf("broker %s, %s", c.brokers[key], by.uses())
		}
	}
	if short != nil {
		if _, met := pick(*short, w.fit); met {
			return w.lack(c, *short)
		}
	}
	if w.runs >= w.most {
		return fmt.Sprintf("its turn: at most %d runs are executed side by side", w.most)
	}
	return ""
}

// uses says in words that a run has what another waits for, or will have it first.
func (c *claim) uses() string {
	if c.begun || c.former {
		return "used by run " + c.Run
	}
	return "kept for run " + c.Run
}

// lack says how many agents a run waits for, and who has them.
func (w *walk) lack(c *claim, work plan.Workload) string {
	var wanted []string
	var by []*claim
	need := map[string]int{}
	for _, r := range work.Roles() {
		need[r.On.String()] += r.Agents
	}
	for _, r := range work.Roles() {
		n := need[r.On.String()]
		delete(need, r.On.String())
		for _, a := range w.fit {
			if a.Observer || !r.On.Within(a.Labels) {
				continue
			}
			if user := w.user[a.Agent]; user == nil || user == c {
				n--
			} else if !slices.Contains(by, user) {
				by = append(by, user)
			}
		}
		if n > 0 {
			wanted = append(wanted, agentsWith(n, r.On))
		}
	}
	if len(wanted) == 0 { // one agent would have to do two things, or those that do the faults are missing
		wanted = []string{"other agents"}
	}
	slices.SortFunc(by, func(a, b *claim) int { return cmp.Compare(a.Seq, b.Seq) })
	words := []string{strings.Join(wanted, " and ")}
	for _, o := range by {
		words = append(words, o.uses())
	}
	return strings.Join(words, ", ")
}

func agentsWith(n int, on plan.Labels) string {
	text := fmt.Sprintf("%d more agents", n)
	if n == 1 {
		text = "1 more agent"
	}
	if len(on) > 0 {
		text += " with " + on.String()
	}
	return text
}
