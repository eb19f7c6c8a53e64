package web

import (
	"context"
	"time"

	"lockstep/internal/wire"
)

// MaxWaiting is how many logins wait to be checked.
const MaxWaiting = maxWaiting

// HoldChecks has logins wait to be checked until release is called.
func (a *Access) HoldChecks() (release func()) {
	a.checking <- struct{}{}
	return func() { <-a.checking }
}

// Watches are those of a site, for tests.
type Watches struct{ all *liveFollowers }

// NewWatches follow runs of a control plane.
func NewWatches(conn *wire.Client) Watches { return Watches{newLiveFollowers(conn)} }

// Watch is one of them.
type Watch struct{ of *liveFollower }

// Look joins those who look at a run.
func (w Watches) Look(ctx context.Context, run string) (Watch, func(), error) {
	one, leave, err := w.all.look(ctx, run)
	return Watch{one}, leave, err
}

// Series is how many seconds of the attempt in flight it shows.
func (w Watch) Series() int {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if w.of.at.Attempt == nil {
		return 0
	}
	return len(w.of.at.Attempt.Series)
}

// Ended is how the run ended, as pages say it.
func (w Watch) Ended() string {
	v, _ := w.of.view(time.Now())
	return v.Ended
}
