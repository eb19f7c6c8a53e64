package agent

import (
	"context"
	"fmt"
	"slices"

	"lockstep/internal/clock"
	"lockstep/internal/netsim"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire"
)

// startFaults does what the cell's faults ask of this agent, each at its time, from beside the engine. All are undone when ctx ends at the latest;
// live waits for that. One that fails ends the task.
func (t *task) startFaults(ctx context.Context) {
	for _, f := range t.work.Faults {
		if !t.does(f) {
			continue
		}
		t.faulting.Go(func() {
			if err := t.fault(ctx, f); err != nil {
				t.log.Error("fault", "fault", f.String(), "err", err)
				t.arrive(ctx, wire.StepStart, fmt.Errorf("fault %s on agent %s: %w", f, t.cfg.Name, err))
			}
		})
	}
}

// does tells whether a fault is this agent's to do.
func (t *task) does(f plan.Fault) bool {
	if !f.Connections() {
		return slices.Contains(t.a.Targets, f.Target)
	}
	p, c := t.a.Publishers.Count > 0, t.a.Consumers.Count > 0
	return p && f.On != "consumers" || c && f.On != "publishers"
}

// fault does one fault at its time and undoes it, and records when that was. One whose time does not come is not recorded, which makes the task's
// verdict unknown.
func (t *task) fault(ctx context.Context, f plan.Fault) error {
	e := t.theEngine()
	begin, err := e.MeasureBegins(ctx)
	if err != nil {
		return nil // the task is over
	}
	if err := clock.Until(ctx, begin+f.At.D().Nanoseconds()); err != nil {
		return nil
	}
	what, undo, err := t.disturb(f)
	if err != nil {
		return err
	}
	from := clock.Now()
	_ = clock.Until(ctx, from+f.For.D().Nanoseconds()) // at the task's end it is undone all the same
	err = undo()
	e.Lasted(record.EventFault, f.Detail(what), from, clock.Now())
	return err
}

// disturb begins a fault; undo ends it and returns when it has ended.
func (t *task) disturb(f plan.Fault) (what string, undo func() error, err error) {
	if !f.Connections() {
		return t.server.disturb(f)
	}
	var hit netsim.Hit
	switch f.Kind {
	case plan.FaultCut:
		hit = t.faults.Cut(f.Share)
	case plan.FaultStall:
		hit = t.faults.Stall(f.Share)
	case plan.FaultSlow:
		hit = t.faults.Slow(f.Share, f.Latency.D(), f.Bandwidth)
	default:
		return "", nil, fmt.Errorf("this agent does not know how to %s connections: install the same release of Lockstep on all hosts", f.Kind)
	}
	return fmt.Sprintf("%d of %d connections", hit.Of, hit.All), func() error { t.faults.End(); return nil }, nil
}
