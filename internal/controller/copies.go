package controller

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	past "lockstep/internal/history"
	"lockstep/internal/report/page"
	"lockstep/internal/runs"
	"lockstep/internal/schedule"
	"lockstep/internal/sink"
	"lockstep/internal/wire"
)

// copyEvery is how often is looked for runs that are not copied yet.
const copyEvery = 2 * time.Second

// Of runs that have ended so many are copied at a time; runs that are executed are followed besides. Between tries of one is a growing pause.
const (
	copyBeside = 2
	copyAgain  = 5 * time.Minute
)

// copies is what a leader copies.
type copies struct {
	*leader
	mu      sync.Mutex
	of      map[string]*copying // by run
	backlog chan struct{}
}

// copying is one run's copy.
type copying struct {
	seq  uint64 // of the submission
	now  bool   // it is under way, or done
	wait time.Duration
	next time.Time // when it is tried again
}

// copyRuns keeps a copy of every run in the leader's folder, and notes of those that have ended that it is whole.
func (l *leader) copyRuns(ctx context.Context) {
	var under sync.WaitGroup
	defer under.Wait()
	k := copies{leader: l, of: map[string]*copying{}, backlog: make(chan struct{}, copyBeside)}
	for ctx.Err() == nil {
		folder, err := l.conn.Runs(ctx)
		if err != nil && ctx.Err() == nil {
			l.cfg.Log.Warn("look for runs to copy", "err", err)
		}
		for _, r := range folder {
			if r.Copied || r.State == wire.StateQueued || !k.begin(r) {
				continue
			}
			under.Go(func() {
				if err := wire.Guard(k.cfg.Log, "copy run "+r.Run, func() error { return k.copy(ctx, r) }); err != nil {
					k.fail(ctx, r, err)
				}
				if r.Over() {
					<-k.backlog
				}
			})
		}
		_ = pause(ctx, copyEvery) // the loop looks at ctx
	}
}

// begin tells whether a run is to be copied now.
func (k *copies) begin(r wire.RunState) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.of[r.Run]
	if c == nil || c.seq != r.Seq {
		c = &copying{seq: r.Seq}
		k.of[r.Run] = c
	}
	if c.now || time.Now().Before(c.next) {
		return false
	}
	if r.Over() {
		select {
		case k.backlog <- struct{}{}:
		default:
			return false
		}
	}
	c.now = true
	return true
}

// fail has a copy tried again later.
func (k *copies) fail(ctx context.Context, r wire.RunState, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.of[r.Run]
	if ctx.Err() != nil || c.seq != r.Seq {
		return
	}
	c.wait = min(max(2*c.wait, copyEvery), copyAgain)
	c.now, c.next = false, time.Now().Add(c.wait)
	k.cfg.Log.Error("copy a run: it stays on the control plane, and is copied later", "run", r.Run, "in", c.wait, "err", err)
}

// copy follows a run to its end, and then says that its copy is whole.
func (l *leader) copy(ctx context.Context, r wire.RunState) error {
	var points *sink.Sink
	if l.cfg.Points != nil {
		points = l.cfg.Points()
	}
	if _, err := Record(ctx, l.conn, r.Run, l.cfg.Copies, nil, points); err != nil {
		return err
	}
	l.keep(ctx, r.Run)
	for ctx.Err() == nil {
		seen := false
		err := l.lease.ChangeRun(ctx, r.Run, func(now *wire.RunState) bool {
			seen = now.Seq != r.Seq || now.Over() // submitted again: that is another copy
			now.Copied = seen && now.Seq == r.Seq
			return now.Copied
		})
		if err == nil && seen {
			return nil
		}
		_ = pause(ctx, copyEvery) // the loop looks at ctx
	}
	return nil
}

// keep writes the tables and the report beside a copy, and its values into the history. Without them the copy is whole: ctl report makes them again, and ctl history reindex. What agents report may be
// anything, and whatever it does to a page, the controller goes on.
func (l *leader) keep(ctx context.Context, id string) {
	run, err := runs.Open(l.cfg.Copies, filepath.Join(l.cfg.Copies, id))
	if errors.Is(err, fs.ErrNotExist) {
		return // refused before there was a plan
	}
	if err == nil {
		err = wire.Guard(l.cfg.Log, "report of run "+id, func() error { return page.Keep(run) })
	}
	if err != nil {
		l.cfg.Log.Warn("write tables and report of a run: make them with ctl report", "run", id, "err", err)
	}
	if err := wire.Guard(l.cfg.Log, "history of run "+id, func() error { return past.Of(l.cfg.Copies).Add(ctx, id) }); err != nil {
		l.cfg.Log.Warn("add a run to the history: ctl history reindex does it again", "run", id, "err", err)
	}
}

// copyWait is how long a hook waits for the copy of its run. The copy follows the run, so that it is there soon after the end, or never.
const copyWait = time.Minute

// awaitCopy waits until the copy of an entry's run is whole, and returns where it is; "": there is none on this host.
func (k *keeper) awaitCopy(ctx context.Context, e schedule.Entry) string {
	if k.runs == "" || e.Run == "" || e.State == schedule.Faulty {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, copyWait)
	defer cancel()
	for {
		state, err := k.conn.RunState(ctx, e.Run)
		if err == nil && (state.Copied || state.Run == "") {
			return k.directory(e.Run)
		}
		if pause(ctx, copyEvery/4) != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				k.log.Warn("a run has not been copied: its hook is called without a directory", "run", e.Run, "waited", copyWait, "err", err)
			}
			return ""
		}
	}
}

// directory is the controller's copy of a run, if there is one with a plan. The copy is not compared with the record.
func (k *keeper) directory(run string) string {
	if k.runs == "" || run == "" {
		return ""
	}
	dir := filepath.Join(k.runs, run)
	if _, err := runs.Open(k.runs, dir); err != nil {
		return ""
	}
	return dir
}
