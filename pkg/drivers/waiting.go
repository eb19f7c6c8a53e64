package drivers

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Waiting adds up the time for which a publisher waited for the broker inside Publish and Flush: for room in a full
// buffer, for credit, for an answer, for a connection that takes no more bytes. The rest of these calls is the load
// generator's own work. Times that overlap count once. Its methods are safe for concurrent use; those of nil do
// nothing.
//
// Publishers may share a connection. While a write of one of them is blocked, all that the others do inside Publish
// counts as waiting: at most the own work of one message too much, for each publisher and blocked write.
type Waiting struct {
	Writes *Waiting // the blocked writes to the publisher's connection; nil: they are not counted

	open    atomic.Int32 // calls of Begin without End
	total   atomic.Int64 // ns of waits that have ended, without blocked writes
	mu      sync.Mutex   // guards what follows
	since   time.Time    // when the first of those open began
	blocked int64        // Writes.Nanos() then
}

// Begin is called when Publish or Flush begins to wait, and End when it continues.
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

// End ends what Begin began.
func (w *Waiting) End() { w.EndAbove(0) }

// EndAbove ends what Begin began, and does not count it if it was shorter than least. It is for calls that do not
// report when they wait: least is the time that they may take for themselves.
func (w *Waiting) EndAbove(least time.Duration) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open.Load() == 1 {
		if n := w.unended(); n >= int64(least) {
			w.total.Add(n) // before open says that nothing waits
		}
	}
	w.open.Add(-1)
}

// unended is how long what is open has lasted, without blocked writes. The caller holds mu.
func (w *Waiting) unended() int64 { return int64(time.Since(w.since)) - (w.Writes.Nanos() - w.blocked) }

// Nanos is the time waited so far, up to now if something waits.
func (w *Waiting) Nanos() int64 {
	if w == nil {
		return 0
	}
	// the usual case, cheaply: it is asked for each message
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

// WithWaiting returns a context by which Env.Dial knows whose connection it makes: w then has the times in which writes
// to it were blocked.
func WithWaiting(ctx context.Context, w *Waiting) context.Context {
	return context.WithValue(ctx, waitingKey{}, w)
}

// WaitingOf is what WithWaiting put into a context, or nil.
func WaitingOf(ctx context.Context) *Waiting {
	w, _ := ctx.Value(waitingKey{}).(*Waiting)
	return w
}
