package controller

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	past "example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/report/page"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/sink"
	"example.org/lockstep/lockstep/internal/wire"
)

// copyEvery is the interval at which a controller looks for runs to copy.
const copyEvery = 2 * time.Second

// copyBeside is the number of ended runs copied at the same time. Executed runs are copied in addition. copyAgain is
// the maximum pause between attempts to copy a run; the pause doubles from copyEvery.
const (
	copyBeside = 2
	copyAgain  = 5 * time.Minute
)

// copies manages a controller's copies of runs. Every controller copies runs that have ended. The leader also follows
// executed runs, copies them first, and writes their points.
type copies struct {
	store   *wire.Store
	cfg     Config
	leads   atomic.Bool
	mu      sync.Mutex
	of      map[string]*copying // by run
	backlog int                 // number of ended runs that are being copied
}

type copying struct {
	seq   uint64 // of the submission
	now   bool   // a goroutine copies it
	whole bool
	wait  time.Duration
	next  time.Time // of the next attempt
}

// run copies runs until ctx ends, and marks ended runs that have a complete copy.
func (k *copies) run(ctx context.Context) {
	var under sync.WaitGroup
	defer under.Wait()
	for wire.Wait(ctx, copyEvery) == nil {
		all, err := k.store.Runs(ctx)
		if err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn("cannot list runs to copy", "err", err)
		}
		if err == nil {
			k.mu.Lock()
			maps.DeleteFunc(k.of, func(run string, c *copying) bool { // copies that are being made keep their state
				return !c.now && !slices.ContainsFunc(all, func(r wire.RunState) bool { return r.Run == run })
			})
			k.mu.Unlock()
		}
		for _, r := range all {
			begin, whole := k.begin(r)
			if whole && r.Over() && !r.Copied {
				if err := k.store.MarkCopied(ctx, r); err != nil && ctx.Err() == nil {
					k.cfg.Log.Warn("cannot store that a run was copied", "run", r.Run, "err", err)
				}
			}
			if !begin {
				continue
			}
			under.Go(func() {
				k.end(ctx, r, wire.Guard(k.cfg.Log, "copy run "+r.Run, func() error {
					var points *sink.Sink
					if k.cfg.Points != nil && k.leads.Load() {
						points = k.cfg.Points()
					}
					_, err := Record(ctx, k.store, r.Run, k.cfg.Copies, nil, points)
					if err == nil {
						k.keep(ctx, r.Run)
					}
					return err
				}))
			})
		}
	}
}

// begin reports whether a run must be copied now, and whether its copy is complete.
func (k *copies) begin(r wire.RunState) (begin, whole bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.of[r.Run]
	if c != nil && c.now { // an earlier copy of the run is running: it continues to the end of this submission
		return false, false
	}
	if c == nil || c.seq != r.Seq {
		c = &copying{seq: r.Seq, whole: r.Over() && copied(k.cfg.Copies, r)}
		k.of[r.Run] = c
	}
	leads := k.leads.Load()
	if c.whole || time.Now().Before(c.next) || r.State == wire.StateQueued ||
		!leads && (!r.Over() || time.Since(r.Ended) < copyWait) {
		return false, c.whole
	}
	if r.Over() {
		if k.backlog == copyBeside {
			return false, false
		}
		k.backlog++
	}
	c.now = true
	return true, false
}

// copied reports whether the folder has a complete copy of a run that has ended.
func copied(root string, r wire.RunState) bool {
	run, err := runs.Open(root, filepath.Join(root, r.Run))
	if err != nil {
		return false
	}
	marks, err := run.Marks()
	return err == nil && slices.ContainsFunc(marks,
		func(m runs.Mark) bool { return m.Kind == runs.MarkEnd && !m.At.Before(r.Submitted) })
}

// end stores the result of a copy: complete, or to be retried later.
func (k *copies) end(ctx context.Context, r wire.RunState, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.Over() {
		k.backlog--
	}
	c := k.of[r.Run]
	gone := r.Copied && (errors.Is(err, wire.ErrNoRun) || errors.Is(err, wire.ErrNoRecord)) // others have copies
	c.now, c.whole = false, err == nil || gone
	if c.whole || ctx.Err() != nil {
		return
	}
	c.wait = min(max(2*c.wait, copyEvery), copyAgain)
	c.next = time.Now().Add(c.wait)
	k.cfg.Log.Error("cannot copy run: it stays on the control plane and is copied later", "run", r.Run, "in", c.wait, "err",
		err)
}

// keep writes tables and a report beside a copy, and adds its values to the history. A failure does not make the copy
// incomplete: ctl show -o html and ctl history reindex repeat both. A panic is caught, as agents may report anything.
func (k *copies) keep(ctx context.Context, id string) {
	run, err := runs.Open(k.cfg.Copies, filepath.Join(k.cfg.Copies, id))
	if errors.Is(err, fs.ErrNotExist) {
		return // refused before it had a plan
	}
	if err == nil {
		err = wire.Guard(k.cfg.Log, "report of run "+id, func() error { return page.Keep(run) })
	}
	if err != nil {
		k.cfg.Log.Warn("cannot write tables and report of a run; write them with ctl show -o html", "run", id, "err", err)
	}
	if err := wire.Guard(k.cfg.Log, "history of run "+id,
		func() error { return past.Of(k.cfg.Copies).Add(ctx, id) }); err != nil {
		k.cfg.Log.Warn("cannot add a run to the history; add it with ctl history reindex", "run", id, "err", err)
	}
}

// copyWait is how long a hook waits for the leader's copy of its run. A standby controller waits that long before it
// copies the run. The leader follows the run, so its copy is complete soon after the end, or never.
const copyWait = time.Minute
