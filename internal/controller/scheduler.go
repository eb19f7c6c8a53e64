package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/schedule"
	"lockstep/internal/wire"
)

// Clock is the clock that schedules use. See Config.Clock for the default.
type Clock interface {
	Now() time.Time
	// After sends a value once d has passed. stop ends the wait and must be called.
	After(d time.Duration) (c <-chan time.Time, stop func())
}

type hostClock struct{}

func (hostClock) Now() time.Time { return time.Now() }

func (hostClock) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// slotLook is the maximum interval at which a schedule reads the clock: wall clocks are set, and hosts sleep.
const slotLook = 20 * time.Second

// scheduler fires schedules while its controller leads. Every change of a schedule is stored by compare-and-set before
// it takes effect. So another scheduler can continue at any point, and two schedulers at the same time do no harm.
type scheduler struct {
	store *wire.Store
	lease *wire.Leader
	clock Clock
	hooks *Hooks
	epoch uint64 // of this leadership
	runs  string // folder of the controller's copies; empty: none
	log   *slog.Logger

	status *Status
	expand func(context.Context, schedule.Matrix) (plan.Run, error)

	keepers map[string]*keeper
	wg      sync.WaitGroup
}

// schedules starts the scheduler and returns a function that stops it. A control plane that ends with this process has
// no schedules.
func (cfg Config) schedules(ctx context.Context, store *wire.Store, lease *wire.Leader) (stop func()) {
	if store.Local() {
		return func() {}
	}
	s := &scheduler{store: store, lease: lease, epoch: lease.Epoch(), clock: cfg.Clock, hooks: cfg.Hooks,
		runs: cfg.Copies, log: cfg.Log, expand: cfg.Expand, status: cfg.Status}
	if s.clock == nil {
		s.clock = hostClock{}
	}
	if s.expand == nil {
		s.expand = Expand
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// run fires schedules until ctx ends, and waits for the goroutines that it started.
func (s *scheduler) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer s.wg.Wait()
	defer stop()
	s.keepers = map[string]*keeper{}
	var known []wire.KeptSchedule
	for ctx.Err() == nil {
		again := time.NewTimer(slotLook)
		all, err := s.store.Schedules(ctx, known)
		if err == nil {
			known = all
			s.update(ctx, all)
		} else if ctx.Err() == nil {
			s.log.Warn("cannot read the schedules; retrying", "err", err)
			again.Reset(time.Second)
		}
		select {
		case <-s.lease.Edited():
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
}

// update passes schedules to their keepers, and stops the keepers of removed schedules.
func (s *scheduler) update(ctx context.Context, all []wire.KeptSchedule) {
	for name, k := range s.keepers {
		same := func(kept wire.KeptSchedule) bool {
			return kept.Name == name && (kept.Err != nil || kept.Schedule.ID == k.id)
		}
		if !slices.ContainsFunc(all, same) {
			k.stop()
			delete(s.keepers, name)
		}
	}
	for _, kept := range all {
		k := s.keepers[kept.Name]
		if k == nil {
			ctx, stop := context.WithCancel(ctx)
			k = &keeper{scheduler: s, name: kept.Name, id: kept.Schedule.ID, stop: stop,
				inbox: make(chan wire.KeptSchedule, 1), over: make(chan over, 1), hookResults: make(chan hookResult, 1),
				log: s.log.With("schedule", kept.Name)}
			s.keepers[kept.Name] = k
			s.wg.Go(func() {
				for wire.Guard(k.log, "schedule", func() error { k.keep(ctx); return nil }) != nil {
					k.kept = wire.KeptSchedule{} // it fires again after a change; the others fire
				}
			})
		}
		if k.handed == kept.Revision {
			continue
		}
		k.handed = kept.Revision
		select { // only the newest counts
		case <-k.inbox:
		default:
		}
		k.inbox <- kept
	}
}

// keeper manages one schedule.
type keeper struct {
	*scheduler
	name        string
	id          string // of the schedule; a later schedule of the same name has another
	handed      uint64 // revision last sent to inbox; used by the scheduler only
	stop        context.CancelFunc
	inbox       chan wire.KeptSchedule
	over        chan over
	hookResults chan hookResult
	log         *slog.Logger

	kept    wire.KeptSchedule
	table   *schedule.Timetable
	awaited string // the run whose end over will report
	calling string // the run whose hook is being called
	wg      sync.WaitGroup
}

// keep handles changes of the schedule, slots, ended runs and hook results until ctx ends.
func (k *keeper) keep(ctx context.Context) {
	defer k.wg.Wait()
	ctx, unwatch := k.status.watch(ctx, "schedule "+k.name)
	defer unwatch()
	report := time.NewTicker(reportEvery)
	defer report.Stop()
	for ctx.Err() == nil {
		wire.Progress(ctx, 0)
		wait := slotLook
		if k.kept.Revision > 0 && k.kept.Err == nil {
			wait = k.look(ctx)
		}
		tick, stop := k.clock.After(wait)
		select {
		case kept := <-k.inbox:
			k.take(kept)
		case o := <-k.over:
			k.awaited = ""
			k.ended(ctx, o)
		case t := <-k.hookResults:
			k.calling = ""
			k.called(ctx, t)
		case <-tick:
		case <-report.C:
		case <-ctx.Done():
		}
		stop()
	}
}

// take replaces the current state by the one that was read, unless the current one is newer.
func (k *keeper) take(kept wire.KeptSchedule) {
	if kept.Revision < k.kept.Revision {
		return
	}
	before := k.kept
	k.kept = kept
	if kept.Err == nil && (k.table == nil || before.Schedule.Cron != kept.Schedule.Cron ||
		before.Schedule.Zone != kept.Schedule.Zone) {
		k.table, k.kept.Err = schedule.NewTimetable(kept.Schedule.Cron, kept.Schedule.Zone)
	}
	if k.kept.Err != nil && (before.Err == nil || before.Err.Error() != k.kept.Err.Error()) {
		k.log.Error("invalid schedule: it does not fire", "err", k.kept.Err)
	}
}

// change stores the schedule as edited by edit. If another writer changed it meanwhile, edit is applied again to the
// newer state. change reports whether the edit was made and stored.
func (k *keeper) change(ctx context.Context, edit func(*schedule.Schedule) bool) bool {
	for ctx.Err() == nil && k.kept.Err == nil {
		s := k.kept.Schedule.Clone()
		if !edit(&s) {
			return false
		}
		revision, err := k.store.PutSchedule(ctx, s, k.kept.Revision)
		if err == nil {
			k.kept.Schedule, k.kept.Revision = s, revision
			return true
		}
		if errors.Is(err, wire.ErrChanged) {
			kept, read := k.store.Schedule(ctx, k.name)
			if errors.Is(read, wire.ErrNoSchedule) {
				k.kept = wire.KeptSchedule{} // removed; the next reading of the schedules stops this keeper
				return false
			}
			if read == nil {
				k.take(kept)
				continue
			}
			err = read
		}
		if ctx.Err() == nil {
			k.log.Warn("cannot store a schedule; retrying", "err", err)
		}
		_ = pause(ctx, time.Second) // the loop checks ctx
	}
	return false
}

// look performs the actions that are due, and returns the time until the next one.
func (k *keeper) look(ctx context.Context) time.Duration {
	k.change(ctx, func(s *schedule.Schedule) bool { return s.Due(k.table, k.clock.Now()) })
	if e := k.kept.Schedule.Current; e != nil && e.State == schedule.Starting {
		k.fire(ctx, *e)
	}
	if e := k.kept.Schedule.Current; e != nil && e.State == schedule.Submitted && k.awaited == "" {
		run := e.Run
		k.awaited = run
		beside := wire.WithProgress(ctx, nil) // this goroutine's progress is not watched
		k.wg.Go(func() { k.await(beside, run) })
	}
	if e := k.kept.Schedule.Uncalled(); e != nil && k.calling == "" {
		k.tell(ctx, *e)
	}
	if k.kept.Revision == 0 {
		return slotLook
	}
	next := k.kept.Schedule.Wake(k.table)
	if next.IsZero() {
		return slotLook
	}
	return min(max(next.Sub(k.clock.Now()), 0), slotLook)
}
