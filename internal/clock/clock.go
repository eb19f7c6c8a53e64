// Package clock is the only clock of Lockstep. It returns nanoseconds of the host's CLOCK_MONOTONIC at the cost of one
// time.Since. Values are comparable between all processes of one boot. It also waits precisely for points in time, for
// thousands of goroutines at once. Go's own timers wake late when sockets are busy.
//
// Inside a testing/synctest bubble, Now follows the bubble's fake time, and every wait is durably blocking. Code that
// uses this package can therefore be tested in a bubble: see bubbled.
package clock

import (
	"context"
	"time"
)

// Now returns the nanoseconds of CLOCK_MONOTONIC of this host. Values of processes of one boot are comparable. Values
// of different hosts, or of clocks with different IDs, are not. In a synctest bubble it is the bubble's fake time with
// an arbitrary origin; it is negative there. It is safe for concurrent use and does not allocate.
func Now() int64 {
	if wrong != nil {
		return wrong.at(truth())
	}
	return truth()
}

// truth returns the time of the host's own clock.
func truth() int64 { return origin.monotonic + int64(time.Since(origin.time)) }

// ID identifies the clock that Now reads. It is the boot id of the host, or a random id of this process if there is
// none. Times of two agents are comparable if and only if their IDs are equal.
func ID() string {
	if wrong != nil {
		return wrong.name
	}
	return id()
}

// Until waits until Now() >= at, or until ctx ends. It returns ctx.Err() if ctx ends first or has already ended, and
// otherwise nil, at once if at is in the past. It is safe for concurrent use. It allocates; goroutines that wait often
// should use a Waiter.
func Until(ctx context.Context, at int64) error {
	var w Waiter
	return w.Until(ctx, at)
}

// bubbled reports whether the caller runs in a synctest bubble. In a bubble time.Now has no monotonic reading; outside
// it always has one. On a platform without a monotonic clock, waits then use Go's timers, which is correct, too.
func bubbled() bool {
	now := time.Now()
	return now == now.Round(0)
}
