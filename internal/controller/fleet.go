package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// fleet tracks the living agents. Safe for concurrent use.
type fleet struct {
	log      *slog.Logger
	mu       sync.Mutex
	members  map[string]*member
	previous map[string][]previousProcess // by agent
	lost     map[string]wire.AgentInfo    // lost observers that have not come back
	refused  map[string]wire.AgentInfo    // recently refused, by agent
	changed  chan struct{}                // closed and replaced at every change of the members or their tasks
	lines    map[string]int               // written to the log since counted, by agent
	counted  time.Time
}

// maxLines is the maximum number of log lines about an agent per minute. A name may have any number of processes.
const maxLines = 10

// maxMembers bounds the memory that heartbeats with ever new names can use.
const maxMembers = 20_000

// previousProcess is an earlier process of an agent's name. Its messages may arrive late.
type previousProcess struct {
	instance string
	seen     time.Time
	left     bool // it sent a leaving heartbeat
}

// maxPrevious is the number of previous processes kept per name.
const maxPrevious = 16

type member struct {
	info  wire.AgentInfo
	stuck string // id of a task that it did not end in time
}

func newFleet(log *slog.Logger) *fleet {
	return &fleet{log: log, members: map[string]*member{}, previous: map[string][]previousProcess{},
		lost: map[string]wire.AgentInfo{}, refused: map[string]wire.AgentInfo{}, changed: make(chan struct{}),
		lines: map[string]int{}}
}

// note logs a change of an agent, beyond maxLines as a debug message. The caller holds mu.
func (f *fleet) note(level slog.Level, text string, h wire.Heartbeat) {
	if time.Since(f.counted) > time.Minute {
		clear(f.lines)
		f.counted = time.Now()
	}
	if f.lines[h.Agent]++; f.lines[h.Agent] > maxLines {
		level = slog.LevelDebug
	}
	f.log.Log(context.Background(), level, text, "agent", h.Agent, "host", h.Host)
}

// heartbeat handles a heartbeat. It returns why the agent is refused; empty: it is accepted.
func (f *fleet) heartbeat(h wire.Heartbeat) (refuse string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[h.Agent]
	if m != nil && m.info.Instance != h.Instance {
		if slices.ContainsFunc(f.previous[h.Agent], func(o previousProcess) bool { return o.instance == h.Instance }) {
			if h.Leaving { // two processes report, or an old one reports late: it does not get the name back
				return ""
			}
			return fmt.Sprintf("duplicate agent name %q: an agent with this name runs on host %s; pass a unique --name",
				h.Agent, m.info.Host)
		}
		f.drop(m, slog.LevelWarn, "replaced by a new process")
		m = nil
	}
	if h.Leaving {
		if m != nil {
			m.info.Leaving = true
			f.drop(m, slog.LevelInfo, "left")
		}
		return ""
	}
	if m == nil {
		if len(f.members) >= maxMembers {
			return fmt.Sprintf("the controller already has %d agents, the maximum", maxMembers)
		}
		m = &member{}
		f.members[h.Agent] = m
		delete(f.lost, h.Agent)
		f.note(slog.LevelInfo, "agent joined", h)
		f.notify()
	}
	if h.Draining && !m.info.Draining {
		f.note(slog.LevelInfo, "agent is leaving after its task", h)
		f.notify()
	}
	if h.Attempt != m.info.Attempt {
		f.notify()
	}
	m.info.Heartbeat, m.info.Seen = h, time.Now()
	if m.stuck != "" && h.Busy != m.stuck {
		m.stuck = ""
		f.notify()
	}
	return ""
}

// alive counts a message of an agent's current process as a sign of life. A message of a former process does not count.
func (f *fleet) alive(a wire.AgentInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[a.Agent]; m != nil && m.info.Instance == a.Instance {
		m.info.Seen = time.Now()
	}
}

// silenceEvery is the interval at which the fleet looks for silent agents.
const silenceEvery = wire.HeartbeatEvery / 2

// dropSilent drops agents that were silent for wire.LostAfter, until ctx ends. Time in which the control plane did not
// answer (rtt), or this process did not run, does not count: no heartbeat can be received then.
func (f *fleet) dropSilent(ctx context.Context, rtt func(context.Context) (time.Duration, error)) {
	listening := time.Now() // since when heartbeats can be received
	for at := listening; wire.Wait(ctx, silenceEvery) == nil; at = time.Now() {
		if _, err := rtt(ctx); err != nil || time.Since(at) > silenceEvery+wire.LostAfter/2 {
			listening = time.Now()
		}
		f.mu.Lock()
		for name, m := range f.members {
			if min(time.Since(m.info.Seen), time.Since(listening)) < wire.LostAfter {
				continue
			}
			if m.info.Observer && len(f.lost) < maxMembers {
				f.lost[name] = m.info
			}
			f.drop(m, slog.LevelWarn, fmt.Sprintf("sent no heartbeat for %v", wire.LostAfter))
		}
		f.mu.Unlock()
	}
}

// drop removes a member. The caller holds mu.
func (f *fleet) drop(m *member, level slog.Level, why string) {
	name := m.info.Agent
	delete(f.members, name)
	if len(f.previous) >= maxMembers {
		// it only serves to recognise late messages, and two processes with one name
		clear(f.previous)
	}
	list := slices.DeleteFunc(f.previous[name], func(o previousProcess) bool { return o.instance == m.info.Instance })
	list = append(list, previousProcess{m.info.Instance, m.info.Seen, m.info.Leaving})
	f.previous[name] = list[max(0, len(list)-maxPrevious):]
	f.note(level, "agent "+why, m.info.Heartbeat)
	f.notify()
}

// notify wakes the waiting goroutines. The caller holds mu.
func (f *fleet) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// agentsFreed wakes the waiting goroutines.
func (f *fleet) agentsFreed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notify()
}

// watch returns a channel that is closed at the next change of the fleet. It reports the progress of ctx.
func (f *fleet) watch(ctx context.Context) <-chan struct{} {
	wire.Progress(ctx, 0)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// process reports whether the process of an assigned agent lives. For a process that has ended it returns whether it
// left in order, and the time since its last message; 0: not known.
func (f *fleet) process(a wire.AgentInfo) (lives, left bool, silence time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[a.Agent]; m != nil && m.info.Instance == a.Instance {
		return true, false, 0
	}
	for _, o := range f.previous[a.Agent] {
		if o.instance == a.Instance {
			return false, o.left, time.Since(o.seen)
		}
	}
	return false, false, 0
}

// markStuck marks an agent that did not end a task in time. It gets no other task while its heartbeat names this one.
func (f *fleet) markStuck(a wire.AgentInfo, task string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[a.Agent]; m != nil && m.info.Instance == a.Instance {
		m.stuck = task
	}
}

func (f *fleet) has(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[name] != nil
}

// await waits until left returns no remaining time or an error, and returns that error. It calls left now, after each
// report, after each change of the fleet, and at least every reportEvery. If ctx ends, it returns the cause of ctx.
// take is called for one report at a time. reports may be nil.
func (f *fleet) await(ctx context.Context, reports <-chan agentReport, take func(agentReport),
	left func() (time.Duration, error)) error {
	for ctx.Err() == nil {
		changed := f.watch(ctx)
		d, err := left()
		if err != nil || d <= 0 {
			return err
		}
		late := time.NewTimer(min(d, reportEvery))
		select {
		case r := <-reports:
			take(r)
		case <-changed:
		case <-late.C:
		case <-ctx.Done():
		}
		late.Stop()
	}
	return context.Cause(ctx)
}

// awaitThat waits until done returns true, for at most limit.
func (f *fleet) awaitThat(ctx context.Context, limit time.Duration, done func() bool) {
	began := time.Now()
	_ = f.await(ctx, nil, nil, func() (time.Duration, error) { // the caller's next step finds the end of ctx
		if done() {
			return 0, nil
		}
		return limit - time.Since(began), nil
	})
}

// list returns the living agents, sorted by name.
func (f *fleet) list() []wire.AgentInfo { return f.filter(func(*member) bool { return true }) }

// available returns the agents that can accept a task, sorted by name.
func (f *fleet) available() []wire.AgentInfo {
	return f.filter(func(m *member) bool { return m.stuck == "" && !m.info.Draining })
}

func (f *fleet) filter(want func(*member) bool) []wire.AgentInfo {
	f.mu.Lock()
	defer f.mu.Unlock()
	agents := make([]wire.AgentInfo, 0, len(f.members))
	for _, m := range f.members {
		if want(m) {
			agents = append(agents, m.info)
		}
	}
	slices.SortFunc(agents, byName)
	return agents
}

// lostObservers returns the lost observers, sorted by name. Their brokers are not measured.
func (f *fleet) lostObservers() []wire.AgentInfo {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Values(f.lost), byName)
}

func byName(a, b wire.AgentInfo) int { return cmp.Compare(a.Agent, b.Agent) }

// Bounds of the list of refused agents, which is only for people.
const (
	maxRefused = 100
	refusedFor = 30 * time.Second
)

// refuse adds an agent to the list of refused agents.
func (f *fleet) refuse(h wire.Heartbeat, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, again := f.refused[h.Agent]; !again {
		f.forgetRefused()
		if len(f.refused) >= maxRefused {
			return
		}
		f.log.Warn("agent refused", "agent", h.Agent, "host", h.Host, "version", h.Version, "why", why)
	}
	f.refused[h.Agent] = wire.AgentInfo{Heartbeat: h, Seen: time.Now(), Refused: why}
}

// forgetRefused removes agents whose last refusal is older than refusedFor. The caller holds mu.
func (f *fleet) forgetRefused() {
	maps.DeleteFunc(f.refused, func(_ string, a wire.AgentInfo) bool { return time.Since(a.Seen) >= refusedFor })
}

// known returns the living agents, sorted by name, followed by the recently refused ones.
func (f *fleet) known() []wire.AgentInfo {
	agents := f.list()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetRefused()
	return append(agents, slices.SortedFunc(maps.Values(f.refused), byName)...)
}

// assignAgents chooses the agents of a cell, including those that inject its faults. missing: there are too few.
func assignAgents(c plan.Cell, there []wire.AgentInfo) (all []wire.AgentInfo, missing *wire.End) {
	chosen, unfilled := assignRoles(c.Workload, there)
	if len(unfilled) > 0 {
		return nil, shortage(c, there)
	}
	all, _, why := faultAgents(c.Workload, chosen, there)
	if why != "" {
		return nil, &wire.End{Reason: wire.EndNoTarget, Detail: why}
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
