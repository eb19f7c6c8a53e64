package agent

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/engine"
	"example.org/lockstep/lockstep/internal/netsim"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// Timeouts of operations that have none in the workload.
const (
	closeTimeout        = 10 * time.Second // closing publishers and consumers, and closing the session
	answerTimeout       = 10 * time.Second // last messages to the controller
	handInFailedTimeout = time.Second      // messages after a failed hand-in
	obeyTimeout         = 2 * time.Second  // until the session is closed under a cancelled driver call
	leaveTimeout        = 10 * time.Second // until such a call is left behind
)

// lifecycle is the life of one assignment, from its acceptance until all its resources are released. The methods are in
// the order of execution; run is the overview.
// It has more than 20 fields: its parts, and the state that one step leaves to later ones.
type lifecycle struct {
	slot       *slot
	assignment plan.Assignment
	inbox      *inbox
	ref        wire.Ref
	work       plan.Workload
	log        *slog.Logger // removes secrets

	session    *session
	timeline   *timeline
	correction *correction
	prober     *prober
	faults     *faults
	reporter   *reporter
	background sync.WaitGroup // correction, prober and reporter

	releases  chan wire.Release // releases to steps
	dismissed chan struct{}     // closed when the controller has released StepDone, possibly together with StepFinish

	mu     sync.Mutex
	engine *engine.Engine
	early  []record.Event // events before there was an engine

	declared     time.Duration // of the topology, by the agent with index 0; used only by run
	tornDown     bool          // used only by run
	handInFailed bool          // used only by run
}

// newLifecycle accepts an assignment. Metrics of the host begin here.
func newLifecycle(s *slot, a assigned) *lifecycle {
	task := a.assignment.Task
	l := &lifecycle{slot: s, assignment: a.assignment, inbox: a.inbox, ref: wire.RefOf(task), work: task.Cell.Workload,
		timeline: &timeline{work: task.Cell.Workload, phase: plan.PhasePrepare},
		releases: make(chan wire.Release, maxReleases), dismissed: make(chan struct{})}
	// The seed makes jitter the same in every run, but different for each repetition and agent.
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d%s", task.ID, a.assignment.Index, task.Group) // cannot fail
	l.session = &session{broker: task.Cell.Broker, access: s.cfg.Access, parent: s.cfg.Dir, event: l.event, retry: l.retried,
		network: l.work.Network, seed: h.Sum64()}
	if l.work.FaultsConnections() {
		l.session.faults = netsim.NewFaults(l.session.seed)
	}
	if l.work.Network != (plan.Network{}) || task.Cell.Simulated {
		l.session.delays = new(netsim.Delays)
	}
	l.log = scrubbingLog(s.cfg.Log.With("task", task.ID, "agent", s.cfg.Name), l.session.clean)
	l.session.log = l.log
	l.correction = &correction{comparison: &s.comparison, timeline: l.timeline, host: s.cfg.host}
	l.prober = newProber(l.session, l.timeline, s.cfg.leave)
	l.faults = newFaults(s, a.assignment, l.session.faults)
	l.reporter = &reporter{conn: s.conn, ref: l.ref, agent: s.cfg.Name, group: task.Group, session: l.session,
		timeline: l.timeline, correction: l.correction, prober: l.prober, runtime: newRuntimeMetrics(l.session.delays, s.cfg.Proc),
		sampleHost: s.hostSampler(l.session),
		measuring:  make(chan struct{}), draining: make(chan struct{}), drained: make(chan error, 1),
		sending: make(chan struct{}, 1), sampled: time.Now()}
	return l
}

// run executes the assignment. It always returns, as every wait in it has a deadline.
func (l *lifecycle) run(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.assignment.Deadline.D(), errDeadline)
	defer cancel()
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	listening, stopListening := context.WithCancel(ctx)
	var listener sync.WaitGroup
	listener.Go(func() { l.listen(listening, stop) })

	worked := make(chan struct{})
	go func() {
		defer close(worked)
		if err := l.steps(working); err != nil && context.Cause(working) == nil {
			l.log.Warn("task failed", "err", err)
		}
	}()
	var leftBehind error
	select {
	case <-worked:
	case <-working.Done():
		leftBehind = l.awaitDriver(worked)
	}
	l.faults.undo()
	_, reason := l.await(ctx, wire.StepFinish)
	l.finish(ctx, reason, leftBehind)
	l.awaitDone(ctx)
	stopListening()
	listener.Wait()
	l.reporter.runtime.close()
	if err := l.session.close(); err != nil {
		l.log.Warn("cannot close session", "err", err)
	}
	l.arriveLast(ctx, wire.StepDone, nil)
}

// steps performs the steps up to the drain, each after its release. Errors were reported to the controller.
func (l *lifecycle) steps(ctx context.Context) error {
	for _, s := range []struct {
		step wire.Step
		verb string
		do   func(context.Context, wire.Release) error
	}{
		{wire.StepOpen, "open session", l.open},
		{wire.StepConsumers, "connect consumers", l.connectConsumers},
		{wire.StepPublishers, "connect publishers", l.connectPublishers},
		{wire.StepStart, "run", l.load},
		{wire.StepDrain, "drain", l.drain},
	} {
		var r wire.Release
		var err error
		if s.step != wire.StepOpen {
			if r, err = l.await(ctx, s.step); err != nil {
				return err
			}
		}
		if err = s.do(ctx, r); err != nil {
			cause := context.Cause(ctx)
			if errors.Is(cause, errFinish) {
				return err // the controller has the reason
			}
			if cause != nil {
				err = cause
			}
			err = fmt.Errorf("%s on agent %s: %w", s.verb, l.slot.cfg.Name, err)
			l.arrive(ctx, s.step, err)
			return err
		}
		l.arrive(ctx, s.step, nil)
	}
	return nil
}

// open checks the assignment, opens the driver's session and creates the engine. Agent 0 also declares the topology, or
// looks for existing queues.
func (l *lifecycle) open(ctx context.Context, _ wire.Release) error {
	if err := l.assignment.Check(); err != nil {
		return err
	}
	opening, cancel := context.WithTimeout(ctx, l.work.Connect.D())
	defer cancel()
	if err := l.session.open(opening); err != nil {
		return err
	}
	e, err := engine.New(engine.Config{Assignment: l.assignment, Session: l.session.current(), Log: l.log,
		CopiesBody: l.assignment.Task.Cell.CopiesBody, Access: l.slot.cfg.Access})
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.engine = e
	early := l.early
	l.early = nil
	l.mu.Unlock()
	for _, x := range early {
		e.Event(drivers.EventKind(x.Kind), x.Detail)
	}
	if l.assignment.Index != 0 {
		return nil
	}
	return l.declare(ctx)
}

func (l *lifecycle) declare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.work.Connect.D())
	defer cancel()
	began := time.Now()
	err := l.session.current().Setup(ctx, engine.Topology(l.assignment.Task))
	switch {
	case l.work.Topology.Existing != "" && err != nil:
		return fmt.Errorf("find existing queues: %w", err)
	case err != nil:
		return fmt.Errorf("declare topology: %w", err)
	case l.work.Topology.Existing != "":
		return nil
	}
	l.declared = max(1, time.Since(began)) // 0: not reported
	return nil
}

func (l *lifecycle) connectConsumers(ctx context.Context, _ wire.Release) error {
	ctx, cancel := context.WithTimeout(ctx, l.work.Connect.D())
	defer cancel()
	return l.currentEngine().ConnectConsumers(ctx)
}

func (l *lifecycle) connectPublishers(ctx context.Context, _ wire.Release) error {
	ctx, cancel := context.WithTimeout(ctx, l.work.Connect.D())
	defer cancel()
	if err := l.currentEngine().ConnectPublishers(ctx); err != nil {
		return err
	}
	l.timeline.setPhase(plan.PhaseReady)
	return nil
}

// load sends and receives from the agreed start until this agent's publishers have stopped. Concurrently it sends
// snapshots, corrects the clock and injects faults. Agent 0 also probes the broker.
func (l *lifecycle) load(ctx context.Context, r wire.Release) error {
	if err := l.timeline.setStart(r); err != nil {
		return err
	}
	e := l.currentEngine()
	l.correction.apply(e)
	l.background.Go(func() { l.correction.run(ctx, e) })
	l.background.Go(func() {
		if err := l.reporter.run(ctx, e, l.log); err != nil {
			l.arrive(ctx, wire.StepDrain, fmt.Errorf("drain on agent %s: %w", l.slot.cfg.Name, err))
		}
	})
	l.faults.start(ctx, e, func(f plan.Fault, err error) {
		l.log.Error("fault", "fault", f.String(), "err", err)
		l.arrive(ctx, wire.StepStart, fmt.Errorf("fault %s on agent %s: %w", f, l.slot.cfg.Name, err))
	})
	if l.assignment.Index == 0 {
		l.background.Go(func() { l.prober.run(ctx) })
	}
	start, _, _, _ := l.timeline.agreed()
	if err := e.Run(ctx, start); err != nil {
		return err
	}
	if l.assignment.Index == 0 {
		l.prober.finish(ctx)
	}
	if err := l.reporter.snapshot(ctx, e, stopped, false); err != nil && ctx.Err() == nil {
		l.log.Warn("cannot send snapshot", "err", err) // the drain cannot begin without it
	}
	return nil
}

// drain returns when the first snapshot after the release of the drain is stored, with all earlier ones. Otherwise the
// controller would count missing deliveries as lost.
func (l *lifecycle) drain(ctx context.Context, _ wire.Release) error {
	select {
	case err := <-l.reporter.drained:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitDriver waits for a cancelled driver call, so that nothing is closed while the engine still runs. After obey it
// closes the session under the call. A call that has not returned after leave is left behind, with an error.
func (l *lifecycle) awaitDriver(worked <-chan struct{}) error {
	late := time.NewTimer(l.slot.cfg.leave)
	defer late.Stop()
	impatient := time.NewTicker(l.slot.cfg.obey)
	defer impatient.Stop()
	closed := false
	for {
		select {
		case <-worked:
			return nil
		case <-impatient.C:
			if s := l.session.current(); s != nil && !closed {
				closed = true
				go s.Close() // session.close reports it
			}
		case <-late.C:
			driver := l.assignment.Task.Cell.Broker.Driver
			l.log.Error("a call of the driver did not return after it was cancelled; it is abandoned", "driver", driver)
			return fmt.Errorf("driver %s does not respond: a call did not return within %v after it was cancelled, and is abandoned",
				driver, l.slot.cfg.leave)
		}
	}
}

// finish closes publishers and consumers, takes the last snapshot and hands in this agent's part. reason is why the
// agent ended the task before the controller did. leftBehind is the error of a driver call that may still run.
func (l *lifecycle) finish(ctx context.Context, reason, leftBehind error) {
	if reason != nil {
		l.log.Warn("agent stopped the task", "reason", reason)
	}
	l.timeline.setPhase(plan.PhaseTeardown)
	err := leftBehind
	if e := l.currentEngine(); e != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		err = errors.Join(err, e.Close(closing))
		cancel()
		l.background.Wait()
		l.reporter.last(e, err == nil)
	}
	if err == nil {
		err = reason
	}
	l.handIn(ctx, err)
}

// handIn sends the remaining snapshots and the arrival at StepFinish.
func (l *lifecycle) handIn(ctx context.Context, failure error) {
	ctx, cancel := wire.WithGracePeriod(ctx, l.slot.cfg.answer)
	defer cancel()
	handed := make(chan struct{})
	defer close(handed)
	go func() { // after StepDone no controller waits for it, so it only gets answer more time
		select {
		case <-l.dismissed:
			late := time.NewTimer(l.slot.cfg.answer)
			defer late.Stop()
			select {
			case <-late.C:
				cancel()
			case <-handed:
			}
		case <-handed:
		}
	}()
	sent := l.reporter.flush(ctx)
	if sent != nil {
		l.log.Error("cannot submit the results of this agent", "err", sent)
		failure = errors.Join(failure, sent)
	}
	if failure != nil {
		failure = fmt.Errorf("finish on agent %s: %w", l.slot.cfg.Name, failure)
	}
	l.handInFailed = l.slot.arrive(ctx, l.arrival(ctx, wire.StepFinish, failure), l.log) != nil || sent != nil
}

// awaitDone returns when the controller has released StepDone. If the controller names this agent, it removes the
// topology. If ctx ends first, agent 0 removes it without a release, and so does any agent without a leader.
func (l *lifecycle) awaitDone(ctx context.Context) {
	for {
		select {
		case r := <-l.releases: // before StepDone, if both are there
			l.tearDownIf(ctx, r)
			continue
		default:
		}
		select {
		case r := <-l.releases:
			l.tearDownIf(ctx, r)
		case <-l.dismissed:
			return
		case <-ctx.Done():
			// Another leader repeats the task when no agent works on it any more, possibly without agent 0.
			unled := errors.Is(context.Cause(ctx), errUnled)
			if (l.assignment.Index == 0 || unled) && !l.tornDown {
				if err := l.tearDown(ctx); err != nil {
					l.log.Error("teardown failed", "err", err)
				}
			}
			return
		}
	}
}

func (l *lifecycle) tearDownIf(ctx context.Context, r wire.Release) {
	if r.Step == wire.StepTeardown && r.Agent == l.slot.cfg.Name {
		l.arriveLast(ctx, wire.StepTeardown, l.tearDown(ctx))
	}
}

// tearDown removes the topology. If no session was opened, this agent has declared nothing.
func (l *lifecycle) tearDown(ctx context.Context) error {
	s := l.session.current()
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.work.Connect.D())
	defer cancel()
	if err := s.Teardown(ctx, engine.Topology(l.assignment.Task)); err != nil {
		return fmt.Errorf("tear down on agent %s: %w", l.slot.cfg.Name, err)
	}
	l.tornDown = true
	return nil
}

// listen receives releases while the steps execute. The release to finish ends the current step.
func (l *lifecycle) listen(ctx context.Context, stop context.CancelCauseFunc) {
	for {
		var r wire.Release
		select {
		case r = <-l.inbox.releases:
		case <-ctx.Done():
			return
		}
		switch r.Step {
		case wire.StepDone:
			close(l.dismissed)
			continue
		case wire.StepMeasure:
			l.beginMeasurement(ctx, r)
			continue
		case wire.StepDrain:
			close(l.reporter.draining)
		}
		select {
		case l.releases <- r:
		case <-ctx.Done():
			return
		}
		if r.Step == wire.StepFinish {
			stop(errFinish)
		}
	}
}

// beginMeasurement starts the measurement at the time in the release, while the load runs, and reports the time that
// was set.
func (l *lifecycle) beginMeasurement(ctx context.Context, r wire.Release) {
	e := l.currentEngine()
	if e == nil {
		l.arrive(ctx, r.Step, fmt.Errorf("start the measurement on agent %s: the load has not started",
			l.slot.cfg.Name))
		return
	}
	if err := e.Measure(time.Duration(r.Begin)); err != nil {
		l.arrive(ctx, r.Step, fmt.Errorf("agent %s: %w", l.slot.cfg.Name, err))
		return
	}
	l.timeline.setMeasurement(time.Duration(r.Begin))
	close(l.reporter.measuring)
	l.arrive(ctx, r.Step, nil)
}

// await returns the release to a step. A release to finish ends the wait with an error.
func (l *lifecycle) await(ctx context.Context, step wire.Step) (wire.Release, error) {
	for {
		select {
		case r := <-l.releases:
			if r.Step == step {
				return r, nil
			}
			if r.Step == wire.StepFinish { // for the later wait for it
				l.releases <- r
				<-ctx.Done()
				return wire.Release{}, context.Cause(ctx)
			}
		case <-ctx.Done():
			return wire.Release{}, context.Cause(ctx)
		}
	}
}

// arrive reports a step or a failure. It retries for a while even after the end of ctx.
func (l *lifecycle) arrive(ctx context.Context, step wire.Step, failure error) {
	ctx, cancel := wire.WithGracePeriod(ctx, l.slot.cfg.answer)
	defer cancel()
	_ = l.slot.arrive(ctx, l.arrival(ctx, step, failure), l.log) // the error was logged
}

// arriveLast is arrive after the hand-in. If that failed, the report has a short timeout.
func (l *lifecycle) arriveLast(ctx context.Context, step wire.Step, failure error) {
	if !l.handInFailed {
		l.arrive(ctx, step, failure)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handInFailedTimeout)
	defer cancel()
	_ = l.slot.arrive(ctx, l.arrival(ctx, step, failure), l.log) // the error was logged
}

// arrival returns the arrival at a step, as of now.
func (l *lifecycle) arrival(ctx context.Context, step wire.Step, failure error) wire.Arrival {
	a := wire.Arrival{Ref: l.ref, Step: step, Phase: l.timeline.currentPhase()}
	if failure != nil {
		a.Error = l.session.clean(failure.Error())
	}
	switch {
	case step == wire.StepOpen && failure == nil && l.assignment.Index == 0:
		describing, cancel := context.WithTimeout(ctx, describeTimeout)
		defer cancel()
		subject, err := l.session.describe(describing)
		if err != nil { // the task continues
			l.event(drivers.EventNotice, "describe broker: "+err.Error())
		}
		a.Subject, a.Declared = &subject, plan.Duration(l.declared)
	case step == wire.StepPublishers && failure == nil:
		a.Placement = l.placement(ctx)
	case step == wire.StepMeasure:
		a.Begin = l.timeline.measurement().Nanoseconds()
	case step == wire.StepStart && failure == nil:
		a.Skew = plan.Duration(l.reporter.skew.Load())
	}
	return a
}

// placement returns the nodes of this agent's connections. The agent with index 0 adds the leaders.
func (l *lifecycle) placement(ctx context.Context) *plan.Placement {
	var p plan.Placement
	p.Publishers, p.Consumers = l.currentEngine().Nodes()
	if placer, is := drivers.As[drivers.Placer](l.session.current()); is && l.assignment.Index == 0 {
		ctx, cancel := context.WithTimeout(ctx, describeTimeout)
		defer cancel()
		var err error
		if p.Leaders, err = placer.Leaders(ctx, engine.Topology(l.assignment.Task)); err != nil { // the task continues
			p.Unknown = l.session.clean(err.Error())
		}
	}
	for _, nodes := range []*map[string]int{&p.Publishers, &p.Consumers, &p.Leaders} {
		*nodes = l.session.cleanNodes(*nodes)
	}
	if err := p.Check(); err != nil {
		l.event(drivers.EventNotice, "the nodes are not reported: "+err.Error())
		return nil
	}
	return &p
}

// event passes an event of the driver to the engine. Before the engine exists, events are kept.
func (l *lifecycle) event(kind drivers.EventKind, detail string) {
	l.mu.Lock()
	e := l.engine
	if e == nil {
		l.early = append(l.early, record.Event{Kind: string(kind), Detail: detail})
	}
	l.mu.Unlock()
	if e != nil {
		e.Event(kind, detail)
	}
}

// retried counts requests that the driver's library repeated. Those before the engine exists belong to no load.
func (l *lifecycle) retried(requests int64) {
	l.mu.Lock()
	e := l.engine
	l.mu.Unlock()
	if e != nil {
		e.Retried(requests)
	}
}

// currentEngine returns the engine; nil before it was created.
func (l *lifecycle) currentEngine() *engine.Engine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.engine
}
