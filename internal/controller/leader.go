package controller

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/wire"
)

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

func newLeader(conn *wire.Conn, store *wire.Store, cfg Config, lease *wire.Leader, k *copies,
	stopping context.Context) *leader {
	agents := newFleet(cfg.Log)
	return &leader{conn: conn, store: store, cfg: cfg, agents: agents, lease: lease, copies: k, stopping: stopping,
		ownership: &runOwnership{agents: agents},
		history:   &runHistory{store: store, lease: lease, dir: cfg.Copies, log: cfg.Log},
		queue: &runQueue{agents: agents, maxRuns: cfg.SideBySide, gather: cfg.Gather,
			lookup: net.DefaultResolver.LookupNetIP, changed: make(chan struct{}, 1)}}
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
		keeping.Go(func() { l.history.fill(ctx, func(wire.RunState) bool { return true }) })
	}
	keeping.Go(func() { // delete streams of old runs while other runs execute
		for wire.Wait(ctx, freeStorageEvery) == nil {
			l.purging.Lock()
			_, err := l.lease.MakeRoom(ctx, "", l.queue.holds)
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
			if !l.queue.add(following, r, l.queued(following, r)) {
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
				l.carry(leading, running, c)
				l.queue.finish(c)
			})
		}
		for _, c := range waiting {
			l.noteWaiting(looping, c, c.waiting)
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

// noteWaiting stores what a run waits for in the run's state.
func (l *leader) noteWaiting(ctx context.Context, c *queuedRun, waiting string) {
	s := l.stateOf(c.Request, c.noted)
	s.State, s.Waiting = wire.StateQueued, waiting
	if err := l.lease.PutRun(ctx, s); err != nil && ctx.Err() == nil {
		l.cfg.Log.Warn("cannot store the state of a queued run", "run", c.Run, "err", err)
	}
}

// Pauses between attempts to execute a run after an error of the control plane.
const (
	minRetry = time.Second
	maxRetry = 30 * time.Second
)

// carry executes a run until it has ended, this controller hands over (leading ends), or the lease is lost. An error
// that is not the run's own leads to another attempt, which keeps the run's agents and brokers. The attempt continues
// from the record, as another leader would.
func (l *leader) carry(leading, ctx context.Context, c *queuedRun) {
	for wait := minRetry; ; wait = min(2*wait, maxRetry) {
		began := time.Now()
		err := wire.Guard(l.cfg.Log, "run "+c.Run, func() error { return l.execute(ctx, c) })
		if err == nil || leading.Err() != nil || l.lease.Context().Err() != nil {
			return
		}
		if time.Since(began) > maxRetry {
			wait = minRetry
		}
		l.cfg.Log.Error("run interrupted; it will be continued", "run", c.Run, "in", wait, "err", err)
		if wire.Wait(leading, wait) != nil {
			return
		}
	}
}

// execute executes a run to its end, with its record. An error is not the run's own: the run stays in the queue.
func (l *leader) execute(ctx context.Context, c *queuedRun) error {
	log := l.cfg.Log.With("run", c.Run)
	ctx, unwatch := l.cfg.Status.watch(ctx, "run "+c.Run)
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
	state, err := l.runState(last, c.Run)
	if err != nil && !errors.Is(err, wire.ErrUnreadable) {
		return err
	}
	x := &execution{leader: l, queued: c, log: log, record: record, state: l.stateOf(c.Request, state),
		end: wire.End{Submission: c.Seq}}
	if err := x.countCrash(c.Submission); err != nil {
		return x.reject(ctx, wire.EndQuarantined, err)
	}
	if c.refusal == nil {
		x.state.State, x.state.Waiting, x.state.Agents = wire.StateRunning, "", l.queue.names(c)
	}
	x.state.InFlight = wire.StartInFlight
	x.note(last)
	if c.Err != nil {
		return x.reject(ctx, wire.EndRefused, c.Err)
	}
	x.run = c.Submission.Run
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
	if err := l.lease.PutRun(ctx, state); err != nil && ctx.Err() == nil {
		l.cfg.Log.Warn("cannot store that a run is queued", "run", r.Run, "err", err)
	}
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
		record, waiting, err := l.openRecord(ctx, c.Run)
		if waiting == "" {
			return record, err
		}
		if waiting != reported {
			reported = waiting
			l.cfg.Log.Warn("a run waits for storage on the control plane", "run", c.Run, "for", waiting)
			l.noteWaiting(ctx, c, waiting)
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
	if waiting, err = l.lease.MakeRoom(ctx, run, l.queue.holds); err != nil || waiting != "" && !cancelled {
		return nil, waiting, err
	}
	record, err = l.lease.Acquire(ctx, run)
	if errors.Is(err, wire.ErrFull) && !cancelled {
		return nil, "storage on the control plane: " + err.Error(), nil
	}
	return record, "", err
}
