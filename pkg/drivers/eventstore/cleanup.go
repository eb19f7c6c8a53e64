package eventstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"

	"lockstep/pkg/drivers"
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
	l, err := s.admin(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for leftovers of %q: %w", prefix, err)
	}
	groups, err := l.client.ListAllPersistentSubscriptions(ctx, kurrentdb.ListPersistentSubscriptionsOptions{})
	if err != nil && !is(err, kurrentdb.ErrorCodeResourceNotFound) {
		return nil, fmt.Errorf("list persistent subscriptions: %w", l.explain(ctx, err))
	}
	var found []drivers.Leftover
	for _, g := range groups {
		if strings.HasPrefix(g.EventSource, prefix) {
			found = append(found, drivers.Leftover{Kind: kind, Name: g.EventSource + separator + g.GroupName})
		}
	}
	slices.SortFunc(found, func(a, b drivers.Leftover) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// Cleanup deletes groups and their streams. Missing ones are not an error.
func (s *session) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	l, err := s.admin(ctx)
	if err != nil {
		return fmt.Errorf("cleanup: %w", err)
	}
	for _, one := range these {
		stream, group, two := strings.Cut(one.Name, separator)
		if one.Kind != kind || !two {
			err = errors.Join(err, fmt.Errorf("remove %s %q: the driver creates no such objects", one.Kind, one.Name))
			continue
		}
		err = errors.Join(err, l.remove(ctx, stream, group))
	}
	if err != nil {
		return fmt.Errorf("cleanup: %w", err)
	}
	return nil
}
