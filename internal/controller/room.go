package controller

import (
	"context"
	"errors"
	"time"

	"lockstep/internal/wire"
)

// roomEvery is how often the streams of old runs are deleted that newer ones leave no room for.
const roomEvery = 5 * time.Second

// lockWait is how long a run may wait for others that are taken up.
const lockWait = 2 * time.Minute

// keepRoom deletes streams of old runs while others go on, until ctx ends.
func (l *leader) keepRoom(ctx context.Context) {
	for pause(ctx, roomEvery) == nil {
		l.purging.Lock()
		_, err := l.lease.MakeRoom(ctx, "", l.queue.holds)
		l.purging.Unlock()
		if err != nil && ctx.Err() == nil {
			l.cfg.Log.Warn("make room on the control plane", "err", err)
		}
	}
}

// takeUp opens the record of a run. A run without streams waits until there is room for them, unless it was cancelled.
func (l *leader) takeUp(ctx context.Context, c *queuedRun) (*wire.Recorder, error) {
	for said := ""; ; {
		record, waiting, err := l.openRecord(ctx, c.Run)
		if waiting == "" {
			return record, err
		}
		if waiting != said {
			said = waiting
			l.cfg.Log.Warn("a run waits for room on the control plane", "run", c.Run, "for", waiting)
			s := l.stateOf(c.Request, c.noted)
			s.State, s.Waiting = wire.StateQueued, waiting
			if err := l.lease.PutRun(ctx, s); err != nil && ctx.Err() == nil {
				l.cfg.Log.Warn("note what a run waits for", "run", c.Run, "err", err)
			}
		}
		if err := pause(ctx, roomEvery); err != nil && !errors.Is(err, errCancelled) {
			return nil, err
		}
	}
}

// openRecord opens the record of a run if there is room for it; else it returns what the run waits for.
func (l *leader) openRecord(ctx context.Context, run string) (record *wire.Recorder, waiting string, err error) {
	cancelled := errors.Is(context.Cause(ctx), errCancelled) // its end is recorded
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
		return nil, "room on the control plane: " + err.Error(), nil
	}
	return record, "", err
}
