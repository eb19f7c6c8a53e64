package eventstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

const (
	// kind is the kind of what a task creates: a group, and its stream.
	kind      = "persistent subscription with its stream"
	separator = "::" // between the names of a stream and its group
)

// Leftovers lists groups by the names of their streams. Every stream of a task has groups.
func (s *session) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	if prefix == "" {
		return nil, errors.New("look for leftovers: give the beginning of their names")
	}
	c, err := s.leader(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for leftovers of %q: %w", prefix, err)
	}
	groups, err := c.client.ListAllPersistentSubscriptions(ctx, kurrentdb.ListPersistentSubscriptionsOptions{})
	if err != nil && !is(err, kurrentdb.ErrorCodeResourceNotFound) {
		return nil, fmt.Errorf("list persistent subscriptions: %w", c.explain(ctx, err))
	}
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.EventSource + separator + g.GroupName
	}
	return kit.Leftovers(kind, prefix, names), nil
}

// Cleanup deletes groups and their streams. Missing ones are not an error.
func (s *session) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	c, err := s.leader(ctx)
	if err != nil {
		return fmt.Errorf("cleanup: %w", err)
	}
	return kit.Cleanup(these, map[string]func([]string) error{kind: func(names []string) error {
		return kit.Each(len(names), func(i int) error {
			stream, group, _ := strings.Cut(names[i], separator)
			return c.remove(ctx, stream, group)
		})
	}})
}
