package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/engine"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/internal/wire/keys"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// drainAfter is how long a draining slot must be idle before it leaves: three heartbeats. Tasks that were assigned
// before the controller received the notice are still executed. The controller also receives the last report before the
// leaving heartbeat.
const drainAfter = 3 * wire.HeartbeatEvery

// memory identifies this process: see wire.Heartbeat.Memory.
var memory = wire.NewName()

// slot executes one assignment at a time, and any number of observations in addition. For the controller it is an agent
// of its own.
type slot struct {
	conn *wire.Agent
	cfg  Config
	self wire.Heartbeat

	comparison comparison
	attempts   attempts

	place        string // see placeOf
	observing    sync.WaitGroup
	observations atomic.Int64

	busy     atomic.Pointer[wire.Ref]
	current  atomic.Pointer[lifecycle] // the newest
	draining atomic.Bool
	reported atomic.Pointer[time.Time] // time of the last heartbeat; nil: heartbeats have ended or not begun

	mu     sync.Mutex
	cancel context.CancelCauseFunc // ends the attempt in flight
}

// assigned is an assignment of this slot with its inbox.
type assigned struct {
	assignment plan.Assignment
	inbox      *inbox
}

// newSlot returns a slot of an agent. Slot 0 has the agent's name; the others have a number appended. cfg is complete.
func newSlot(conn *wire.Agent, cfg Config, number int) *slot {
	process := cfg.Name
	cfg.Name = keys.SlotName(cfg.Name, number)
	s := &slot{conn: conn, cfg: cfg, place: placeOf(procfs(cfg.Proc), cfg.host), self: wire.Heartbeat{
		Agent: cfg.Name, Instance: wire.NewName(), Host: cfg.host, Clock: clock.ID(), Version: cfg.Version,
		Labels: cfg.Labels, Protocol: plan.Protocol,
		Cores: runtime.GOMAXPROCS(0), // respects a container's CPU quota
		Slots: cfg.Slots, Process: process, Memory: memory,
		Observes: slices.Sorted(maps.Keys(cfg.Observes)), Observer: len(cfg.Observes) > 0,
	}}
	for _, t := range cfg.Targets {
		if s.self.Targets == nil {
			s.self.Targets = map[string][]string{}
		}
		s.self.Targets[t.Name] = t.Kinds()
	}
	return s
}

// run registers the slot with the controller and executes assignments. It returns when ctx ends, the slot has drained
// or the controller refuses it. Then all its goroutines have ended.
func (s *slot) run(ctx context.Context) error {
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	assigned := make(chan assigned, maxObservations)
	unsubscribe, err := s.conn.Commands(s.cfg.Name, s.self.Instance, func(c wire.Command) error {
		return s.command(c, assigned)
	})
	if err != nil {
		return fmt.Errorf("register with the controller: %w", err)
	}
	defer unsubscribe()
	refused := make(chan error, 1)
	var background sync.WaitGroup
	background.Go(func() {
		defer s.reported.Store(nil)
		refused <- s.conn.SendHeartbeats(inner, func() wire.Heartbeat {
			now := time.Now()
			s.reported.Store(&now)
			return s.heartbeat()
		}, s.endUnled)
	})
	background.Go(func() { s.comparison.run(inner, s.conn, s.cfg.Name) })
	err = s.serve(ctx, assigned, refused)
	stop()
	background.Wait()
	return err
}

// command handles a command of the controller, which repeats it until command has returned.
func (s *slot) command(c wire.Command, to chan<- assigned) error {
	if c.Release != nil {
		return s.attempts.release(c.Ref, *c.Release)
	}
	in := s.attempts.add(c.Ref)
	if in == nil {
		return nil
	}
	select {
	case to <- assigned{*c.Assignment, in}:
		return nil
	default:
		return errors.New("too many concurrent assignments")
	}
}

// serve executes assignments until ctx ends, the slot has drained or the controller refuses it.
func (s *slot) serve(ctx context.Context, assigned <-chan assigned, refused <-chan error) error {
	var (
		cancel      context.CancelCauseFunc = func(error) {}
		idle                                = make(chan struct{})
		done        <-chan struct{}         = idle // closed when the attempt in flight has ended completely
		drain, stop                         = s.cfg.Drain, s.cfg.Stop
		free        <-chan struct{}         // done, while draining
		quiet       <-chan time.Time        // fires when the slot was idle for drainAfter
	)
	close(idle)
	finish := func(cause error) {
		cancel(cause)
		<-done
	}
	observing, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer s.observing.Wait()
	defer end(errStopping)
	for {
		select {
		case a := <-assigned:
			if len(a.assignment.Observe) > 0 {
				s.observe(observing, a)
				continue
			}
			if a.assignment.Contact {
				s.contact(observing, a.assignment)
				continue
			}
			if a.assignment.Ceiling {
				s.ceiling(observing, a.assignment)
				continue
			}
			// The controller assigns only to slots that it considers idle, so no controller needs the current attempt.
			finish(errSuperseded)
			cancel, done = s.start(ctx, a)
			if s.draining.Load() { // assigned before the controller had received the notice
				free, quiet = done, nil
			}
		case <-drain:
			s.cfg.Log.Info("stopping when no task is in flight")
			s.draining.Store(true)
			drain, free = nil, done
		case <-stop:
			if s.busy.Load() == nil && s.observations.Load() == 0 {
				s.cfg.Log.Info("stopping: no task is in flight", "agent", s.cfg.Name)
				return nil
			}
			s.cfg.Log.Info("stopping after the task in flight; a second signal stops at once", "agent",
				s.cfg.Name)
			s.draining.Store(true)
			stop, free = nil, done
		case <-free:
			free, quiet = nil, time.After(drainAfter)
		case <-quiet:
			if s.observations.Load() == 0 {
				return nil
			}
			quiet = time.After(drainAfter)
		case err := <-refused:
			cause := fmt.Errorf("the agent aborted the task: %w", err)
			end(cause)
			finish(cause)
			return err
		case <-ctx.Done():
			finish(errStopping)
			return nil
		}
	}
}

// start starts the lifecycle of an assignment. done is closed when it has ended completely.
func (s *slot) start(ctx context.Context, a assigned) (cancel context.CancelCauseFunc, done <-chan struct{}) {
	ctx, cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l, ended := newLifecycle(s, a), make(chan struct{})
	s.mu.Lock()
	s.busy.Store(&l.ref)
	s.cancel = cancel
	s.mu.Unlock()
	s.current.Store(l)
	go func() {
		defer close(ended)
		defer cancel(nil)
		l.run(ctx)
		s.busy.Store(nil)
		s.current.CompareAndSwap(l, nil)
	}()
	return cancel, ended
}

// endUnled ends the attempt in flight if it is this one, as no controller leads it any more.
func (s *slot) endUnled(ref wire.Ref, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if busy := s.busy.Load(); busy != nil && *busy == ref {
		s.cancel(fmt.Errorf("%w: %w", errUnled, why))
	}
}

func (s *slot) heartbeat() wire.Heartbeat {
	h := s.self
	h.Offset = s.comparison.now()
	h.Draining = s.draining.Load()
	if busy := s.busy.Load(); busy != nil {
		h.Busy, h.Attempt = busy.Task, *busy
	}
	return h
}

// arrive adds the slot's data and the time to an arrival and reports it. It retries until the controller has it or ctx
// ends. Errors are logged.
func (s *slot) arrive(ctx context.Context, a wire.Arrival, log *slog.Logger) error {
	a.Agent, a.Host, a.Clock, a.Version = s.cfg.Name, s.cfg.host, clock.ID(), s.cfg.Version
	a.Now, a.Wall, a.Offset = clock.Now(), time.Now().UnixNano(), s.comparison.now()
	err := s.conn.Arrive(ctx, a)
	if err != nil {
		log.Error("cannot respond to the controller", "step", a.Step, "err", err)
	}
	return err
}

// hostSampler starts to measure this host for an attempt and returns the function that takes samples. An observer has a
// task only to inject faults, and measures the broker.
func (s *slot) hostSampler(of *session) func() record.HostSample {
	if fit, _ := plan.Observe([]plan.Broker{of.broker}, s.self.Observes); len(fit) > 0 {
		b := newObservedBroker(procfs(s.cfg.Proc), s.place, fit[0], s.cfg.Observes[fit[0].As])
		return b.sample
	}
	h := newHostMetrics(procfs(s.cfg.Proc), of.broker.Process)
	return func() record.HostSample {
		sample := h.sample(of.clientProcesses())
		sample.LocalBroker = of.localBroker.Load()
		return sample
	}
}

// Times of the measurement of a ceiling: twice warm-up and measurement, about a second together.
const (
	ceilingWarmup    = 100 * time.Millisecond
	ceilingMeasure   = 400 * time.Millisecond
	ceilingConsumers = 8 // maximum number of consumers and queues
)

// prepare starts work before the first task of a run. It uses no slot. The work completes the arrival that is then
// reported. If the agent ends meanwhile, nothing is reported.
func (s *slot) prepare(ctx context.Context, of plan.Task, log *slog.Logger, work func(arrival *wire.Arrival)) {
	s.observations.Add(1) // a stopping agent waits for it
	s.observing.Go(func() {
		defer s.observations.Add(-1)
		arrival := wire.Arrival{Ref: wire.RefOf(of), Step: wire.StepOpen, Phase: plan.PhasePrepare}
		work(&arrival)
		if ctx.Err() != nil {
			return
		}
		ctx, cancel := wire.WithGracePeriod(ctx, s.cfg.answer)
		defer cancel()
		_ = s.arrive(ctx, arrival, log) // the error was logged
	})
}

// ceiling starts to measure this agent's own limits with the load of an assignment.
func (s *slot) ceiling(ctx context.Context, a plan.Assignment) {
	log := s.cfg.Log.With("agent", s.cfg.Name)
	s.prepare(ctx, a.Task, log, func(arrival *wire.Arrival) {
		limits, err := s.limits(ctx, a, log)
		arrival.Limits = &limits
		if err != nil {
			arrival.Error = fmt.Sprintf("measure the load generator on agent %s: %s", s.cfg.Name, err)
		}
	})
}

// limits measures the maximum rate, and then the latencies at LimitsRate.
func (s *slot) limits(ctx context.Context, a plan.Assignment, log *slog.Logger) (plan.Limits, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Deadline.D())
	defer cancel()
	if err := a.CheckProtocol(); err != nil {
		return plan.Limits{}, err
	}
	w := plan.Default()
	p := a.Task.Cell.Workload.Publishers
	w.Publishers.Threads, w.Publishers.Mode, w.Publishers.MaxInFlight, w.Publishers.Batch = p.Threads, p.Mode,
		p.MaxInFlight, p.Batch
	w.Consumers.Colocate, w.Consumers.Threads = true, min(p.Threads, ceilingConsumers)
	w.Topology.Queues = w.Consumers.Threads
	w.Message.Size = a.Task.Cell.Workload.Message.Size
	w.Warmup, w.Measure = plan.Duration(ceilingWarmup), plan.Duration(ceilingMeasure)
	w.Drain = plan.Drain{Idle: w.Warmup, Timeout: w.Measure}
	fastest, err := s.measureAlone(ctx, a.Task, w, log)
	if err != nil {
		return plan.Limits{}, err
	}
	w.Publishers.Rate = plan.LimitsRate
	paced, err := s.measureAlone(ctx, a.Task, w, log)
	if err != nil {
		return plan.Limits{}, err
	}
	median := func(of record.Series) plan.Duration { return plan.Duration(paced.Hist(of).Quantile(0.5)) }
	return plan.Limits{Rate: float64(fastest.Sum(record.Sent, 0, 1)) / ceilingMeasure.Seconds(),
		Publish: median(record.Publish), EndToEnd: median(record.EndToEnd)}, nil
}

// measureAlone runs a workload of this agent alone on a loopback broker of its own.
func (s *slot) measureAlone(ctx context.Context, t plan.Task, w plan.Workload, log *slog.Logger) (m *record.Merged,
	err error) {
	driver, err := drivers.Lookup("loopback")
	if err != nil {
		return nil, err
	}
	options, err := json.Marshal(map[string]any{"name": "ceiling-" + s.self.Instance + t.Attempt,
		"capacity": 100_000, "capacityBytes": 16 << 20}) // per queue
	if err != nil {
		return nil, err
	}
	session, err := driver.Open(ctx, options, drivers.Env{Log: log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	t.Cell = plan.Cell{Workload: w, CopiesBody: true}
	a := plan.Assign(t, []string{s.cfg.Name})[0]
	if err := a.Check(); err != nil {
		return nil, err
	}
	topology := engine.Topology(t)
	if err := session.Setup(ctx, topology); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, session.Teardown(context.WithoutCancel(ctx), topology)) }()
	e, err := engine.New(engine.Config{Assignment: a, Session: session, Log: log, CopiesBody: true})
	if err != nil {
		return nil, err
	}
	run := func() error {
		if err := e.ConnectConsumers(ctx); err != nil {
			return err
		}
		if err := e.ConnectPublishers(ctx); err != nil {
			return err
		}
		return e.Run(ctx, clock.Now())
	}
	if err := errors.Join(run(), e.Close(context.WithoutCancel(ctx))); err != nil {
		return nil, err
	}
	m = record.NewMerged()
	m.Add(e.Take(true))
	return m, nil
}

// contact starts to open and close a session with a broker, without a simulated network.
func (s *slot) contact(ctx context.Context, a plan.Assignment) {
	session := &session{broker: a.Task.Cell.Broker, access: s.cfg.Access, parent: s.cfg.Dir,
		event: func(drivers.EventKind, string) {}}
	log := scrubbingLog(s.cfg.Log.With("broker", a.Task.Cell.Broker.Name, "agent", s.cfg.Name), session.clean)
	session.log = log
	s.prepare(ctx, a.Task, log, func(arrival *wire.Arrival) {
		err := a.CheckProtocol()
		if err == nil {
			err = s.tryOpen(ctx, session, a.Deadline.D())
		}
		if closing := session.close(); closing != nil {
			log.Warn("cannot close session", "err", closing)
		}
		if err != nil {
			arrival.Error = fmt.Sprintf("open session on agent %s: %s", s.cfg.Name, session.clean(err.Error()))
		}
	})
}

// tryOpen opens a session. A driver that does not return after limit and the time to leave it is left behind.
func (s *slot) tryOpen(ctx context.Context, session *session, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	opened := make(chan error, 1)
	go func() { opened <- session.open(ctx) }()
	select {
	case err := <-opened:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-opened:
		return err
	case <-time.After(s.cfg.leave):
		return fmt.Errorf("driver %s does not respond: a call did not return within %v after it was cancelled, and is abandoned",
			session.broker.Driver, s.cfg.leave)
	}
}

// observe starts an observation, unless there are too many.
func (s *slot) observe(ctx context.Context, a assigned) {
	o := &observation{slot: s, assignment: a.assignment, inbox: a.inbox, ref: wire.RefOf(a.assignment.Task),
		log: s.cfg.Log.With("task", a.assignment.Task.ID, "agent", s.cfg.Name)}
	several := s.observations.Add(1)
	s.observing.Go(func() {
		defer s.observations.Add(-1)
		if several > maxObservations {
			o.arrive(ctx, wire.StepOpen, fmt.Errorf("observe on agent %s: it already observes %d tasks, the maximum; start another observer",
				s.cfg.Name, maxObservations))
			return
		}
		o.run(ctx)
	})
}
