package web

import (
	"context"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/wire"
)

const (
	// the time for which a run is followed without viewers; longer than the reload interval of pages without scripts
	watchLonger = 30 * time.Second
	catchUp     = time.Second // the wait of a page for the earlier seconds of the task in flight
)

// liveFollowers follow runs, each run once for all its viewers. They are safe for concurrent use.
type liveFollowers struct {
	conn *wire.Client
	mu   sync.Mutex
	of   map[string]*liveFollower // by run
}

// liveFollower follows the record of one run.
type liveFollower struct {
	run     string
	stop    context.CancelFunc
	viewers int       // guarded by liveFollowers.mu, as is left
	left    time.Time // when the last viewer left

	read   chan struct{} // closed when the summary of the run has been read, or why is set
	why    error
	caught chan struct{} // closed when the existing entries have been read
	over   chan struct{} // closed when the run has ended or is no longer followed

	mu sync.Mutex // guards at
	at *runInfo
}

func newLiveFollowers(conn *wire.Client) *liveFollowers {
	return &liveFollowers{conn: conn, of: map[string]*liveFollower{}}
}

// look returns the follower of a run after it has read the summary. The caller calls leave when its viewer disconnects.
// The error wraps wire.ErrNoRecord if the run has not begun.
func (all *liveFollowers) look(ctx context.Context, run string) (w *liveFollower, leave func(), err error) {
	all.mu.Lock()
	w = all.of[run]
	if w == nil {
		following, stop := context.WithCancel(context.WithoutCancel(ctx)) // the follower outlives this viewer
		w = &liveFollower{run: run, stop: stop, read: make(chan struct{}), caught: make(chan struct{}),
			over: make(chan struct{}), at: newRunInfo()}
		all.of[run] = w
		go all.follow(following, w)
	}
	w.viewers++
	all.mu.Unlock()
	leave = func() { all.leave(w) }
	select {
	case <-w.read:
		err = w.why
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	return w, leave, nil
}

// leave removes a viewer. A follower without viewers ends after watchLonger.
func (all *liveFollowers) leave(w *liveFollower) {
	all.mu.Lock()
	defer all.mu.Unlock()
	w.viewers--
	if w.viewers > 0 {
		return
	}
	w.left = time.Now()
	time.AfterFunc(watchLonger, func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		if w.viewers == 0 && time.Since(w.left) >= watchLonger {
			all.forget(w)
			w.stop()
		}
	})
}

// forget removes a follower, so that the next viewer starts a new one. The caller has locked mu.
func (all *liveFollowers) forget(w *liveFollower) {
	if all.of[w.run] == w {
		delete(all.of, w.run)
	}
}

// follow reads the record of a run until the run has ended, the follower is stopped, or the connection is closed.
func (all *liveFollowers) follow(ctx context.Context, w *liveFollower) {
	caught := sync.OnceFunc(func() { close(w.caught) })
	defer func() {
		w.stop()
		all.mu.Lock()
		all.forget(w)
		all.mu.Unlock()
		caught()
		close(w.over)
	}()
	looking, enough := context.WithTimeout(ctx, askTimeout)
	// no other goroutine uses w.at before w.read is closed
	var last wire.Cursor
	_, err := all.conn.Read(looking, wire.RecordQuery{Run: w.run, Summary: true}, func(e wire.Entry) error {
		w.at.entry(e)
		last = e.At
		return nil
	})
	enough()
	w.why = err
	ended, idle := w.at.state.End != nil, w.at.state.Attempt == nil
	close(w.read)
	if err != nil || ended {
		return
	}
	if idle {
		caught()
	}
	rest := wire.RecordQuery{Run: w.run, Behind: last, Wait: true}
	_, _ = all.conn.Read(ctx, rest, func(e wire.Entry) error { // returns when ctx ends or the connection is closed
		w.mu.Lock()
		w.at.entry(e)
		ended := w.at.state.End != nil
		w.mu.Unlock()
		if e.Last {
			caught()
		}
		if ended {
			w.stop()
		}
		return nil
	})
}

// view returns the live view of the run and the number of its outcomes.
func (w *liveFollower) view(now time.Time) (v liveView, outcomes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at.view(now), w.at.state.Outcomes()
}

// awaitEntries waits up to catchUp until the existing entries of the task in flight have been read.
func (w *liveFollower) awaitEntries(ctx context.Context) {
	late := time.NewTimer(catchUp)
	defer late.Stop()
	select {
	case <-w.caught:
	case <-late.C:
	case <-ctx.Done():
	}
}
