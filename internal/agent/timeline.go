package agent

import (
	"errors"
	"sync"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// errNoStart is a release that does not name this host's clock.
var errNoStart = errors.New("controller named no start time for clock " + clock.ID())

// timeline is when the phases of an attempt begin, on this agent's clock. Safe for concurrent use.
type timeline struct {
	work plan.Workload

	mu        sync.Mutex
	phase     plan.Phase
	begin     int64         // clock.Now() at T0; 0: not known yet
	measure   time.Duration // from T0 to the measurement, where that is found out while the load runs; 0: not known yet
	ahead     int64         // ns by which the agreed start takes this clock to be ahead of the reference
	reference string        // id of the clock that all agents of the task compare theirs with
}

// setStart sets when the load starts.
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

// agreed returns when the load starts and T0, and by how much this clock was taken to be ahead of the reference for
// that.
func (t *timeline) agreed() (start, begin, ahead int64, reference string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begin - t.work.Warmup.D().Nanoseconds(), t.begin, t.ahead, t.reference
}

// t0 is clock.Now() at T0; 0 while it is not known.
func (t *timeline) t0() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begin
}

// setMeasurement sets when the measurement begins, since T0.
func (t *timeline) setMeasurement(since time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.measure = since
}

// measurement is when the measurement begins, since T0: 0 also while that is to be found out.
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

// currentPhase is the phase of this agent; between start and stop it follows from the time.
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
