package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/engine"
	"lockstep/internal/netsim"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire"
	"lockstep/pkg/drivers"
)

// Deadlines of what has none in the workload.
const (
	describeTimeout = 5 * time.Second
	closeTimeout    = 10 * time.Second // of publishers and consumers, and again of the session
	answerTimeout   = 10 * time.Second // of the last messages to the controller
	unheardTimeout  = time.Second      // of those after what the control plane did not take
	obeyTimeout     = 2 * time.Second  // until the session is closed under a driver's call that was cancelled
	leaveTimeout    = 10 * time.Second // until such a call is left behind
)

// task is one assignment being lived. The work goroutine moves it from step to step; live ends it.
type task struct {
	*server
	a    assigned
	work plan.Workload
	log  *slog.Logger

	localBroker atomic.Bool // a connection leads to this host

	host      *host
	watched   observed          // what host measures, of an observer
	releases  chan wire.Release // to steps
	dismissed chan struct{}     // closed when the controller has said that the task is done, which may come together with the word to finish
	told      chan struct{}     // closed when the controller has said when the measurement begins (warmup "auto")
	draining  chan struct{}     // closed when the controller says so
	drained   chan error        // nil when the first snapshot after that is stored, and all before it

	scrub atomic.Pointer[plan.Scrubber] // of the options, once they are resolved

	mu        sync.Mutex
	dir       string
	forwarder *netsim.Forwarder
	faults    *netsim.Faults // nil: the cell has none of connections
	delays    *netsim.Delays // nil: no network is simulated
	session   drivers.Session
	engine    *engine.Engine
	early     []record.Event // reported before there was an engine
	begin     int64          // clock.Now() at T0; 0: not known yet
	cut       int64          // ns from T0 to the measurement, where that is found out while the load runs; 0: not found out
	skewed    time.Duration
	base      int64  // ns, what the agreed start takes this clock to be ahead of the reference
	reference string // id of the clock that all agents of the task compare theirs with
	phase     plan.Phase
	probed    []record.ProbeSample

	correction correction

	disturbing context.Context // of all faults
	faulting   sync.WaitGroup

	cleared   bool // topology removed; used by live alone
	unheard   bool // this agent's part could not be handed in; used by live alone
	reporting sync.WaitGroup

	sending  chan struct{} // full while a snapshot is taken and sent: one at a time
	unsent   []record.Snapshot
	taken    time.Time // when figures of the host were last read
	counting bool      // figures are of the measurement
	runtime  runtimeFigures
	observed int64 // clock.Now() when the runtime's were
	sequence uint64
}

func newTask(s *server, a assigned) *task {
	measured, of := s.measured(a.Task.Cell.Broker)
	t := &task{server: s, a: a, work: a.Task.Cell.Workload,
		host: measured, watched: of, releases: make(chan wire.Release, 16),
		told: make(chan struct{}), dismissed: make(chan struct{}),
		sending: make(chan struct{}, 1), draining: make(chan struct{}), drained: make(chan error, 1), phase: plan.PhasePrepare, taken: time.Now(),
		observed: clock.Now()}
	t.log = scrubbingLog(s.cfg.Log.With("task", a.Task.ID, "agent", s.cfg.Name), t.clean)
	if t.work.DisturbsConnections() {
		t.faults = netsim.NewFaults(t.seed())
	}
	if t.work.Network != (plan.Network{}) || a.Task.Cell.Simulated {
		t.delays = new(netsim.Delays)
	}
	return t
}

// live is a task's life from assignment to nothing left. It always returns: every wait in it has a deadline.
func (t *task) live(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.a.Deadline.D(), errDeadline)
	defer cancel()
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	listening, deafen := context.WithCancel(ctx)
	wg.Go(func() { t.listen(listening, stop) })

	var undo context.CancelFunc
	t.disturbing, undo = context.WithCancel(working)
	defer undo()
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		if err := t.steps(working); err != nil && context.Cause(working) == nil {
			t.log.Warn("task failed", "err", err)
		}
	}()
	var stuck error
	select {
	case <-worked:
	case <-working.Done():
		stuck = t.release(worked)
	}
	undo()
	t.faulting.Wait()
	reason := t.finishReason(ctx)
	t.finish(ctx, reason, stuck)
	t.clear(ctx)
	deafen()
	wg.Wait()
	t.close()
	t.arriveLast(ctx, wire.StepDone, nil)
}

// release waits for a cancelled driver's call, so that nothing is closed while the engine still runs, and closes the session under one that
// does not obey. A call that does not return even then is left behind, with an error.
func (t *task) release(worked <-chan struct{}) error {
	late := time.NewTimer(t.cfg.leave)
	defer late.Stop()
	impatient := time.NewTicker(t.cfg.obey)
	defer impatient.Stop()
	closed := false
	for {
		select {
		case <-worked:
			return nil
		case <-impatient.C:
			if s := t.openSession(); s != nil && !closed {
				closed = true
				go s.Close() //nolint:errcheck // close says it
			}
		case <-late.C:
			driver := t.a.Task.Cell.Broker.Driver
			t.log.Error("a call of the driver did not return when it was cancelled: left behind", "driver", driver)
			return fmt.Errorf("driver %s did not let go: a call did not return within %v of being cancelled and was left behind", driver, t.cfg.leave)
		}
	}
}

// listen takes releases: the one to finish ends the work wherever it is.
func (t *task) listen(ctx context.Context, stop context.CancelCauseFunc) {
	for {
		var r wire.Release
		select {
		case r = <-t.a.inbox.releases:
		case <-ctx.Done():
			return
		}
		switch r.Step {
		case wire.StepDone:
			close(t.dismissed)
			continue
		case wire.StepMeasure:
			t.setMeasurement(ctx, r)
			continue
		case wire.StepDrain:
			close(t.draining)
		}
		select {
		case t.releases <- r:
		case <-ctx.Done():
			return
		}
		if r.Step == wire.StepFinish {
			stop(errFinish)
		}
	}
}

// await returns the release to a step.
func (t *task) await(ctx context.Context, step wire.Step) (wire.Release, error) {
	for {
		select {
		case r := <-t.releases:
			if r.Step == step {
				return r, nil
			}
			if r.Step == wire.StepFinish { // overtakes everything; who awaits it comes later
				t.releases <- r
				<-ctx.Done()
				return wire.Release{}, context.Cause(ctx)
			}
		case <-ctx.Done():
			return wire.Release{}, context.Cause(ctx)
		}
	}
}

// steps does the work up to the drain. Its error has been reported to the controller.
func (t *task) steps(ctx context.Context) error {
	for _, s := range []struct {
		step wire.Step
		verb string
		do   func(context.Context) error
	}{
		{wire.StepOpen, "open session", t.open},
		{wire.StepConsumers, "connect consumers", t.connectConsumers},
		{wire.StepPublishers, "connect publishers", t.connectPublishers},
		{wire.StepStart, "run", t.measure},
		{wire.StepDrain, "drain", t.drain},
	} {
		var r wire.Release
		var err error
		if s.step != wire.StepOpen {
			if r, err = t.await(ctx, s.step); err != nil {
				return err
			}
		}
		if s.step == wire.StepStart {
			if err = t.setStart(r); err != nil {
				t.arrive(ctx, s.step, err)
				return err
			}
		}
		if err = s.do(ctx); err != nil {
			if errors.Is(context.Cause(ctx), errFinish) {
				return err // the controller knows why
			}
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			err = fmt.Errorf("%s on agent %s: %w", s.verb, t.cfg.Name, err)
			t.arrive(ctx, s.step, err)
			return err
		}
		t.arrive(ctx, s.step, nil)
	}
	return nil
}

// arrive reports a step or a failure. It is tried for a while even if ctx has ended.
func (t *task) arrive(ctx context.Context, step wire.Step, failure error) {
	ctx, cancel := wire.Lasting(ctx, t.cfg.answer)
	defer cancel()
	_ = t.say(ctx, t.arrival(ctx, step, failure)) // it has been logged
}

// arriveLast is arrive for what comes after this agent's part: nobody waits for it long where that was not taken.
func (t *task) arriveLast(ctx context.Context, step wire.Step, failure error) {
	if t.unheard {
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), unheardTimeout)
		defer cancel()
		_ = t.say(ended, t.arrival(ended, step, failure))
		return
	}
	t.arrive(ctx, step, failure)
}

// say stores an arrival.
func (t *task) say(ctx context.Context, a wire.Arrival) error {
	err := t.conn.Arrive(ctx, a)
	if err != nil {
		t.log.Error("answer the controller", "step", a.Step, "err", err)
	}
	return err
}

// arrival is what there is to say of a step, now.
func (t *task) arrival(ctx context.Context, step wire.Step, failure error) wire.Arrival {
	a := wire.Arrival{Ref: wire.RefOf(t.a.Task), Agent: t.cfg.Name, Step: step, Host: t.server.host, Clock: clock.ID(), Version: t.cfg.Version, Phase: t.currentPhase()}
	if failure != nil {
		a.Error = t.clean(failure.Error())
	}
	if step == wire.StepOpen && failure == nil && t.a.Index == 0 {
		a.Subject = t.subject(ctx)
	}
	if step == wire.StepMeasure {
		a.Begin = t.measurement().Nanoseconds()
	}
	if step == wire.StepStart && failure == nil {
		a.Skew = plan.Duration(t.skew())
	}
	a.Now, a.Wall, a.Offset = clock.Now(), time.Now().UnixNano(), t.compared.now()
	return a
}

// clean removes secrets from text that leaves the agent.
func (t *task) clean(text string) string {
	return t.scrub.Load().Scrub(text)
}
