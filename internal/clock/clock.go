// Package clock is the one clock of Lockstep: nanoseconds of the host's CLOCK_MONOTONIC, comparable between
// all processes of one boot, at the cost of one time.Since. It also waits for points of that clock precisely,
// for thousands of goroutines at once, where Go's own timers wake late beside busy sockets.
//
// Inside a testing/synctest bubble, Now follows the bubble's fake time and every wait is durably blocking in
// the bubble, so that code written against this package can be tested in a bubble as it is: see bubbled.
package clock

import (
	"context"
	"time"
)

// Now returns the nanoseconds of CLOCK_MONOTONIC of this host. Values of two processes of one boot compare;
// values of two hosts, or of clocks with different IDs, do not. In a synctest bubble it is the bubble's fake
// time from an origin of no meaning (it is negative there). Safe for concurrent use; allocates nothing.
func Now() int64 {
	if wrong != nil {
		return wrong.at(truth())
	}
	return truth()
}

// truth is the host's own clock.
func truth() int64 { return origin.monotonic + int64(time.Since(origin.time)) }

// ID names the clock that Now reads: the boot id of the host, or, where there is none, a random id of this
// process. Times of two agents compare if and only if their IDs are equal.
func ID() string {
	if wrong != nil {
		return wrong.name
	}
	return id()
}

// Until waits until Now() >= at, or until ctx ends, and then returns the cause of that: ctx.Err(). A point in
// the past is no wait, but a ctx that has ended is an error all the same. Safe for concurrent use.
// It allocates; a goroutine that waits often keeps a Waiter.
func Until(ctx context.Context, at int64) error {
	var w Waiter
	return w.Until(ctx, at)
}

// bubbled reports whether the caller runs in a synctest bubble: a bubble's time.Now carries no monotonic
// reading, and outside of one it always does. (Should a platform have no monotonic clock at all, this makes
// it wait with Go's timers, which is right as well.)
func bubbled() bool {
	now := time.Now()
	return now == now.Round(0)
}
