package drivers

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Waiting adds up the time for which publishers of one connection waited for the broker inside Publish and Flush: for room in a full buffer, for
// credit, for an answer, for a connection that takes no more bytes. What else these calls take is the load generator's own work. Times that overlap
// count once. Its methods are safe for concurrent use; those of nil do nothing.
type Waiting struct {
	total atomic.Int64 // ns of what has ended
	open  atomic.Int32 // calls of Begin without End
	mu    sync.Mutex
	since time.Time // the first of those began
}

// Begin is called when Publish or Flush begins to wait, and End when it continues.
func (w *Waiting) Begin() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open.Add(1) == 1 {
		w.since = time.Now()
	}
}

// End ends what Begin began.
func (w *Waiting) End() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open.Load() == 1 {
		w.total.Add(int64(time.Since(w.since))) // before open says that nothing waits
	}
	w.open.Add(-1)
}

// Add reports a wait that is over, and that neither Begin nor a blocked write has reported.
func (w *Waiting) Add(d time.Duration) {
	if w != nil {
		w.total.Add(int64(d))
	}
}

// Nanos is the time waited so far, up to now if something waits. It reads no clock if nothing does.
func (w *Waiting) Nanos() int64 {
	if w == nil {
		return 0
	}
	if w.open.Load() == 0 {
		return w.total.Load()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.total.Load()
	if w.open.Load() > 0 {
		n += int64(time.Since(w.since))
	}
	return n
}

type waitingKey struct{}

// WithWaiting returns a context by which Env.Dial knows whose connection it makes: w then has the times in which writes to it were blocked.
func WithWaiting(ctx context.Context, w *Waiting) context.Context {
	return context.WithValue(ctx, waitingKey{}, w)
}

// WaitingOf is what WithWaiting put into a context, or nil.
func WaitingOf(ctx context.Context) *Waiting {
	w, _ := ctx.Value(waitingKey{}).(*Waiting)
	return w
}
