// Package controller takes runs from the queue and has agents execute them in lockstep, one task at a time, until every task has an
// outcome. It promises that every wait has a deadline, that a lost agent or a failed task leaves an outcome with its
// reason while the run goes on, and that what has an outcome is not run again.
//
// Record is the other half: the follower that copies a run's record from the control plane to a directory.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"lockstep/internal/wire"
)

// Config of a controller. The zero value serves.
type Config struct {
	Log *slog.Logger
	// Gather is how long a run waits for its agents to show up before it is refused for want of them; 0: 3 s.
	Gather time.Duration
}

// errCancelled is the cause of a run that was cancelled, errStopping of one whose controller stops: that one stays in the queue.
var (
	errCancelled = errors.New("run was cancelled")
	errStopping  = errors.New("controller is stopping")
)

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
	if err := conn.Roll(); err != nil {
		return fmt.Errorf("call the agents: %w", err)
	}
	return serveQueue(ctx, conn, cfg, agents)
}

func serveQueue(ctx context.Context, conn *wire.Conn, cfg Config, agents *fleet) error {
	q := &queue{changed: make(chan struct{}, 1), cancelled: map[string]uint64{}}
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
		q.start(r, cancel)
		if r.Err != nil {
			refuse(running, conn, cfg.Log, r)
		} else {
			(&execution{conn: conn, cfg: cfg, agents: agents, run: r.Submission.Run, seq: r.Seq, given: r.Submission.Done,
				log: cfg.Log.With("run", r.Run)}).execute(running)
		}
		q.finish()
		cancel(nil)
	}
}

// refuse ends a submission that cannot be read.
func refuse(ctx context.Context, conn *wire.Conn, log *slog.Logger, r wire.Request) {
	log.Error("refused a run", "run", r.Run, "err", r.Err)
	end := wire.End{Reason: wire.EndRefused, Detail: r.Err.Error(), Submission: r.Seq}
	if err := conn.Event(ctx, r.Run, wire.RunEvent{At: time.Now(), Kind: wire.RunEnded, End: &end}); err != nil {
		log.Error("refuse a run", "err", err)
		return
	}
	if err := conn.Unqueue(ctx, r.Run, r.Seq); err != nil {
		log.Error("refuse a run", "err", err)
	}
}

// queue is what waits, in the order submitted, as the control plane keeps it.
type queue struct {
	mu        sync.Mutex
	waiting   []wire.Request
	current   wire.Request
	cancel    context.CancelCauseFunc
	cancelled map[string]uint64 // runs to the number of their last cancellation
	changed   chan struct{}
}

// add takes a message of the queue. A cancellation holds for what was submitted before it.
func (q *queue) add(r wire.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case r.Submission != nil || r.Err != nil:
		q.waiting = append(q.waiting, r)
	default:
		q.cancelled[r.Run] = r.Seq
		if q.cancel != nil && q.current.Run == r.Run && q.current.Seq < r.Seq {
			q.cancel(errCancelled)
		}
	}
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

func (q *queue) next() (wire.Request, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return wire.Request{}, false
	}
	r := q.waiting[0]
	q.waiting = q.waiting[1:]
	return r, true
}

func (q *queue) start(r wire.Request, cancel context.CancelCauseFunc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.current, q.cancel = r, cancel
	if q.cancelled[r.Run] > r.Seq {
		cancel(errCancelled)
	}
}

func (q *queue) finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.cancelled, q.current.Run)
	q.cancel = nil
}
