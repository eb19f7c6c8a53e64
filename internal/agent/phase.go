package agent

import (
	"context"
	"fmt"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// setMeasurement has the measurement begin when the controller says so, while the load runs, and answers with what was set.
func (t *task) setMeasurement(ctx context.Context, r wire.Release) {
	e := t.theEngine()
	if e == nil {
		t.arrive(ctx, r.Step, fmt.Errorf("begin the measurement on agent %s: the load does not run yet", t.cfg.Name))
		return
	}
	if err := e.Measure(time.Duration(r.Begin)); err != nil {
		t.arrive(ctx, r.Step, fmt.Errorf("agent %s: %w", t.cfg.Name, err))
		return
	}
	t.mu.Lock()
	t.cut = r.Begin
	t.mu.Unlock()
	close(t.told)
	t.arrive(ctx, r.Step, nil)
}

// measurement is when the measurement begins, since T0: 0 also while that is to be found out.
func (t *task) measurement() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Duration(t.cut)
}

// currentPhase is where this agent is; between start and stop the clock tells.
func (t *task) currentPhase() plan.Phase {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, begin := clock.Now(), t.begin+t.cut
	switch {
	case t.phase != plan.PhaseReady || t.begin == 0 || now < t.begin-t.work.Warmup.D().Nanoseconds():
		return t.phase
	case now < begin || t.work.Steady.Auto && t.cut == 0:
		return plan.PhaseWarmup
	case now < begin+t.work.Measure.D().Nanoseconds():
		return plan.PhaseMeasure
	}
	return plan.PhaseDrain
}
