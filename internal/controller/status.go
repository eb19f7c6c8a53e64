package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// Status is the state of a controller while Serve runs. The zero value is ready to use. Safe for concurrent use.
type Status struct {
	epoch atomic.Uint64
	mu    sync.Mutex
	tasks map[plan.Verdict]uint64
	loops map[string]time.Time // the deadline of each loop's next report
}

// Leads returns the epoch of this controller's leadership; 0: it stands by.
func (s *Status) Leads() uint64 { return s.epoch.Load() }

// Tasks returns the number of tasks that got an outcome from this process, by verdict.
func (s *Status) Tasks() map[plan.Verdict]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[plan.Verdict]uint64{plan.Valid: 0, plan.Invalid: 0, plan.Unknown: 0}
	maps.Copy(all, s.tasks)
	return all
}

func (s *Status) count(verdict plan.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks == nil {
		s.tasks = map[plan.Verdict]uint64{}
	}
	s.tasks[verdict]++
}

// Loops of a leadership report progress at least every reportEvery. A loop that has not reported for maxStall is stuck.
const (
	reportEvery = 5 * time.Second
	maxStall    = 30 * time.Second // in addition to an announced wait
)

// watch monitors the progress of a loop, which must use the returned context, until stop is called.
func (s *Status) watch(ctx context.Context, loop string) (watched context.Context, stop func()) {
	report := func(within time.Duration) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.loops == nil {
			s.loops = map[string]time.Time{}
		}
		s.loops[loop] = time.Now().Add(within + maxStall)
	}
	report(0)
	return wire.WithProgress(ctx, report), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.loops, loop)
	}
}

// Stuck returns an error that names the loops without progress; nil: all make progress.
func (s *Status) Stuck() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	stuck := maps.Clone(s.loops)
	maps.DeleteFunc(stuck, func(_ string, until time.Time) bool { return time.Now().Before(until) })
	if len(stuck) == 0 {
		return nil
	}
	return fmt.Errorf("no progress for %v longer than announced: %s; send SIGQUIT for the stacks of all goroutines",
		maxStall, strings.Join(slices.Sorted(maps.Keys(stuck)), ", "))
}
