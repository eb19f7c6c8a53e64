package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"lockstep/internal/clock"
)

const (
	untold = math.MaxInt64
	// room is how long before the measurement begins an agent has to know of it at least: a message that is due in it may come from an
	// agent whose clock is ahead by so much.
	room = 100 * time.Millisecond
)

// measurement is when the measurement begins and ends, in ns since T0: never, as long as that is not known (warmup "auto").
type measurement struct {
	from, end atomic.Int64
	known     chan struct{} // closed when they are
}

// counts tells whether a message due then belongs to the measurement.
func (e *Engine) counts(due int64) bool {
	return due >= e.measured.from.Load() && due < e.measured.end.Load()
}

// belongs tells whether a message belongs to the measurement: by its due time or, where a count ends the measurement, by when it was sent. Of
// a load that is behind when warm-up ends, what is still sent of it would else take up the time of the count without being counted. What is sent
// after the end was due before it.
func (e *Engine) belongs(due, send int64) bool {
	if e.work.Publishers.Count > 0 {
		return send >= e.measured.from.Load()
	}
	return e.counts(due)
}

// ends is when the measurement ends, in ns since T0.
func (e *Engine) ends() int64 { return e.measured.end.Load() }

// drainEnds is when the drain ends at the latest, in ns since T0.
func (e *Engine) drainEnds() int64 { return e.ends() + int64(e.work.Drain.Most.D()) }

// sinceMeasure is how long ago the measurement began, negative in warm-up; false while it is not known when that will be.
func (e *Engine) sinceMeasure() (time.Duration, bool) {
	from := e.measured.from.Load()
	return time.Duration(e.now() - from), from != untold
}

// beginning is when the measurement begins, since the beginning of warm-up; false while that is not known.
func (e *Engine) beginning() (time.Duration, bool) {
	from := e.measured.from.Load()
	return time.Duration(from + e.warmup), from != untold
}

// Measure says that the measurement begins at a whole second after T0, where it is found out while the load runs when that is
// (plan.Steady.Auto). It may be called from any goroutine, once. It fails, and changes nothing, if messages that count may have passed.
func (e *Engine) Measure(at time.Duration) error {
	select {
	case <-e.started:
	default:
		return errors.New("begin the measurement: the load does not run yet")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch now := e.now(); {
	case e.measured.from.Load() != untold:
		return fmt.Errorf("begin the measurement %v after the start: it was to begin at %v already", at, time.Duration(e.measured.from.Load()))
	case at <= 0 || at%time.Second != 0:
		return fmt.Errorf("begin the measurement %v after the start: not a whole second of the load", at)
	case now > int64(at-room):
		return fmt.Errorf("begin the measurement %v after the start: this agent heard of it at %v, too late", at, time.Duration(now))
	}
	e.setMeasurement(int64(at))
	return nil
}

// setMeasurement lets the measurement begin at from and have its length; what counts comes last.
func (e *Engine) setMeasurement(from int64) {
	end := from + e.work.Measure.D().Nanoseconds()
	e.collector.EndAt(time.Duration(end))
	e.measured.end.Store(end)
	e.measured.from.Store(from)
	close(e.measured.known)
}

// MeasureBegins waits until it is known when the measurement begins, and returns that as a reading of this host's clock.
func (e *Engine) MeasureBegins(ctx context.Context) (int64, error) {
	select {
	case <-e.measured.known:
		return e.origin.Load() + e.measured.from.Load(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// until is a context that ends with context.DeadlineExceeded some time after the measurement, whenever it is told when that ends.
func (e *Engine) until(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	left := func() time.Duration { return time.Duration(e.origin.Load()+e.ends()-clock.Now()) + after }
	if !e.work.Steady.Auto {
		return context.WithTimeout(ctx, left())
	}
	parent := ctx
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		select {
		case <-e.measured.known:
		case <-ctx.Done():
			return
		}
		t := time.NewTimer(left())
		defer t.Stop()
		select {
		case <-t.C:
			cancel(context.DeadlineExceeded)
		case <-ctx.Done():
		}
	}()
	return untilTold{parent, ctx}, func() { cancel(context.Canceled) }
}

// untilTold is a context whose deadline is not known when it is made: its end, and that of contexts made from it, tells a deadline from a
// cancellation all the same. Its values are its parent's, so that package context does not find the one that ends it, and asks Err.
type untilTold struct {
	context.Context
	ends context.Context
}

func (c untilTold) Done() <-chan struct{} { return c.ends.Done() }

func (c untilTold) Err() error {
	err := c.ends.Err()
	if err != nil && context.Cause(c.ends) == context.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return err
}

// AfterFunc spares package context a goroutine for each context made from this one.
func (c untilTold) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.ends, f) }
