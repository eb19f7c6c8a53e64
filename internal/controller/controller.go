// Package controller takes runs from the queue and has agents execute them in lockstep, each run one task at a time,
// until every task has an outcome. Runs that need other agents and other brokers are executed side by side. It
// guarantees that every wait has a deadline, that a lost agent or a failed task leaves an outcome with its reason while
// the run continues, and that what has an outcome is not run again.
//
// Record is the other half: the follower that copies a run's record from the control plane to a directory.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/schedule"
	"lockstep/internal/sink"
	"lockstep/internal/wire"
	"lockstep/internal/wire/lease"
)

// Config of a controller. The zero value serves.
type Config struct {
	Log *slog.Logger
	// Gather is how long agents of a run must have been missing before it is refused, once its turn has come; 0: 3 s.
	Gather time.Duration
	// Name and Version say who leads, to people and to other controllers; without a name it is the host's.
	Name, Version string
	// Copies is the folder in which the controller keeps a copy of every run, also while it stands by. What is copied
	// there may be deleted from the control plane when that needs room.
	Copies string
	// Points opens a sink for a run that is copied, so that its points go to InfluxDB whoever follows it; nil: they do
	// not.
	Points func() *sink.Sink
	// Clock is the time by which schedules fire; nil: the host's. Hooks are what is called after their runs; nil:
	// nothing.
	Clock Clock
	Hooks *Hooks
	// Expand makes a run of a schedule's matrix. Whoever may edit schedules writes the matrix: a daemon evaluates it in
	// a process of its own, with limits of time and memory. nil: the function Expand, in this process. It is called
	// from several goroutines.
	Expand func(context.Context, schedule.Matrix) (plan.Run, error)
	// Store has the limits of what the control plane stores.
	Store wire.StoreConfig
	// SideBySide is how many runs are executed at a time, at most; 1: one after the other; 0: 4.
	SideBySide int
	// Status gets the status of this controller; nil: one of Serve's own.
	Status *Status
	// Stop is closed when the controller has to hand over as soon as no task is in flight; nil: never.
	Stop <-chan struct{}
}

// errCancelled is the cause of a run that was cancelled. One whose controller stops has another, and stays in the
// queue.
var errCancelled = errors.New("run was cancelled")

// errStopping is the cause of contexts that end when the controller is to hand over.
var errStopping = errors.New("the controller hands over")

// cancelledBy is errCancelled with the name of who did it, if that is known.
func cancelledBy(who string) error {
	if who == "" {
		return errCancelled
	}
	return fmt.Errorf("%w by %s", errCancelled, who)
}

// stopTimeout bounds what is still said after the controller was told to stop.
const stopTimeout = 10 * time.Second

// formTimeout is how long a cluster may take to form before what it says of its servers is believed.
const formTimeout = 20 * time.Second

// prepare makes the streams. A cluster that is just starting does not answer yet, or knows too few of its servers:
// daemons start in any order.
func prepare(ctx context.Context, store *wire.Store, log *slog.Logger) error {
	for began := time.Now(); ; {
		err := store.Prepare(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case !errors.Is(err, context.DeadlineExceeded) &&
			(!errors.Is(err, wire.ErrServers) || time.Since(began) > formTimeout):
			return err
		}
		log.Warn("the control plane does not make its streams yet, trying again", "err", err)
		_ = pause(ctx, time.Second) // the loop looks at ctx
	}
}

// Serve waits until this controller leads, and then executes runs. When Config.Stop is closed it begins no task, waits
// for those in flight, hands leadership on and returns nil. When ctx ends it gives up the tasks in flight in an orderly
// way before that. A run stays in the queue and continues with the next controller, as far as the control plane keeps
// it. When another controller leads it stops at once, leaves the agents alone and stands by again. While the control
// plane does not answer it waits, and continues if no other controller led meanwhile.
func Serve(ctx context.Context, conn *wire.Conn, cfg Config) error {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Gather == 0 {
		cfg.Gather = 3 * time.Second
	}
	if cfg.SideBySide == 0 {
		cfg.SideBySide = 4
	}
	if cfg.Status == nil {
		cfg.Status = &Status{}
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
	k := &copies{store: store, cfg: cfg, of: map[string]*copying{}, backlog: make(chan struct{}, copyBeside)}
	if cfg.Copies != "" {
		var copying sync.WaitGroup
		defer copying.Wait()
		under, end := context.WithCancel(ctx)
		defer end()
		copying.Go(func() { k.run(under) })
	}
	host, _ := os.Hostname() // for people alone
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
			cfg.Status.lead(leading.Epoch())
			leading.RenewWhile(cfg.Status.Stuck)
			err = newLeader(conn, store, cfg, leading, k, stopping).lead(ctx)
			cfg.Status.lead(0)
		}
		lost := leading.Context().Err() != nil
		leading.Resign(context.WithoutCancel(ctx))
		if stopping.Err() != nil {
			return nil
		}
		if err != nil && !lost {
			cfg.Log.Error("lead", "err", err)
			_ = pause(stopping, time.Second) // Campaign looks at it
		}
	}
}

// check refuses submissions that no matrix makes. nil is none.
func check(s *wire.Submission) error {
	if s == nil {
		return nil
	}
	if r := s.Run; r.Repeat < 1 || len(r.Cells) == 0 {
		return fmt.Errorf("the run has %d cells and %d repetitions: want at least one of each", len(r.Cells), r.Repeat)
	}
	return s.Run.Bounded()
}

// pause waits for d, or for the end of ctx, whose cause it returns.
func pause(ctx context.Context, d time.Duration) error {
	wire.Progress(ctx, d)
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
