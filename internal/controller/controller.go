// Package controller executes queued runs with agents in lockstep. A run executes one task at a time, until every task
// has an outcome. Runs that need different agents and different brokers execute side by side.
//
// The package guarantees:
//
//   - Every wait has a deadline.
//   - A lost agent or a failed task leads to an outcome with the reason, and the run continues.
//   - A task that has an outcome is not run again.
//
// Record is the follower: it copies a run's record from the control plane to a directory.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/sink"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/internal/wire/lease"
)

// Config configures a controller. The zero value is valid.
type Config struct {
	Log *slog.Logger
	// Name and Version identify the leader to people and to other controllers. An empty Name: the host's.
	Name, Version string
	// Copies is the folder of this controller's copies of all runs. A standby controller copies, too. The control plane
	// may delete a copied run when it needs space. Empty: no copies.
	Copies string
	// Points opens a sink for each run that the leader copies, so that InfluxDB gets its points. nil: none are written.
	Points func() *sink.Sink
	// Clock is the clock of schedules. nil: time.Now. Hooks are called after runs of schedules. nil: none.
	Clock func() time.Time
	Hooks *Hooks
	// Expand expands the matrix of a schedule to a run. Every user who may edit schedules writes such matrices, so a
	// daemon evaluates them in a separate process with limits of time and memory. nil: the function Expand, in this
	// process. It is called from several goroutines.
	Expand func(context.Context, schedule.Matrix) (plan.Run, error)
	Store  wire.StoreConfig // limits of what the control plane stores
	// MaxParallelRuns is the maximum number of runs executed at the same time. 1: one after the other. 0: 4.
	MaxParallelRuns int
	// Ceilings stores the limits of the load generator, which runs state beside their results. nil: not measured.
	Ceilings *Ceilings
	Status   *Status // receives the status of this controller; nil: Serve uses its own
	// Stop is closed when the controller must hand over as soon as no task is in flight. nil: never.
	Stop <-chan struct{}
}

// errCancelled is the cause of a context whose run was cancelled. Runs of a controller that stops stay in the queue.
var errCancelled = errors.New("run was cancelled")

// errStopping is the cause of contexts that end because the controller must hand over.
var errStopping = errors.New("the controller is handing over")

// stopTimeout bounds each of the last writes and requests after the stop of the controller was requested.
const stopTimeout = 10 * time.Second

// prepare creates the streams. It retries while a cluster that is starting does not answer or has too few servers, as
// daemons start in any order. It returns nil when ctx ends.
func prepare(ctx context.Context, store *wire.Store, log *slog.Logger) error {
	for began := time.Now(); ; {
		err := store.Prepare(ctx)
		const formTimeout = 2 * time.Minute // of a cluster; until then ErrServers is not final
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case !errors.Is(err, context.DeadlineExceeded) &&
			(!errors.Is(err, wire.ErrServers) || time.Since(began) > formTimeout):
			return err
		}
		log.Warn("cannot create the streams of the control plane; retrying", "err", err)
		_ = wire.Wait(ctx, time.Second) // the loop checks ctx
	}
}

// Serve waits until this controller leads, and then executes runs.
//
//   - When Config.Stop is closed, Serve begins no task, waits for the tasks in flight, hands over and returns nil.
//   - When ctx ends, Serve ends the tasks in flight in order, hands over and returns nil.
//   - When another controller leads, Serve stops at once, leaves the agents alone and stands by again.
//   - While the control plane does not answer, Serve waits. It continues if no other controller led meanwhile.
//
// A run that is not complete stays in the queue. The next leader continues it, as far as its data are kept.
func Serve(ctx context.Context, conn *wire.Conn, cfg Config) error {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.MaxParallelRuns = cmp.Or(cfg.MaxParallelRuns, 4)
	cfg.Status, cfg.Hooks = cmp.Or(cfg.Status, &Status{}), cmp.Or(cfg.Hooks, &Hooks{})
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Expand == nil {
		cfg.Expand = Expand
	}
	stopping, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-cfg.Stop:
			stop(errStopping)
		case <-stopping.Done():
		}
	}()
	store := wire.NewStore(conn, cfg.Store)
	if err := prepare(stopping, store, cfg.Log); err != nil || stopping.Err() != nil {
		return err
	}
	k := &copies{store: store, cfg: cfg, of: map[string]*copying{}}
	if cfg.Copies != "" {
		var copying sync.WaitGroup
		defer copying.Wait()
		under, end := context.WithCancel(ctx)
		defer end()
		copying.Go(func() { k.run(under) })
	}
	host, _ := os.Hostname() // only for people
	who := lease.Holder{Name: cmp.Or(cfg.Name, host), Host: host, Instance: wire.NewName(), Version: cfg.Version}
	for {
		leading, err := store.Campaign(stopping, who, cfg.Log)
		if err != nil {
			if stopping.Err() != nil {
				return nil
			}
			return err
		}
		if err = store.Prepare(leading.Context()); err == nil {
			cfg.Status.epoch.Store(leading.Epoch())
			leading.Lease.RenewWhile(cfg.Status.Stuck)
			agents := newFleet(cfg.Log)
			l := &leader{conn: conn, store: store, cfg: cfg, agents: agents, lease: leading, copies: k, stopping: stopping,
				ownership: &runOwnership{agents: agents},
				history:   &runHistory{store: store, lease: leading, dir: cfg.Copies, log: cfg.Log},
				queue: &runQueue{agents: agents, maxRuns: cfg.MaxParallelRuns, lookup: net.DefaultResolver.LookupNetIP,
					changed: make(chan struct{}, 1)}}
			err = l.lead(ctx)
			cfg.Status.epoch.Store(0)
		}
		lost := leading.Context().Err() != nil
		leading.Lease.Resign(context.WithoutCancel(ctx))
		if stopping.Err() != nil {
			return nil
		}
		if err != nil && !lost {
			cfg.Log.Error("lead", "err", err)
			_ = wire.Wait(stopping, time.Second) // Campaign checks ctx
		}
	}
}

// check refuses submissions that no matrix can expand to. A nil submission is valid.
func check(s *wire.Submission) error {
	if s == nil {
		return nil
	}
	if r := s.Run; r.Repeat < 1 || len(r.Cells) == 0 {
		return fmt.Errorf("the run has %d cells and %d repetitions; at least one of each is required", len(r.Cells), r.Repeat)
	}
	if n := len(rules.Regressions(s.Run)); n > plan.MaxBases {
		return fmt.Errorf("the rules of the run name %d baselines; the maximum is %d", n, plan.MaxBases)
	}
	return s.Run.Bounded()
}

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

type leader struct {
	conn     *wire.Conn
	store    *wire.Store
	cfg      Config
	agents   *fleet
	lease    *wire.Leader
	queue    *runQueue
	copies   *copies
	stopping context.Context // ends when no further task may begin
	// purging is locked while streams of runs are created or deleted, and while an ended run is submitted again.
	purging   sync.Mutex
	ownership *runOwnership
	history   *runHistory
}

// lead serves agents and clients, and executes runs, until ctx or the lease ends.
func (l *leader) lead(ctx context.Context) error {
	for _, answer := range []func() (func(), error){
		func() (func(), error) {
			return l.lease.ServeClients(l.agents.known, l.history.answer, l.cfg.Hooks.names(), l.history.setBaseline)
		},
		l.lease.AnswerClock,
		func() (func(), error) { return l.lease.AnswerHeartbeats(l.ownership.heartbeat, l.agents.refuse) },
		func() (func(), error) { return l.lease.AnswerReports(l.ownership.arrive, l.ownership.snapshot) },
	} {
		stop, err := answer()
		if err != nil {
			return err
		}
		stop = sync.OnceFunc(stop)
		defer context.AfterFunc(l.lease.Context(), stop)() // also if a run does not end
		defer stop()
	}
	ctx, cancel := wire.Either(ctx, l.lease.Context())
	defer cancel()
	var keeping sync.WaitGroup
	if !l.store.Local() { // a control plane that ends with this process has no schedules
		s := &scheduler{store: l.store, lease: l.lease, cfg: l.cfg, keepers: map[string]*keeper{}}
		keeping.Go(func() { s.run(ctx) })
	}
	keeping.Go(func() { l.keepStreams(ctx) })
	if l.cfg.Copies != "" {
		l.copies.leads.Store(true)
		defer l.copies.leads.Store(false)
		keeping.Go(func() {
			_ = wire.Guard(l.cfg.Log, "read the history", func() error {
				l.history.fill(ctx, func(wire.RunState) bool { return true })
				return nil
			})
		})
	}
	keeping.Go(func() { // delete streams of old runs while other runs execute
		for wire.Wait(ctx, freeStorageEvery) == nil {
			l.purging.Lock()
			_, err := l.lease.FreeStorage(ctx, "", l.queue.contains)
			l.purging.Unlock()
			if err != nil && ctx.Err() == nil {
				l.cfg.Log.Warn("cannot free storage on the control plane", "err", err)
			}
		}
	})
	looking, rest := context.WithCancel(l.lease.Context()) // tasks that are given up need time to end
	keeping.Go(func() { l.agents.dropSilent(looking, l.conn.RTT) })
	defer keeping.Wait()
	defer cancel()
	defer rest()
	err := l.serveQueue(ctx)
	l.copies.leads.Store(false) // before the scheduler has ended
	return err
}

// keepStreams creates lost streams again after each reconnect: a restarted server may have kept them in memory.
func (l *leader) keepStreams(ctx context.Context) {
	for {
		select {
		case <-l.conn.Relinked():
		case <-ctx.Done():
			return
		}
		for err := l.store.Prepare(ctx); err != nil && ctx.Err() == nil; err = l.store.Prepare(ctx) {
			l.cfg.Log.Warn("cannot maintain the streams", "err", err)
			_ = wire.Wait(ctx, time.Second) // the loop checks ctx
		}
	}
}

// serveQueue executes runs side by side. It returns when ctx ends, or to hand over when no task is in flight.
func (l *leader) serveQueue(ctx context.Context) error {
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	followed := make(chan error, 1)
	go func() {
		followed <- l.lease.Queue(following, func(r wire.Request) {
			// during a handover, the next controller may continue a run that is not in this queue
			if !l.queue.add(following, r, l.queued(following, r)) || l.stopping.Err() != nil {
				return
			}
			if err := l.lease.Dequeue(following, r.Run, r.Seq); err != nil {
				l.cfg.Log.Warn("cannot delete a cancellation", "run", r.Run, "err", err)
			}
		}, l.queue.complete)
	}()
	defer func() {
		stop()
		<-followed
	}()
	all, cancel := context.WithCancel(ctx)
	var executing sync.WaitGroup
	defer executing.Wait()
	defer cancel()
	leading, unbind := wire.Either(all, l.stopping)
	defer unbind()
	looping, unwatch := l.cfg.Status.watch(ctx, "queue")
	defer unwatch()
	for leading.Err() == nil {
		moved := l.agents.watch(looping)
		begin, waiting := l.queue.next()
		for _, c := range begin {
			running, cancel := context.WithCancelCause(all)
			l.queue.start(c, cancel)
			executing.Go(func() {
				defer cancel(nil)
				l.executeWithRetry(leading, running, c)
				l.queue.finish(c)
			})
		}
		for _, c := range waiting {
			l.storeWaiting(looping, c, c.waiting)
		}
		select {
		case <-l.queue.changed:
		case <-moved:
		case <-time.After(reportEvery):
		case err := <-followed:
			followed <- err
			return err
		case <-leading.Done():
		}
	}
	unwatch()
	executing.Wait()
	return nil
}

// storeWaiting stores what a run waits for in the run's state.
func (l *leader) storeWaiting(ctx context.Context, c *queuedRun, waiting string) {
	s := l.stateOf(c.request, c.noted)
	s.State, s.Waiting = wire.StateQueued, waiting
	l.put(ctx, s)
}

// put stores the state of a run. An error is only logged: the state is for people, and the record is authoritative.
func (l *leader) put(ctx context.Context, s wire.RunState) {
	if err := l.lease.PutRun(ctx, s); err != nil && ctx.Err() == nil {
		l.cfg.Log.Warn("cannot store the state of a run", "run", s.Run, "err", err)
	}
}

// Pauses between attempts to execute a run after an error of the control plane.
const (
	minRetry = time.Second
	maxRetry = 30 * time.Second
)

// executeWithRetry executes a run until it has ended, this controller hands over (leading ends), or the lease is lost.
// An error that is not the run's own leads to another attempt, which keeps the run's agents and brokers. The attempt
// continues from the record, as another leader would.
func (l *leader) executeWithRetry(leading, ctx context.Context, c *queuedRun) {
	for wait := minRetry; ; wait = min(2*wait, maxRetry) {
		began := time.Now()
		err := wire.Guard(l.cfg.Log, "run "+c.request.Run, func() error { return l.execute(ctx, c) })
		if err == nil || leading.Err() != nil || l.lease.Context().Err() != nil {
			return
		}
		if time.Since(began) > maxRetry {
			wait = minRetry
		}
		l.cfg.Log.Error("run interrupted; it will be continued", "run", c.request.Run, "in", wait, "err", err)
		if wire.Wait(leading, wait) != nil {
			return
		}
	}
}

// execute executes a run to its end, with its record. An error is not the run's own: the run stays in the queue.
func (l *leader) execute(ctx context.Context, c *queuedRun) error {
	log := l.cfg.Log.With("run", c.request.Run)
	ctx, unwatch := l.cfg.Status.watch(ctx, "run "+c.request.Run)
	defer unwatch()
	between, done := wire.Either(ctx, l.stopping)
	record, err := l.awaitRecord(between, c)
	done()
	if err != nil {
		return err
	}
	// the end of a run that was cancelled while it waited is recorded, too
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	state, err := l.runState(last, c.request.Run)
	if err != nil && !errors.Is(err, wire.ErrUnreadable) {
		return err
	}
	x := &execution{leader: l, queued: c, log: log, record: record, state: l.stateOf(c.request, state),
		end: wire.End{Submission: c.request.Seq}}
	if err := x.countCrash(); err != nil {
		return x.reject(ctx, wire.EndQuarantined, err)
	}
	if c.refusal == nil {
		x.state.State, x.state.Waiting, x.state.Agents = wire.StateRunning, "", l.queue.names(c)
	}
	x.state.InFlight = wire.StartInFlight
	if err := l.lease.PutRun(last, x.state); err != nil {
		return err
	}
	if c.request.Err != nil {
		return x.reject(ctx, wire.EndRefused, c.request.Err)
	}
	x.run = c.request.Submission.Run
	return x.execute(ctx)
}

// queued stores the state of a new submission and returns it. An existing state stays as it is.
func (l *leader) queued(ctx context.Context, r wire.Request) wire.RunState {
	if r.Submission == nil {
		return wire.RunState{}
	}
	state, err := l.runState(ctx, r.Run)
	if err == nil && state.Seq == r.Seq {
		return state
	}
	l.purging.Lock() // the run has not ended any more
	defer l.purging.Unlock()
	state = l.stateOf(r, wire.RunState{})
	l.put(ctx, state)
	return state
}

// runState reads the state of a run, with the agents that a former leader reserved for it. It retries while ctx lasts.
func (l *leader) runState(ctx context.Context, run string) (wire.RunState, error) {
	for {
		one, cancel := context.WithTimeout(ctx, stopTimeout)
		state, err := l.store.RunState(one, run)
		cancel()
		if err == nil || errors.Is(err, wire.ErrUnreadable) || wire.Wait(ctx, minRetry) != nil {
			return state, err
		}
		l.cfg.Log.Warn("cannot read the state of a run", "run", run, "err", err)
	}
}

// stateOf returns the noted state if it is of this submission, else the state of a new submission.
func (l *leader) stateOf(r wire.Request, noted wire.RunState) wire.RunState {
	if noted.Seq == r.Seq && noted.Run == r.Run {
		return noted
	}
	s := wire.RunState{Run: r.Run, State: wire.StateQueued, Submitted: r.At, Seq: r.Seq, Key: r.Key}
	if sub := r.Submission; sub != nil {
		s.Name, s.By, s.Schedule = sub.Run.Name, sub.By, sub.Schedule
		s.Tasks, s.Done, s.AtMost = len(sub.Run.Cells)*sub.Run.Repeat, len(sub.Done), sub.Run.Until != nil
	}
	return s
}

// freeStorageEvery is the interval at which the leader deletes streams of old runs to free space.
const freeStorageEvery = 5 * time.Second

// lockWait is the maximum time that a run waits for other runs to be opened.
const lockWait = 2 * time.Minute

// awaitRecord opens the record of a run. A run without streams waits for space, or until it is cancelled.
func (l *leader) awaitRecord(ctx context.Context, c *queuedRun) (*wire.Recorder, error) {
	for reported := ""; ; {
		record, waiting, err := l.openRecord(ctx, c.request.Run)
		if waiting == "" {
			return record, err
		}
		if waiting != reported {
			reported = waiting
			l.cfg.Log.Warn("a run waits for storage on the control plane", "run", c.request.Run, "for", waiting)
			l.storeWaiting(ctx, c, waiting)
		}
		if err := wire.Wait(ctx, freeStorageEvery); err != nil && !errors.Is(err, errCancelled) {
			return nil, err
		}
	}
}

// openRecord opens the record of a run if there is space for it. Otherwise it returns what the run waits for.
func (l *leader) openRecord(ctx context.Context, run string) (record *wire.Recorder, waiting string, err error) {
	cancelled := errors.Is(context.Cause(ctx), errCancelled) // the end of a cancelled run is recorded
	wire.Progress(ctx, lockWait)
	l.purging.Lock()
	defer l.purging.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if waiting, err = l.lease.FreeStorage(ctx, run, l.queue.contains); err != nil || waiting != "" && !cancelled {
		return nil, waiting, err
	}
	record, err = l.lease.Acquire(ctx, run)
	if errors.Is(err, wire.ErrFull) && !cancelled {
		return nil, "storage on the control plane: " + err.Error(), nil
	}
	return record, "", err
}
