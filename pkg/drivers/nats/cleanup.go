package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"lockstep/pkg/drivers"
)

// Leftovers lists streams. Deleting a stream deletes its consumers.
func (s *session) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	_, js, err := s.management(ctx)
	if err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	var all []drivers.Leftover
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		if strings.HasPrefix(name, prefix) {
			all = append(all, drivers.Leftover{Kind: "stream", Name: name})
		}
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("list streams: %w", explain(err))
	}
	slices.SortFunc(all, func(a, b drivers.Leftover) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Cleanup deletes streams. A stream that does not exist is not an error.
func (s *session) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	_, js, err := s.management(ctx)
	if err != nil {
		return fmt.Errorf("cleanup: %w", err)
	}
	var errs []error
	for _, x := range these {
		if x.Kind != "stream" {
			errs = append(errs, fmt.Errorf("cleanup %s %q: NATS has no such kind", x.Kind, x.Name))
			continue
		}
		if err := js.DeleteStream(ctx, x.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			errs = append(errs, fmt.Errorf("cleanup stream %q: %w", x.Name, err))
		}
	}
	return errors.Join(errs...)
}
