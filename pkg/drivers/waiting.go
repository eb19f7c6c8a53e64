package drivers

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Waiting sums the time for which a publisher waited for the broker inside Publish and Flush. Reasons are buffer space,
// credit, a response, or a blocked connection. The rest of these calls is the load generator's own work. Overlapping
// times count once. Its methods are safe for concurrent use, and have no effect on nil.
//
// Publishers may share a connection. While a write of one publisher is blocked, all time of the others inside Publish
// counts as waiting. The error is at most the own work of one message per publisher and blocked write.
type Waiting struct {
	Writes *Waiting // blocked writes to the publisher's connection; nil: not counted

	open    atomic.Int32 // calls of Begin without End
	total   atomic.Int64 // ns of waits that have ended, without blocked writes
	mu      sync.Mutex   // guards the fields below
	since   time.Time    // when the first open call began
	blocked int64        // value of Writes.Nanos() at that time
}

// Begin marks that Publish or Flush begins to wait. End marks that it continues.
func (w *Waiting) Begin() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open.Load() == 0 {
		w.since, w.blocked = time.Now(), w.Writes.Nanos()
	}
	w.open.Add(1)
}

// End ends a wait that Begin began.
func (w *Waiting) End() { w.EndAbove(0) }

// EndAbove is like End, but ignores the wait if it was shorter than minimum. It is for calls that do not report when
// they wait; minimum is the time that they may need for their own work.
func (w *Waiting) EndAbove(minimum time.Duration) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open.Load() == 1 {
		if n := w.unended(); n >= int64(minimum) {
			w.total.Add(n) // add before open becomes 0: Nanos reads both without mu
		}
	}
	w.open.Add(-1)
}

// unended returns the duration of the open wait, without blocked writes. The caller holds mu.
func (w *Waiting) unended() int64 { return int64(time.Since(w.since)) - (w.Writes.Nanos() - w.blocked) }

// Nanos returns the time waited so far in ns, including an open wait.
func (w *Waiting) Nanos() int64 {
	if w == nil {
		return 0
	}
	// fast path: Nanos is called for each message
	if b := w.Writes; b != nil && w.open.Load()+b.open.Load() == 0 {
		return w.total.Load() + b.total.Load()
	}
	return w.nanos()
}

func (w *Waiting) nanos() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.total.Load() + w.Writes.Nanos()
	if w.open.Load() > 0 {
		n += w.unended()
	}
	return n
}

type waitingKey struct{}

// WithWaiting returns a context for Env.Dial. w then records the time for which writes to the dialled connection are
// blocked.
func WithWaiting(ctx context.Context, w *Waiting) context.Context {
	return context.WithValue(ctx, waitingKey{}, w)
}

// WaitingOf returns the Waiting of a context made by WithWaiting, or nil.
func WaitingOf(ctx context.Context) *Waiting {
	w, _ := ctx.Value(waitingKey{}).(*Waiting)
	return w
}
