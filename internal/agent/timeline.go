package agent

import (
	"errors"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// errNoStart is the error of a start release that does not have this host's clock.
var errNoStart = errors.New("no start time from the controller for clock " + clock.ID())

// timeline has the start times of an attempt's phases on this agent's clock. Safe for concurrent use.
type timeline struct {
	work plan.Workload

	mu        sync.Mutex
	phase     plan.Phase
	begin     int64         // clock.Now() at T0; 0: not known yet
	measure   time.Duration // from T0 to the measurement, for warmup "auto"; 0: not known yet
	ahead     int64         // ns by which this clock is ahead of the reference, as used for the start
	reference string        // id of the reference clock of the task
}

// setStart sets the start of the load.
func (t *timeline) setStart(r wire.Release) error {
	start, named := r.Start[clock.ID()]
	if !named {
		return errNoStart
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin = start + t.work.Warmup.D().Nanoseconds()
	t.reference, t.ahead = r.Clock, start-r.Start[r.Clock]
	return nil
}

// agreed returns the start of the load, T0, and the reference clock with the lead that was used for the start.
func (t *timeline) agreed() (start, begin, ahead int64, reference string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begin - t.work.Warmup.D().Nanoseconds(), t.begin, t.ahead, t.reference
}

// t0 returns clock.Now() at T0; 0: not known yet.
func (t *timeline) t0() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begin
}

// setMeasurement sets the start of the measurement, since T0.
func (t *timeline) setMeasurement(since time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.measure = since
}

// measurement returns the start of the measurement since T0; 0 also while it is not known.
func (t *timeline) measurement() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.measure
}

func (t *timeline) setPhase(p plan.Phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = p
}

// currentPhase returns the phase of this agent. Between start and stop it follows from the time.
func (t *timeline) currentPhase() plan.Phase {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, measured := clock.Now(), t.begin+t.measure.Nanoseconds()
	switch {
	case t.phase != plan.PhaseReady || t.begin == 0 || now < t.begin-t.work.Warmup.D().Nanoseconds():
		return t.phase
	case now < measured || t.work.Steady.Auto && t.measure == 0:
		return plan.PhaseWarmup
	case now < measured+t.work.Measure.D().Nanoseconds():
		return plan.PhaseMeasure
	}
	return plan.PhaseDrain
}
