package agent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"lockstep/internal/clock"
	"lockstep/internal/engine"
	"lockstep/internal/netsim"
	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// faults injects those faults of a cell that are this agent's: into its connections, and into processes of this host
// that the agent's configuration allows. Whatever becomes of the agent, a guard undoes those of processes.
type faults struct {
	own         []plan.Fault
	connections *netsim.Faults // nil: the cell has none of connections
	targets     []plan.Target  // what the agent's configuration allows
	proc        procfs
	controlPort func() int // of a control plane on this host at the moment, which faults spare; 0: there is none
	log         *slog.Logger

	injecting sync.WaitGroup
	ended     context.Context // ends with undo
	end       context.CancelFunc
}

// newFaults returns the faults of an assignment. connections is nil where the cell has none of them.
func newFaults(s *slot, a plan.Assignment, connections *netsim.Faults) *faults {
	f := &faults{connections: connections, targets: s.cfg.Targets, proc: procfs(s.cfg.Proc),
		controlPort: s.conn.LocalPort, log: s.cfg.Log}
	f.ended, f.end = context.WithCancel(context.Background())
	for _, x := range a.Task.Cell.Workload.Faults {
		if isOwn(a, x) {
			f.own = append(f.own, x)
		}
	}
	return f
}

// isOwn reports whether a fault is injected by the agent of an assignment.
func isOwn(a plan.Assignment, f plan.Fault) bool {
	if !f.Connections() {
		return slices.Contains(a.Targets, f.Target)
	}
	return a.Publishers.Count > 0 && f.On != "consumers" || a.Consumers.Count > 0 && f.On != "publishers"
}

// start injects each fault at its time, beside the engine. All are undone when ctx ends at the latest.
// failed is called with the error of one that fails.
func (f *faults) start(ctx context.Context, e *engine.Engine, failed func(plan.Fault, error)) {
	for _, x := range f.own {
		f.injecting.Go(func() {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(f.ended, cancel)()
			if err := f.run(ctx, e, x); err != nil {
				failed(x, err)
			}
		})
	}
}

// undo undoes all faults, and returns when they are undone.
func (f *faults) undo() {
	f.end()
	f.injecting.Wait()
}

// run injects one fault at its time and undoes it, and records when that was. One whose time does not come is not
// recorded, which makes the task's verdict unknown.
func (f *faults) run(ctx context.Context, e *engine.Engine, x plan.Fault) error {
	begin, err := e.MeasureBegins(ctx)
	if err != nil {
		return nil // the task is over
	}
	if err := clock.Until(ctx, begin+x.At.D().Nanoseconds()); err != nil {
		return nil
	}
	what, undo, err := f.inject(x)
	if err != nil {
		return err
	}
	from := clock.Now()
	_ = clock.Until(ctx, from+x.For.D().Nanoseconds()) // at the task's end it is undone all the same
	err = undo()
	e.RecordInterval(record.EventFault, x.Detail(what), from, clock.Now())
	return err
}

// inject begins a fault; undo ends it and returns when it has ended.
func (f *faults) inject(x plan.Fault) (what string, undo func() error, err error) {
	if !x.Connections() {
		return f.injectIntoTarget(x)
	}
	var hit netsim.Hit
	switch x.Kind {
	case plan.FaultCut:
		hit = f.connections.Cut(x.Share)
	case plan.FaultStall:
		hit = f.connections.Stall(x.Share)
	case plan.FaultSlow:
		hit = f.connections.Slow(x.Share, x.Latency.D(), x.Bandwidth)
	default:
		return "", nil,
			fmt.Errorf("this agent cannot %s connections: install the same release of Lockstep on all hosts",
				x.Kind)
	}
	return fmt.Sprintf("%d of %d connections", hit.Of, hit.All), func() error { f.connections.End(); return nil }, nil
}

func (f *faults) injectIntoTarget(x plan.Fault) (what string, undo func() error, err error) {
	i := slices.IndexFunc(f.targets, func(t plan.Target) bool { return t.Name == x.Target })
	if i < 0 || !slices.Contains(f.targets[i].Kinds(), x.Kind) {
		return "", nil, fmt.Errorf("this agent's --faults file does not allow to %s %q", x.Kind, x.Target)
	}
	if x.Kind == plan.FaultIsolate {
		return isolate(f.log, f.targets[i])
	}
	p, err := findTarget(f.targets[i], f.proc, f.controlPort(), f.log)
	if err != nil {
		return "", nil, err
	}
	if x.Kind == plan.FaultPause {
		undo, err = p.pause()
	} else {
		undo, err = p.end(x.Kind == plan.FaultKill)
	}
	return fmt.Sprintf("process %d", p.pid), undo, err
}
