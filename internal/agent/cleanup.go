package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"lockstep/internal/engine"
	"lockstep/internal/plan"
	"lockstep/pkg/drivers"
)

// Cleanup is a driver's session outside of any task, by which this host finds and removes what runs have left at a
// broker. Its errors have no secrets. Safe for concurrent use as the driver's session is.
type Cleanup struct{ session *session }

// OpenCleanup opens a session with a broker. What its options refer to is read through access. The caller closes it.
func OpenCleanup(ctx context.Context, b plan.Broker, access drivers.Access) (*Cleanup, error) {
	s := &session{broker: b, access: access, log: slog.New(slog.DiscardHandler),
		event: func(drivers.EventKind, string) {}}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(s.cleanError(err), s.close())
	}
	return &Cleanup{s}, nil
}

// Leftovers lists what the broker has whose name begins with prefix, sorted. The error wraps drivers.ErrUnsupported
// where the driver, with these options, cannot list: then there is only Teardown.
func (c *Cleanup) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	cleaner, can := c.session.current().(drivers.Cleaner)
	if !can {
		return nil, fmt.Errorf("list what is there: %w", drivers.ErrUnsupported)
	}
	all, err := cleaner.Leftovers(ctx, prefix)
	return all, c.session.cleanError(err)
}

// Remove removes what Leftovers listed.
func (c *Cleanup) Remove(ctx context.Context, these []drivers.Leftover) error {
	cleaner, can := c.session.current().(drivers.Cleaner)
	if !can {
		return fmt.Errorf("remove what is there: %w", drivers.ErrUnsupported)
	}
	return c.session.cleanError(cleaner.Cleanup(ctx, these))
}

// Teardown removes the topology of a task, if there is anything of it.
func (c *Cleanup) Teardown(ctx context.Context, t plan.Task) error {
	ctx, cancel := context.WithTimeout(ctx, t.Cell.Workload.Connect.D())
	defer cancel()
	var errs []error
	for _, part := range t.Parts() {
		errs = append(errs, c.session.current().Teardown(ctx, engine.Topology(part)))
	}
	return c.session.cleanError(errors.Join(errs...))
}

// Close ends the session.
func (c *Cleanup) Close() error { return c.session.close() }

// Describe asks a broker what it is from this host, outside of any task: product, version, members, settings and
// endpoints, without secrets. What the broker's options refer to is read through access.
func Describe(ctx context.Context, b plan.Broker, access drivers.Access) (plan.Subject, error) {
	c, err := OpenCleanup(ctx, b, access)
	if err != nil {
		return plan.Subject{}, err
	}
	defer c.Close()
	subject, err := c.session.describe(ctx)
	if err != nil {
		return plan.Subject{}, err
	}
	return subject, nil
}
