package engine

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
)

const (
	// notYetKnown is when the measurement begins and ends as long as that is not known (warmup "auto"): never.
	notYetKnown = math.MaxInt64
	// minNotice is how long before the measurement begins an agent must know of it: a message that is due in it may
	// come from an agent whose clock is ahead by so much.
	minNotice = 100 * time.Millisecond
)

// timeline is the phases of the attempt: warm-up, measurement, drain. Times are ns since T0, which is when the
// measurement begins or, with warmup "auto", when the load does. Its methods may be called from any goroutine once the
// load was started.
type timeline struct {
	warmup, measure, drain time.Duration
	auto                   bool // the measurement begins when the load is steady
	byCount                bool // a count of messages ends the measurement

	origin    atomic.Int64  // clock.Now() at T0
	from, end atomic.Int64  // of the measurement
	known     chan struct{} // closed when from and end are known
	over      atomic.Bool   // the measurement has ended or was cancelled: cheaper than the error of a context
}

func newTimeline(w plan.Workload) *timeline {
	t := &timeline{warmup: w.Warmup.D(), measure: w.Measure.D(), drain: w.Drain.Timeout.D(), auto: w.Steady.Auto,
		byCount: w.Publishers.Count > 0,
		known:   make(chan struct{})}
	t.from.Store(notYetKnown)
	t.end.Store(notYetKnown)
	return t
}

// now is ns since T0.
func (t *timeline) now() int64 { return clock.Now() - t.origin.Load() }

// next is the intended send time of a schedule's next message.
func (t *timeline) next(s Schedule) int64 { return int64(s.Next()) - int64(t.warmup) }

// contains reports whether a time lies inside the measurement.
func (t *timeline) contains(at int64) bool { return at >= t.from.Load() && at < t.end.Load() }

// belongs reports whether a message belongs to the measurement: by its intended send time or, if a count ends the
// measurement, by when it was sent. Otherwise the backlog of a load that is behind when warm-up ends would use up the
// time of the count without being counted. What is sent after the end was due before it.
func (t *timeline) belongs(intended, send int64) bool {
	if t.byCount {
		return send >= t.from.Load()
	}
	return t.contains(intended)
}

// within is the part of a time that lies inside the measurement, as far as that is known.
func (t *timeline) within(from, to int64) int64 {
	return max(0, min(to, t.ends())-max(from, t.from.Load()))
}

// ends is when the measurement ends.
func (t *timeline) ends() int64 { return t.end.Load() }

// drainEnds is when the drain ends at the latest.
func (t *timeline) drainEnds() int64 { return t.ends() + int64(t.drain) }

// warmupEnds is when the measurement begins, since the beginning of warm-up; false while that is not known.
func (t *timeline) warmupEnds() (time.Duration, bool) {
	from := t.from.Load()
	return time.Duration(from) + t.warmup, from != notYetKnown
}

// check returns why the measurement cannot begin at a time.
func (t *timeline) check(at time.Duration) error {
	switch now := t.now(); {
	case t.from.Load() != notYetKnown:
		return fmt.Errorf("begin the measurement %v after the start: it was to begin at %v already", at,
			time.Duration(t.from.Load()))
	case at <= 0 || at%time.Second != 0:
		return fmt.Errorf("begin the measurement %v after the start: not a whole second of the load", at)
	case now > int64(at-minNotice):
		return fmt.Errorf("begin the measurement %v after the start: this agent heard of it at %v, too late", at,
			time.Duration(now))
	}
	return nil
}

// set fixes the measurement. It is called once.
func (t *timeline) set(from, end int64) {
	t.end.Store(end)
	t.from.Store(from)
	close(t.known)
}

// until is a context that ends with context.DeadlineExceeded some time after the measurement, which may become known
// later.
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

// lateDeadline is a context whose deadline becomes known after it was made. It and the contexts made from it
// distinguish a deadline from a cancellation all the same. Its values are its parent's, so that package context does
// not find the one that ends it and calls Err.
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

// AfterFunc spares package context a goroutine for each context made from this one.
func (c lateDeadline) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.ends, f) }
