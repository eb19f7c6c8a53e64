package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"lockstep/internal/wire"
)

// leader is one leadership.
type leader struct {
	conn   *wire.Conn
	store  *wire.Store
	cfg    Config
	agents *fleet
	lease  *wire.Leader
	queue  *queue
	copies *copies
	// stopping ends when no task is to begin any more.
	stopping context.Context
	// purging is held while streams of runs are made or deleted, and while a run that has ended is submitted again.
	purging  sync.Mutex
	attempts sync.Map // that are led: wire.Ref to *conduct
}

// lead answers for the fleet and executes runs until ctx ends or the lease does.
func (l *leader) lead(ctx context.Context) error {
	for _, answer := range []func() (func(), error){
		func() (func(), error) {
			return l.lease.ServeClients(l.agents.known, l.history, l.cfg.Hooks.Names(), l.setBaseline)
		},
		l.lease.AnswerClock,
		func() (func(), error) { return l.lease.AnswerHeartbeats(l.heartbeat, l.agents.refuse) },
		func() (func(), error) { return l.lease.AnswerReports(l.arrive, l.snapshot) },
	} {
		stop, err := answer()
		if err != nil {
			return err
		}
		stop = sync.OnceFunc(stop)
		defer context.AfterFunc(l.lease.Context(), stop)() // also if a run does not end
		defer stop()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.lease.Context(), func() { cancel(context.Cause(l.lease.Context())) })()
	defer l.cfg.schedules(ctx, l.store, l.lease)()
	var keeping sync.WaitGroup
	keeping.Go(func() { l.keepStreams(ctx) })
	if l.cfg.Copies != "" {
		l.copies.leads.Store(true)
		defer l.copies.leads.Store(false)
		keeping.Go(func() { l.fillHistory(ctx, func(wire.RunState) bool { return true }) })
	}
	l.queue = &queue{agents: l.agents, maxRuns: l.cfg.SideBySide, gather: l.cfg.Gather, lookup: net.DefaultResolver.LookupNetIP,
		changed: make(chan struct{}, 1)}
	keeping.Go(func() { l.keepRoom(ctx) })
	rousing, rest := context.WithCancel(l.lease.Context()) // tasks that are given up take their time
	keeping.Go(func() {
		for pause(rousing, reportEvery) == nil { // the loops of the queue and of runs report progress
			l.queue.wake()
			l.agents.rouse()
		}
	})
	keeping.Go(func() { l.agents.dropSilent(rousing, l.conn.RTT) })
	defer keeping.Wait()
	defer cancel(nil)
	defer rest()
	return l.serveQueue(ctx)
}

// keepStreams makes streams again that were lost with the memory of a server which came back.
func (l *leader) keepStreams(ctx context.Context) {
	for {
		select {
		case <-l.conn.Relinked():
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil {
			preparing, cancel := context.WithTimeout(ctx, stopTimeout)
			err := l.store.Prepare(preparing)
			cancel()
			if err == nil {
				break
			}
			if ctx.Err() == nil {
				l.cfg.Log.Warn("look after the streams", "err", err)
			}
			_ = pause(ctx, time.Second) // the loop looks at ctx
		}
	}
}

// untilStop returns a context that ends with ctx, or when no task is to begin any more.
func (l *leader) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unbind := context.AfterFunc(l.stopping, func() { cancel(context.Cause(l.stopping)) })
	return ctx, func() {
		unbind()
		cancel(nil)
	}
}

// serveQueue executes runs side by side until ctx ends, or this controller hands over and no task is in flight.
func (l *leader) serveQueue(ctx context.Context) error {
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.queue.forget = func(r wire.Request) { l.forget(following, r) }
	followed := make(chan error, 1)
	go func() {
		followed <- l.lease.Queue(following, func(r wire.Request) { l.queue.add(following, r, l.queued(following, r)) }, l.queue.complete)
	}()
	defer func() {
		stop()
		<-followed
	}()
	all, cancel := context.WithCancel(ctx)
	var executing sync.WaitGroup
	defer executing.Wait()
	defer cancel()
	leading, unbind := l.untilStop(all)
	defer unbind()
	looping, unwatch := l.cfg.Standing.watch(ctx, "queue")
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
				l.forgetRuns(running)
			})
		}
		for _, c := range waiting {
			l.say(looping, c)
		}
		select {
		case <-l.queue.changed:
		case <-moved:
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

// forget deletes a cancellation that nothing is here for.
func (l *leader) forget(ctx context.Context, r wire.Request) {
	if err := l.lease.Dequeue(ctx, r.Run, r.Seq); err != nil {
		l.cfg.Log.Warn("forget a cancellation", "run", r.Run, "err", err)
	}
}

// say notes what a run waits for.
func (l *leader) say(ctx context.Context, c *queuedRun) {
	s := l.stateOf(c.Request, c.noted)
	s.State, s.Waiting = wire.StateQueued, c.waiting
	if err := l.lease.PutRun(ctx, s); err != nil && ctx.Err() == nil {
		l.cfg.Log.Warn("note what a run waits for", "run", c.Run, "err", err)
	}
}

// forgetRuns keeps the list of runs that have ended as long as it may be.
func (l *leader) forgetRuns(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	l.purging.Lock()
	defer l.purging.Unlock()
	if err := l.lease.ForgetRuns(ctx, l.queue.holds); err != nil && ctx.Err() == nil {
		l.cfg.Log.Warn("forget old runs", "err", err)
	}
}

// Between tries of a run that the control plane broke off.
const (
	againLeast = time.Second
	againMost  = 30 * time.Second
)

// carry executes a run until it has ended, or this controller stops or hands over (leading ends) or leads no more. What was broken off by an error that is not the run's
// own is taken up again, with the agents and brokers that it has, as another leader would.
func (l *leader) carry(leading, ctx context.Context, c *queuedRun) {
	for wait := againLeast; ; wait = min(2*wait, againMost) {
		began := time.Now()
		err := wire.Guard(l.cfg.Log, "run "+c.Run, func() error { return l.execute(ctx, c) })
		if err == nil || leading.Err() != nil || l.lease.Context().Err() != nil {
			return
		}
		if time.Since(began) > againMost {
			wait = againLeast
		}
		l.cfg.Log.Error("a run was broken off: it is taken up again", "run", c.Run, "in", wait, "err", err)
		if pause(leading, wait) != nil {
			return
		}
	}
}

// execute takes up a run and leads it to its end. The error is not the run's: it stays in the queue.
func (l *leader) execute(ctx context.Context, c *queuedRun) error {
	log := l.cfg.Log.With("run", c.Run)
	ctx, unwatch := l.cfg.Standing.watch(ctx, "run "+c.Run)
	defer unwatch()
	between, done := l.untilStop(ctx)
	record, err := l.takeUp(between, c)
	done()
	if err != nil {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout) // one that was cancelled while it waited is ended, too
	defer cancel()
	state, err := l.stands(last, c.Run)
	if err != nil && !errors.Is(err, wire.ErrUnreadable) {
		return err
	}
	x := &execution{leader: l, queuedRun: c, record: record, seq: c.Seq, log: log, state: l.stateOf(c.Request, state)}
	if err := x.countCrash(last); err != nil {
		x.run.ID = c.Run
		return x.endEarly(ctx, wire.EndQuarantined, err)
	}
	if c.Err != nil {
		x.run.ID = c.Run
		return x.endEarly(ctx, wire.EndRefused, c.Err)
	}
	x.run, x.given, x.numbers = c.Submission.Run, c.Submission.Done, c.Submission.Numbers
	return x.execute(ctx)
}

// queued notes that a run waits, unless it was taken up before, and returns how it stands.
func (l *leader) queued(ctx context.Context, r wire.Request) wire.RunState {
	if r.Submission == nil {
		return wire.RunState{}
	}
	state, err := l.stands(ctx, r.Run)
	if err == nil && state.Seq == r.Seq {
		return state
	}
	l.purging.Lock() // a run that is submitted again is no longer one that has ended
	defer l.purging.Unlock()
	state = l.stateOf(r, wire.RunState{})
	if err := l.lease.PutRun(ctx, state); err != nil && ctx.Err() == nil {
		l.cfg.Log.Warn("note that a run waits", "run", r.Run, "err", err)
	}
	return state
}

// stands reads how a run stands, and continues trying for as long as this controller leads: it says which agents a run has that a former leader had begun.
func (l *leader) stands(ctx context.Context, run string) (wire.RunState, error) {
	for {
		one, cancel := context.WithTimeout(ctx, stopTimeout)
		state, err := l.store.RunState(one, run)
		cancel()
		if err == nil || errors.Is(err, wire.ErrUnreadable) || pause(ctx, againLeast) != nil {
			return state, err
		}
		l.cfg.Log.Warn("look how a run stands", "run", run, "err", err)
	}
}

// stateOf is how a run stands: as noted, or else at its beginning.
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

// endEarly ends a submission that is not executed.
func (x *execution) endEarly(ctx context.Context, reason wire.EndReason, why error) error {
	x.log.Error("a run is not executed", "reason", reason, "err", why)
	x.end = wire.End{Reason: reason, Detail: why.Error(), Submission: x.seq}
	return x.finishRun(ctx)
}

// finishRun says in a run's record how it ended, and deletes its submission; on an error it stays in the queue, for another try.
func (x *execution) finishRun(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := x.record.Event(ctx, wire.RunEvent{At: time.Now(), Kind: wire.RunEnded, Of: x.of, End: &x.end}); err != nil {
		return fmt.Errorf("end run: %w", err)
	}
	x.log.Info("run ended", "reason", x.end.Reason, "ran", x.end.Ran, "failed", x.end.Failed)
	return x.unqueue(ctx)
}

// unqueue notes how a run ended, as its record says, and deletes its submission.
func (x *execution) unqueue(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	x.state.State, x.state.Detail, x.state.Agents, x.state.Waiting = string(x.end.Reason), x.end.Detail, nil, ""
	x.state.InFlight, x.state.Blamed, x.state.Crashes = "", "", nil
	if x.state.Ended.IsZero() {
		x.state.Ended = time.Now()
	}
	x.note(ctx)
	if err := x.lease.Dequeue(ctx, x.run.ID, x.seq); err != nil {
		return fmt.Errorf("end run: %w", err)
	}
	return nil
}

// note stores how the run stands. It is a remark for people: the record counts.
func (x *execution) note(ctx context.Context) {
	if err := x.lease.PutRun(ctx, x.state); err != nil && ctx.Err() == nil {
		x.log.Log(ctx, slog.LevelWarn, "note how a run stands", "err", err)
	}
}
