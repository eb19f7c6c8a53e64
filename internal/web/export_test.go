package web

import (
	"context"
	"net/http"
	"time"

	"example.org/lockstep/lockstep/internal/wire"
)

// MaxWaiting is the maximum number of logins that wait for a check.
const MaxWaiting = maxWaiting

// HoldChecks makes logins wait until release is called.
func (a *Access) HoldChecks() (release func()) {
	a.checking <- struct{}{}
	return func() { <-a.checking }
}

// Watches are the followers of a site, for tests.
type Watches struct{ all *liveFollowers }

// NewWatches returns followers for runs of a control plane.
func NewWatches(conn *wire.Client) Watches { return Watches{newLiveFollowers(conn)} }

// Watch is one follower.
type Watch struct{ of *liveFollower }

// Look adds a viewer of a run.
func (w Watches) Look(ctx context.Context, run string) (Watch, func(), error) {
	one, leave, err := w.all.look(ctx, run)
	return Watch{one}, leave, err
}

// Series returns the number of seconds of the current attempt that are shown.
func (w Watch) Series() int {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if w.of.at.state.Attempt == nil {
		return 0
	}
	return len(w.of.at.state.Attempt.Series)
}

// Ended returns the end of the run as text.
func (w Watch) Ended() string {
	v, _ := w.of.view(time.Now())
	return v.Ended
}

// Slow returns the handler of a page that takes until its limit, without the access control.
func Slow(cfg Config) http.Handler {
	return (&site{config: cfg}).page(func(r *http.Request) (view, error) {
		<-r.Context().Done()
		return view{}, r.Context().Err()
	})
}
