package agent

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// Standing is what an agent tells of itself while Serve runs, to whoever watches over it. The zero value is one of which nothing is known yet. Safe for
// concurrent use; what it is asked takes no part in any measurement.
type Standing struct {
	mu    sync.Mutex
	slots []*server
}

// Slots are all of the agent's: what each says to the controller.
func (s *Standing) Slots() (all []wire.Heartbeat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range s.slots {
		all = append(all, slot.heartbeat())
	}
	return all
}

// Phase is the phase of the task of a slot; empty: it has none.
func (s *Standing) Phase(agent string) plan.Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range s.slots {
		if t := slot.current.Load(); t != nil && slot.cfg.Name == agent {
			return t.currentPhase()
		}
	}
	return ""
}

// add notes a slot. Of nil nothing is noted.
func (s *Standing) add(slot *server) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots = append(s.slots, slot)
}

// maxStall is for how long a slot may send no heartbeat. Each attempt to send one has a shorter limit.
const maxStall = 30 * time.Second

// Stuck returns an error that names the slots which send no heartbeats any more; nil: there are none.
func (s *Standing) Stuck() error {
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
	return fmt.Errorf("no heartbeat for %v from %s; send SIGQUIT for the stacks of all goroutines", maxStall, strings.Join(stuck, ", "))
}
