// Package controller takes runs from the queue and has agents execute them in lockstep, one task at a time, until every task has an
// outcome. It promises that every wait has a deadline, that a lost agent or a failed task leaves an outcome with its
// reason while the run goes on, and that what has an outcome is not run again.
//
// Record is the other half: the follower that copies a run's record from the control plane to a directory.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"lockstep/internal/wire"
)

// Config of a controller. The zero value serves.
type Config struct {
	Log *slog.Logger
	// Gather is how long a run waits for its agents to show up before it is refused for want of them; 0: 3 s.
	Gather time.Duration
}

// errCancelled is the cause of a run that was cancelled. One whose controller stops has another, and stays in the queue.
var errCancelled = errors.New("run was cancelled")

// stopTimeout bounds what is still said after the controller was told to stop.
const stopTimeout = 10 * time.Second

// Serve executes runs, one after the other, until ctx ends; then it gives up the task in flight in an orderly way and returns nil. The
// run stays in the queue and goes on with the next controller, as far as the control plane keeps it.
func Serve(ctx context.Context, conn *wire.Conn, cfg Config) error {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Gather == 0 {
		cfg.Gather = 3 * time.Second
	}
	if err := conn.Prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	agents := newFleet(cfg.Log)
	defer agents.close()
	stopBeats, err := conn.Heartbeats(agents.heard)
	if err != nil {
		return err
	}
	defer stopBeats()
	stopAnswers, err := conn.AnswerAgents(agents.list)
	if err != nil {
		return err
	}
	defer stopAnswers()
	stopClock, err := conn.AnswerClock()
	if err != nil {
		return err
	}
	defer stopClock()
	if err := conn.Roll(); err != nil {
		return fmt.Errorf("call the agents: %w", err)
	}
	return serveQueue(ctx, conn, cfg, agents)
}

func serveQueue(ctx context.Context, conn *wire.Conn, cfg Config, agents *fleet) error {
	q := &queue{changed: make(chan struct{}, 1), cancelled: map[string]uint64{}}
	q.forget = func(r wire.Request) {
		if err := conn.Unqueue(ctx, r.Run, r.Seq); err != nil {
			cfg.Log.Warn("forget a cancellation", "run", r.Run, "err", err)
		}
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	followed := make(chan error, 1)
	go func() { followed <- conn.Queue(following, q.add) }()
	defer func() {
		stop()
		<-followed
	}()
	for {
		r, ok := q.next()
		if !ok {
			select {
			case <-q.changed:
				continue
			case err := <-followed:
				followed <- err
				return err
			case <-ctx.Done():
				return nil
			}
		}
		running, cancel := context.WithCancelCause(ctx)
		q.start(cancel)
		if err := cmp.Or(r.Err, check(r.Submission)); err != nil {
			refuse(running, conn, cfg.Log, r, err)
		} else {
			(&execution{conn: conn, cfg: cfg, agents: agents, run: r.Submission.Run, seq: r.Seq, given: r.Submission.Done,
				log: cfg.Log.With("run", r.Run)}).execute(running)
		}
		q.finish()
		cancel(nil)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// Bounds of what is accepted: beyond them a submission is a mistake, or hostile.
const (
	mostTasks  = 2_000_000
	mostAgents = 10_000
)

// check refuses submissions that no matrix makes.
func check(s *wire.Submission) error {
	if s == nil {
		return nil
	}
	r := s.Run
	if r.Repeat < 1 || len(r.Cells) == 0 || r.Repeat > mostTasks/len(r.Cells) {
		return fmt.Errorf("the run has %d cells and %d repetitions: want at least one of each, and at most %d tasks", len(r.Cells), r.Repeat, mostTasks)
	}
	for _, c := range r.Cells {
		for _, w := range c.Workload.Parts() {
			p, k := w.Publishers, w.Consumers
			if p.Nodes < 0 || k.Nodes < 0 || p.Nodes > mostAgents || k.Nodes > mostAgents || c.Agents() < 1 || c.Agents() > 2*mostAgents {
				return fmt.Errorf("cell %s (%s) needs %d publishers' and %d consumers' nodes: want 1 to %d in all", c.ID, c.Name(), p.Nodes, k.Nodes, mostAgents)
			}
		}
	}
	return nil
}

// refuse ends a submission that cannot be executed.
func refuse(ctx context.Context, conn *wire.Conn, log *slog.Logger, r wire.Request, why error) {
	log.Error("refused a run", "run", r.Run, "err", why)
	end := wire.End{Reason: wire.EndRefused, Detail: why.Error(), Submission: r.Seq}
	if err := conn.Event(ctx, r.Run, wire.RunEvent{At: time.Now(), Kind: wire.RunEnded, End: &end}); err != nil {
		log.Error("refuse a run", "err", err)
		return
	}
	if err := conn.Unqueue(ctx, r.Run, r.Seq); err != nil {
		log.Error("refuse a run", "err", err)
	}
}
