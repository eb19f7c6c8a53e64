package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

const kindStream = "stream"

// Leftovers lists streams. Deleting a stream deletes its consumers.
func (s *session) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	js, err := s.management(ctx)
	if err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	var all []string
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		all = append(all, name)
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("list streams: %w", explain(err))
	}
	return kit.Leftovers(kindStream, prefix, all), nil
}

// Cleanup deletes streams. A stream that does not exist is not an error.
func (s *session) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	js, err := s.management(ctx)
	if err != nil {
		return fmt.Errorf("cleanup: %w", err)
	}
	return kit.Cleanup(these, map[string]func([]string) error{kindStream: func(names []string) error {
		return kit.Each(len(names), func(i int) error {
			err := js.DeleteStream(ctx, names[i])
			if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				return fmt.Errorf("stream %q: %w", names[i], err)
			}
			return nil
		})
	}})
}
