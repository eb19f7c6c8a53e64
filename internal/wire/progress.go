package wire

import (
	"context"
	"time"
)

type progressKey struct{}

// WithProgress returns a context for one goroutine whose progress is watched. Whenever a function of this package waits
// under it, report is called with the maximum duration of that wait. With nil nothing is watched.
func WithProgress(ctx context.Context, report func(within time.Duration)) context.Context {
	return context.WithValue(ctx, progressKey{}, report)
}

// Progress reports that the goroutine of ctx continues, and does so again within a duration. Without WithProgress it
// does nothing.
func Progress(ctx context.Context, within time.Duration) {
	if report, ok := ctx.Value(progressKey{}).(func(time.Duration)); ok && report != nil {
		report(within)
	}
}
