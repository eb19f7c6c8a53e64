package web

import (
	"context"
	"sync"
	"time"

	"lockstep/internal/wire"
)

const (
	// a run is followed on when nobody looks: longer than a page without scripts takes to load itself again
	watchLonger = 30 * time.Second
	catchUp     = time.Second // that a page waits for the seconds of the task under way
)

// liveFollowers follow runs, each once for all who look at it. Safe for concurrent use.
type liveFollowers struct {
	conn *wire.Client
	mu   sync.Mutex
	of   map[string]*liveFollower // by run
}

// liveFollower is a run that is followed.
type liveFollower struct {
	run     string
	stop    context.CancelFunc
	lookers int       // guarded by liveFollowers.mu, as is
	left    time.Time // when the last of them left

	read   chan struct{} // closed when the run's outline has been read, or why says why not
	why    error
	caught chan struct{} // closed when all that was there has been read
	over   chan struct{} // closed when nothing more comes: the run has ended, or is followed no longer

	mu sync.Mutex // guards
	at *runInfo
}

func newLiveFollowers(conn *wire.Client) *liveFollowers {
	return &liveFollowers{conn: conn, of: map[string]*liveFollower{}}
}

// look returns the watch of a run, with its outline read, and leave, to be called by who looks no longer. The error
// wraps wire.ErrNoRecord if the run has not begun.
func (all *liveFollowers) look(ctx context.Context, run string) (w *liveFollower, leave func(), err error) {
	all.mu.Lock()
	w = all.of[run]
	if w == nil {
		following, stop := context.WithCancel(context.WithoutCancel(ctx)) // others look on when this one has left
		w = &liveFollower{run: run, stop: stop, read: make(chan struct{}), caught: make(chan struct{}),
			over: make(chan struct{}), at: newRunInfo()}
		all.of[run] = w
		go all.follow(following, w)
	}
	w.lookers++
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

// leave lets a watch end when nobody has looked for a while.
func (all *liveFollowers) leave(w *liveFollower) {
	all.mu.Lock()
	defer all.mu.Unlock()
	w.lookers--
	if w.lookers > 0 {
		return
	}
	w.left = time.Now()
	time.AfterFunc(watchLonger, func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		if w.lookers == 0 && time.Since(w.left) >= watchLonger {
			all.forget(w)
			w.stop()
		}
	})
}

// forget has who looks next begin anew. The caller holds mu.
func (all *liveFollowers) forget(w *liveFollower) {
	if all.of[w.run] == w {
		delete(all.of, w.run)
	}
}

// follow reads a run's record until the run has ended, the watch is stopped, or the connection closed.
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
	last, err := all.conn.ReadSummary(looking, w.run, w.at.entry)
	enough()
	w.why = err
	ended, idle := w.at.End != nil, w.at.Attempt == nil
	close(w.read)
	if err != nil || ended {
		return
	}
	if idle {
		caught()
	}
	_ = all.conn.FollowFrom(ctx, w.run, last, func(e wire.Entry) { // ends with ctx, or with the connection
		w.mu.Lock()
		w.at.entry(e)
		ended := w.at.End != nil
		w.mu.Unlock()
		if e.Last {
			caught()
		}
		if ended {
			w.stop()
		}
	})
}

// view is how the run stands now, and of how many of its tasks there is an outcome.
func (w *liveFollower) view(now time.Time) (v liveView, outcomes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at.view(now), w.at.Outcomes()
}

// settle waits a moment for what is there already of the task under way.
func (w *liveFollower) settle(ctx context.Context) {
	late := time.NewTimer(catchUp)
	defer late.Stop()
	select {
	case <-w.caught:
	case <-late.C:
	case <-ctx.Done():
	}
}
