package wire

import (
	"context"
	"time"
)

type progressKey struct{}

// WithProgress returns a context for one goroutine whose progress is watched. Functions of this package that wait under
// it call report with the maximum duration of the wait. With a nil report, nothing is watched.
func WithProgress(ctx context.Context, report func(within time.Duration)) context.Context {
	return context.WithValue(ctx, progressKey{}, report)
}

// Progress reports progress of the goroutine of ctx, until its next report within a duration. See WithProgress.
func Progress(ctx context.Context, within time.Duration) {
	if report, ok := ctx.Value(progressKey{}).(func(time.Duration)); ok && report != nil {
		report(within)
	}
}
