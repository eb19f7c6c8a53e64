package controller

import (
	"cmp"
	"slices"
	"time"

	"lockstep/internal/wire"
)

// Bounds of the list of refused agents, which is for people.
const (
	mostRefused = 100
	refusedFor  = 30 * time.Second
)

// refusals are the agents that were refused lately, by name.
type refusals map[string]wire.AgentInfo

func (r refusals) expire(now time.Time) {
	for name, a := range r {
		if now.Sub(a.Seen) >= refusedFor {
			delete(r, name)
		}
	}
}

// refuse notes that an agent was refused.
func (f *fleet) refuse(h wire.Heartbeat, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused == nil {
		f.refused = refusals{}
	}
	now := time.Now()
	_, again := f.refused[h.Agent]
	if !again {
		f.refused.expire(now)
		if len(f.refused) >= mostRefused {
			return
		}
		f.log.Warn("refused an agent", "agent", h.Agent, "host", h.Host, "version", h.Version, "why", why)
	}
	f.refused[h.Agent] = wire.AgentInfo{Heartbeat: h, Seen: now, Refused: why}
}

// known lists the living agents, sorted by name, and after them those that were refused lately.
func (f *fleet) known() []wire.AgentInfo {
	agents := f.list()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused.expire(time.Now())
	first := len(agents)
	for _, a := range f.refused {
		agents = append(agents, a)
	}
	slices.SortFunc(agents[first:], func(a, b wire.AgentInfo) int { return cmp.Compare(a.Agent, b.Agent) })
	return agents
}
