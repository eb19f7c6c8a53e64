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
	"os"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/sink"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/internal/wire/lease"
)

// Config configures a controller. The zero value is valid.
type Config struct {
	Log *slog.Logger
	// Gather is how long a run at its turn waits for missing agents before it is refused. 0: 3 s.
	Gather time.Duration
	// Name and Version identify the leader to people and to other controllers. An empty Name: the host's.
	Name, Version string
	// Copies is the folder of this controller's copies of all runs. A standby controller copies, too. The control plane
	// may delete a copied run when it needs space. Empty: no copies.
	Copies string
	// Points opens a sink for each run that the leader copies, so that InfluxDB gets its points. nil: none are written.
	Points func() *sink.Sink
	// Clock is the clock of schedules. nil: the host's clock. Hooks are called after runs of schedules. nil: none.
	Clock Clock
	Hooks *Hooks
	// Expand expands the matrix of a schedule to a run. Every user who may edit schedules writes such matrices, so a
	// daemon evaluates them in a separate process with limits of time and memory. nil: the function Expand, in this
	// process. It is called from several goroutines.
	Expand func(context.Context, schedule.Matrix) (plan.Run, error)
	Store  wire.StoreConfig // limits of what the control plane stores
	// SideBySide is the maximum number of runs executed at the same time. 1: one after the other. 0: 4.
	SideBySide int
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

// formTimeout is how long a cluster may take to form. Until then ErrServers is not final.
const formTimeout = 20 * time.Second

// prepare creates the streams. It retries while a cluster that is starting does not answer or has too few servers, as
// daemons start in any order. It returns nil when ctx ends.
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
	cfg.Gather, cfg.SideBySide = cmp.Or(cfg.Gather, 3*time.Second), cmp.Or(cfg.SideBySide, 4)
	cfg.Status, cfg.Hooks = cmp.Or(cfg.Status, &Status{}), cmp.Or(cfg.Hooks, &Hooks{})
	cfg.Clock = cmp.Or[Clock](cfg.Clock, hostClock{})
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
			leading.RenewWhile(cfg.Status.Stuck)
			err = newLeader(conn, store, cfg, leading, k, stopping).lead(ctx)
			cfg.Status.epoch.Store(0)
		}
		lost := leading.Context().Err() != nil
		leading.Resign(context.WithoutCancel(ctx))
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
	return s.Run.Bounded()
}
