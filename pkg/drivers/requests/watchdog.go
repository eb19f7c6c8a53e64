package requests

import (
	"sync/atomic"
	"time"
)

// Watchdog bites when what is between Begin and End takes longer than its patience, or up to a quarter more than that.
// It costs less than a context with a deadline, which some libraries would pass on to the server besides. One goroutine
// calls Begin and End.
type Watchdog struct {
	begun    time.Time
	since    atomic.Int64 // of Begin, on the clock that begun is the zero of, plus one; 0: nothing is under way
	patience time.Duration
	bite     func()
	timer    *time.Timer
	over     atomic.Bool
}

// NewWatchdog makes one that calls bite at most once, from a goroutine of its own.
func NewWatchdog(patience time.Duration, bite func()) *Watchdog {
	w := &Watchdog{begun: time.Now(), patience: patience, bite: bite}
	w.timer = time.AfterFunc(time.Hour, w.look)
	w.timer.Reset(patience / 4)
	return w
}

func (w *Watchdog) now() int64 { return int64(time.Since(w.begun)) + 1 }

// Begin begins to watch.
func (w *Watchdog) Begin() { w.since.Store(w.now()) }

// End ends what Begin began.
func (w *Watchdog) End() { w.since.Store(0) }

func (w *Watchdog) look() {
	if since := w.since.Load(); since > 0 && w.now()-since > int64(w.patience) {
		w.bite()
		return
	}
	if !w.over.Load() {
		w.timer.Reset(w.patience / 4)
	}
}

// Close ends the watch. It does not wait for a bite.
func (w *Watchdog) Close() {
	w.over.Store(true)
	w.timer.Stop()
}
