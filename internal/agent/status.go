package agent

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// Status is the state of an agent while Serve runs, for metrics and a watchdog. The zero value has no slots. Reading it
// does not affect measurements. Safe for concurrent use.
type Status struct {
	mu    sync.Mutex
	slots []*slot
}

// Slots returns the heartbeat of each of the agent's slots.
func (s *Status) Slots() (all []wire.Heartbeat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range s.slots {
		all = append(all, slot.heartbeat())
	}
	return all
}

// Phase returns the phase of a slot's task; empty: it has no task.
func (s *Status) Phase(agent string) plan.Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range s.slots {
		if l := slot.current.Load(); l != nil && slot.cfg.Name == agent {
			return l.timeline.currentPhase()
		}
	}
	return ""
}

// add adds a slot. The receiver may be nil.
func (s *Status) add(slot *slot) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots = append(s.slots, slot)
}

// maxStall is the maximum time without a heartbeat of a slot. It is longer than each attempt to send one may take.
const maxStall = 30 * time.Second

// Stuck returns an error that names the slots which no longer send heartbeats; nil: none.
func (s *Status) Stuck() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var stuck []string
	for _, slot := range s.slots {
		if at := slot.reported.Load(); at != nil && time.Since(*at) > maxStall {
			stuck = append(stuck, slot.cfg.Name)
		}
	}
	if stuck == nil {
		return nil
	}
	return fmt.Errorf("no heartbeat for %v from %s; send SIGQUIT for the stacks of all goroutines",
		maxStall, strings.Join(stuck, ", "))
}
