package requests

import (
	"sync/atomic"
	"time"
)

// Watchdog calls bite if the time between Begin and End exceeds its patience, up to a quarter of patience late. It
// costs less than a context with a deadline, which some libraries would also send to the server. Begin and End are
// called from one goroutine.
type Watchdog struct {
	begun    time.Time
	since    atomic.Int64 // time of Begin, in ns after begun, plus 1; 0: nothing is running
	patience time.Duration
	bite     func()
	timer    *time.Timer
	over     atomic.Bool
}

// NewWatchdog creates and starts a watchdog. It calls bite at most once, from another goroutine.
func NewWatchdog(patience time.Duration, bite func()) *Watchdog {
	w := &Watchdog{begun: time.Now(), patience: patience, bite: bite}
	w.timer = time.AfterFunc(time.Hour, w.look)
	w.timer.Reset(patience / 4)
	return w
}

func (w *Watchdog) now() int64 { return int64(time.Since(w.begun)) + 1 }

// Begin starts the measurement of one operation.
func (w *Watchdog) Begin() { w.since.Store(w.now()) }

// End ends the measurement.
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

// Close stops the watchdog. It does not wait for a running bite.
func (w *Watchdog) Close() {
	w.over.Store(true)
	w.timer.Stop()
}
