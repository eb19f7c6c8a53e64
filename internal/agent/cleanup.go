package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"example.org/lockstep/lockstep/internal/engine"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// Cleanup is a driver's session outside any task. It finds and removes leftovers of runs at a broker. Its errors
// contain no secrets. It is as safe for concurrent use as the driver's session.
type Cleanup struct{ session *session }

// OpenCleanup opens a session with a broker. Files and secrets in its options are read through access. The caller
// closes the Cleanup.
func OpenCleanup(ctx context.Context, b plan.Broker, access drivers.Access) (*Cleanup, error) {
	s := &session{broker: b, access: access, log: slog.New(slog.DiscardHandler),
		event: func(drivers.EventKind, string) {}}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(s.cleanError(err), s.close())
	}
	return &Cleanup{s}, nil
}

// Leftovers returns the broker's objects whose names begin with prefix, sorted. The error wraps drivers.ErrUnsupported
// if the driver cannot list them with these options. Then only Teardown can remove leftovers.
func (c *Cleanup) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	cleaner, can := drivers.As[drivers.Cleaner](c.session.current())
	if !can {
		return nil, fmt.Errorf("list leftovers: %w", drivers.ErrUnsupported)
	}
	all, err := cleaner.Leftovers(ctx, prefix)
	return all, c.session.cleanError(err)
}

// Remove removes objects that Leftovers has returned.
func (c *Cleanup) Remove(ctx context.Context, these []drivers.Leftover) error {
	cleaner, can := drivers.As[drivers.Cleaner](c.session.current())
	if !can {
		return fmt.Errorf("remove leftovers: %w", drivers.ErrUnsupported)
	}
	return c.session.cleanError(cleaner.Cleanup(ctx, these))
}

// Teardown removes the topology of a task as far as it exists.
func (c *Cleanup) Teardown(ctx context.Context, t plan.Task) error {
	ctx, cancel := context.WithTimeout(ctx, t.Cell.Workload.Connect.D())
	defer cancel()
	var errs []error
	for _, part := range t.Parts() {
		errs = append(errs, c.session.current().Teardown(ctx, engine.Topology(part)))
	}
	return c.session.cleanError(errors.Join(errs...))
}

// Close closes the session.
func (c *Cleanup) Close() error { return c.session.close() }

// Describe returns a broker's description, requested from this host outside any task: product, version, members,
// settings and endpoints, without secrets. Files and secrets in the broker's options are read through access.
func Describe(ctx context.Context, b plan.Broker, access drivers.Access) (plan.Subject, error) {
	c, err := OpenCleanup(ctx, b, access)
	if err != nil {
		return plan.Subject{}, err
	}
	defer c.Close()
	return c.session.describe(ctx)
}
