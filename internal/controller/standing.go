package controller

import (
	"sync"
	"sync/atomic"

	"lockstep/internal/plan"
)

// Standing is what a controller tells of itself while Serve runs, to whoever watches over it. The zero value is one of which nothing is known yet. Safe for
// concurrent use.
type Standing struct {
	epoch atomic.Uint64
	mu    sync.Mutex
	tasks map[plan.Verdict]uint64
}

// Leads is the leadership that this controller has; 0: it stands by.
func (s *Standing) Leads() uint64 { return s.epoch.Load() }

// Tasks counts the tasks that got an outcome from this controller, by verdict, since the process began.
func (s *Standing) Tasks() map[plan.Verdict]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[plan.Verdict]uint64{plan.Valid: 0, plan.Invalid: 0, plan.Unknown: 0}
	for verdict, n := range s.tasks {
		all[verdict] = n
	}
	return all
}

// lead notes a leadership, or with 0 that there is none any more. Of nil nothing is noted.
func (s *Standing) lead(epoch uint64) {
	if s != nil {
		s.epoch.Store(epoch)
	}
}

// count notes an outcome.
func (s *Standing) count(verdict plan.Verdict) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks == nil {
		s.tasks = map[plan.Verdict]uint64{}
	}
	s.tasks[verdict]++
}
