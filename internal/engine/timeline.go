package engine

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
)

const (
	// notYetKnown is the beginning and end of the measurement while they are not known (warm-up "auto").
	notYetKnown = math.MaxInt64
	// minNotice is the minimum time between Measure and the beginning of the measurement. It covers agents whose clocks
	// are ahead by this much, and whose messages may already belong to the measurement.
	minNotice = 100 * time.Millisecond
)

// timeline holds the phases of the attempt: warm-up, measurement, drain. Times are ns since T0. T0 is the beginning of
// the measurement, or with warm-up "auto" the beginning of the load. Methods are safe for concurrent use once the load
// has started.
type timeline struct {
	warmup, measure, drain time.Duration
	auto                   bool // the measurement begins when the load is steady
	byCount                bool // a count of messages ends the measurement

	origin    atomic.Int64  // clock.Now() at T0
	from, end atomic.Int64  // of the measurement
	known     chan struct{} // closed when from and end are known
	over      atomic.Bool   // the measurement has ended or was cancelled; cheaper to read than the error of a context
}

func newTimeline(w plan.Workload) *timeline {
	t := &timeline{warmup: w.Warmup.D(), measure: w.Measure.D(), drain: w.Drain.Timeout.D(), auto: w.Steady.Auto,
		byCount: w.Publishers.Count > 0,
		known:   make(chan struct{})}
	t.from.Store(notYetKnown)
	t.end.Store(notYetKnown)
	return t
}

// now returns the current time, ns since T0.
func (t *timeline) now() int64 { return clock.Now() - t.origin.Load() }

// next returns the intended send time of the next message of a schedule, ns since T0.
func (t *timeline) next(s *schedule) int64 { return int64(s.Next()) - int64(t.warmup) }

// contains reports whether a time lies inside the measurement.
func (t *timeline) contains(at int64) bool { return at >= t.from.Load() && at < t.end.Load() }

// belongs reports whether a message belongs to the measurement. Normally its intended send time decides. If a count
// ends the measurement, the actual send time decides. Otherwise sending the backlog from warm-up would take time of the
// measurement without being counted. Messages sent after the end were due before it.
func (t *timeline) belongs(intended, send int64) bool {
	if t.byCount {
		return send >= t.from.Load()
	}
	return t.contains(intended)
}

// within returns the length of the part of [from, to) inside the measurement; 0 while the measurement is not known.
func (t *timeline) within(from, to int64) int64 {
	return max(0, min(to, t.ends())-max(from, t.from.Load()))
}

// ends returns the end of the measurement.
func (t *timeline) ends() int64 { return t.end.Load() }

// drainEnds returns the latest end of the drain.
func (t *timeline) drainEnds() int64 { return t.ends() + int64(t.drain) }

// warmupEnds returns when the measurement begins, since the beginning of warm-up. It returns false while that is not
// known.
func (t *timeline) warmupEnds() (time.Duration, bool) {
	from := t.from.Load()
	return time.Duration(from) + t.warmup, from != notYetKnown
}

// check returns an error if the measurement cannot begin at a time.
func (t *timeline) check(at time.Duration) error {
	switch now := t.now(); {
	case t.from.Load() != notYetKnown:
		return fmt.Errorf("begin the measurement %v after the start: it was to begin at %v already", at,
			time.Duration(t.from.Load()))
	case at <= 0 || at%time.Second != 0:
		return fmt.Errorf("begin the measurement %v after the start: not a whole second of the load", at)
	case now > int64(at-minNotice):
		return fmt.Errorf("begin the measurement %v after the start: this agent received it at %v, too late", at,
			time.Duration(now))
	}
	return nil
}

// set sets the measurement. It must be called only once.
func (t *timeline) set(from, end int64) {
	t.end.Store(end)
	t.from.Store(from)
	close(t.known)
}

// until returns a context that ends with context.DeadlineExceeded at the end of the measurement plus after. The end may
// become known later.
func (t *timeline) until(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	left := func() time.Duration { return time.Duration(t.origin.Load()+t.ends()-clock.Now()) + after }
	if !t.auto {
		return context.WithTimeout(ctx, left())
	}
	parent := ctx
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		select {
		case <-t.known:
		case <-ctx.Done():
			return
		}
		timer := time.NewTimer(left())
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(context.DeadlineExceeded)
		case <-ctx.Done():
		}
	}()
	return lateDeadline{parent, ctx}, func() { cancel(context.Canceled) }
}

// lateDeadline is a context whose deadline becomes known after its creation. Its error, and that of contexts derived
// from it, distinguishes a deadline from a cancellation. Value is the parent's: package context thus does not find the
// inner cancelCtx, and calls Err.
type lateDeadline struct {
	context.Context
	ends context.Context
}

func (c lateDeadline) Done() <-chan struct{} { return c.ends.Done() }

func (c lateDeadline) Err() error {
	err := c.ends.Err()
	if err != nil && context.Cause(c.ends) == context.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return err
}

// AfterFunc saves package context one goroutine per derived context.
func (c lateDeadline) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.ends, f) }
