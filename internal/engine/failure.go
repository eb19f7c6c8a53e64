package engine

import (
	"context"
	"errors"
	"net"
	"syscall"

	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// failureKind returns the counter for the kind of a publish error, besides the total. It returns false if there is
// none. Deadlines are checked first: the engine closes stuck links at a deadline, and their calls then fail with
// ErrClosed.
func failureKind(ctx context.Context, err error) (record.Counter, bool) {
	var n net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &n) && n.Timeout(),
		errors.Is(ctx.Err(), context.DeadlineExceeded):
		return record.Timeouts, true
	case errors.Is(err, drivers.ErrClosed):
		return record.ClosedErrors, true
	}
	return 0, false
}

// portsExhausted reports whether a connection failed because this host has no free ports or file descriptors.
func portsExhausted(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EMFILE)
}
