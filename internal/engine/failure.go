package engine

import (
	"context"
	"errors"
	"net"
	"syscall"

	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// failureKind is the counter of a publish error beside the total; false: it has none. A deadline of the engine goes
// first: it closes links that are stuck, which then fail as closed.
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

// portsExhausted reports whether a connection failed because this host has no ports or descriptors left.
func portsExhausted(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EMFILE)
}
