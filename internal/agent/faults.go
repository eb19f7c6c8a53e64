package agent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/engine"
	"example.org/lockstep/lockstep/internal/netsim"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// faults injects the faults of a cell that are assigned to this agent: into its connections, and into the targets that
// its configuration allows. A guard undoes faults of processes if the agent ends.
type faults struct {
	own         []plan.Fault
	connections *netsim.Faults // nil: the cell has no faults of connections
	targets     []plan.Target  // from the agent's configuration
	proc        procfs
	controlPort func() int // port of a control plane on this host, which faults must not affect; 0: none
	log         *slog.Logger

	injecting sync.WaitGroup
	ended     context.Context // ends with undo
	end       context.CancelFunc
}

// newFaults returns the faults of an assignment. connections is nil if the cell has no faults of connections.
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

// isOwn reports whether the agent of an assignment injects a fault.
func isOwn(a plan.Assignment, f plan.Fault) bool {
	if !f.Connections() {
		return slices.Contains(a.Targets, f.Target)
	}
	return a.Publishers.Count > 0 && f.On != "consumers" || a.Consumers.Count > 0 && f.On != "publishers"
}

// start injects each fault at its time, concurrently with the engine. All faults are undone at the latest when ctx
// ends. failed is called with the error of a fault that fails.
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

// run injects one fault at its time, undoes it, and records the interval from the beginning of the injection to the end
// of the undoing. If its time does not come, nothing is recorded, and the task's verdict is unknown.
func (f *faults) run(ctx context.Context, e *engine.Engine, x plan.Fault) error {
	begin, err := e.MeasureBegins(ctx)
	if err != nil {
		return nil // the task is over
	}
	if err := clock.Until(ctx, begin+x.At.D().Nanoseconds()); err != nil {
		return nil
	}
	from := clock.Now()
	what, undo, err := f.inject(x)
	if err != nil {
		return err
	}
	_ = clock.Until(ctx, clock.Now()+x.For.D().Nanoseconds()) // at the end of the task it is undone early
	err = undo()
	e.RecordInterval(record.EventFault, x.Detail(what), from, clock.Now())
	return err
}

// inject starts a fault. undo ends it and returns when it has ended.
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
			fmt.Errorf("this agent cannot %s connections; install the same release of Lockstep on all hosts",
				x.Kind)
	}
	return fmt.Sprintf("%d of %d connections", hit.Of, hit.All), func() error { hit.End(); return nil }, nil
}

func (f *faults) injectIntoTarget(x plan.Fault) (what string, undo func() error, err error) {
	i := slices.IndexFunc(f.targets, func(t plan.Target) bool { return t.Name == x.Target })
	if i < 0 || !slices.Contains(f.targets[i].Kinds(), x.Kind) {
		return "", nil, fmt.Errorf("the --faults file of this agent does not allow the fault %s on %q", x.Kind, x.Target)
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
