package controller

import (
	"context"
	"sync"
	"time"

	"lockstep/internal/wire"
)

// copyEvery is how often is looked for runs that are not copied yet.
const copyEvery = 2 * time.Second

// copyRuns keeps a copy of every run in the leader's folder, and notes of those that have ended that it is whole.
func (l *leader) copyRuns(ctx context.Context) {
	var copying sync.WaitGroup
	defer copying.Wait()
	at := map[string]uint64{} // runs to the submission that is copied
	for ctx.Err() == nil {
		runs, err := l.conn.Runs(ctx)
		if err != nil && ctx.Err() == nil {
			l.cfg.Log.Warn("look for runs to copy", "err", err)
		}
		for _, r := range runs {
			if r.Copied || r.State == wire.StateQueued || at[r.Run] == r.Seq {
				continue
			}
			at[r.Run] = r.Seq
			copying.Go(func() { l.copy(ctx, r) })
		}
		_ = pause(ctx, copyEvery) // the loop looks at ctx
	}
}

// copy follows a run to its end, and then says that its copy is whole.
func (l *leader) copy(ctx context.Context, r wire.RunState) {
	if _, err := Record(ctx, l.conn, r.Run, l.cfg.Copies, nil, nil); err != nil {
		if ctx.Err() == nil {
			l.cfg.Log.Error("copy a run: it stays on the control plane", "run", r.Run, "err", err)
		}
		return
	}
	for ctx.Err() == nil {
		now, err := l.lease.State(ctx, r.Run)
		switch {
		case err == nil && now.Seq != r.Seq: // submitted again: that is another copy
			return
		case err == nil && now.Over():
			now.Copied = true
			if err = l.lease.PutRun(ctx, now); err == nil {
				return
			}
		}
		_ = pause(ctx, copyEvery) // the loop looks at ctx
	}
}

// makeRoom waits until the control plane has room for another run. What was not copied is never deleted for it.
func (x *execution) makeRoom(ctx context.Context) error {
	for said := false; ; {
		full, err := x.lease.MakeRoom(ctx, x.conn.Local())
		if err != nil || !full {
			return err
		}
		if !said {
			said = true
			x.state.State, x.state.Waiting = wire.StateQueued, "room on the control plane: copy runs that have ended, with a controller that has --dir"
			x.log.Warn("waiting for room on the control plane")
			e := wire.RunEvent{At: time.Now(), Kind: wire.WaitingAgents, Detail: "the control plane is full, and holds nothing that was copied: " + x.state.Waiting}
			if err := x.record.Event(ctx, e); err != nil {
				return err
			}
			x.note(ctx)
		}
		if err := pause(ctx, copyEvery); err != nil {
			return err
		}
	}
}
