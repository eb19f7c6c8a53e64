package eventstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"lockstep/pkg/drivers"
)

// The kinds of objects that a task creates.
const (
	kindGroup  = "persistent subscription"
	kindStream = "stream"
	separator  = "::" // between the names of a stream and its group
)

// Leftovers lists groups by the names of their streams, and streams. To find streams, the server reads all its events,
// which may take until ctx ends.
func (s *session) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	if prefix == "" {
		return nil, errors.New("look for leftovers: give the beginning of their names")
	}
	var found []drivers.Leftover
	err := s.administer(ctx, func(ctx context.Context, l *link) error {
		groups, err := l.client.ListAllPersistentSubscriptions(ctx, esdb.ListPersistentSubscriptionsOptions{})
		if err != nil && !is(err, esdb.ErrorCodeResourceNotFound) {
			return fmt.Errorf("list persistent subscriptions: %w", l.explain(err))
		}
		for _, g := range groups {
			if strings.HasPrefix(g.EventSource, prefix) {
				found = append(found, drivers.Leftover{Kind: kindGroup, Name: g.EventSource + separator + g.GroupName})
			}
		}
		streams, err := l.streams(ctx, prefix)
		if err != nil {
			return fmt.Errorf("list streams: %w", err)
		}
		for _, name := range streams {
			found = append(found, drivers.Leftover{Kind: kindStream, Name: name})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for leftovers of %q: %w", prefix, err)
	}
	slices.SortFunc(found, func(a, b drivers.Leftover) int { return strings.Compare(a.Kind+a.Name, b.Kind+b.Name) })
	return found, nil
}

// streams returns the streams that have events and whose names begin with prefix.
func (l *link) streams(ctx context.Context, prefix string) ([]string, error) {
	if v := l.version; v.Major < 23 || (v.Major == 23 && v.Minor < 10) {
		return nil, fmt.Errorf("EventStoreDB before 23.10 does not report the end of a list: %w",
			drivers.ErrUnsupported)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sub, err := l.client.SubscribeToAll(ctx, esdb.SubscribeToAllOptions{
		From: esdb.Start{}, MaxSearchWindow: 1000,
		Filter: &esdb.SubscriptionFilter{Type: esdb.StreamFilterType, Prefixes: []string{prefix}},
	})
	if err != nil {
		return nil, l.explain(err)
	}
	defer sub.Close()
	seen := map[string]bool{}
	for {
		e := sub.Recv()
		switch {
		case e.SubscriptionDropped != nil && ctx.Err() != nil:
			return nil, fmt.Errorf("the server had not gone through all that it holds: %w", ctx.Err())
		case e.SubscriptionDropped != nil:
			return nil, l.explain(e.SubscriptionDropped.Error)
		case e.EventAppeared != nil:
			seen[e.EventAppeared.OriginalEvent().StreamID] = true
		case e.CaughtUp != nil:
			return l.present(ctx, seen)
		}
	}
}

// present returns the streams that were not deleted.
func (l *link) present(ctx context.Context, seen map[string]bool) (names []string, err error) {
	for name := range seen {
		there, err := l.holds(ctx, name)
		if err != nil {
			return nil, l.explain(err)
		}
		if there {
			names = append(names, name)
		}
	}
	return names, nil
}

// Cleanup deletes groups and streams. Missing ones are not an error.
func (s *session) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	err := s.administer(ctx, func(ctx context.Context, l *link) error {
		var errs []error
		for _, one := range these {
			switch stream, group, two := strings.Cut(one.Name, separator); {
			case one.Kind == kindGroup && two:
				errs = append(errs, l.removeGroup(ctx, stream, group))
			case one.Kind == kindStream:
				errs = append(errs, l.removeStream(ctx, one.Name))
			default:
				errs = append(errs, fmt.Errorf("remove %s %q: it is not of a kind that this driver makes", one.Kind,
					one.Name))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("cleanup: %w", err)
	}
	return nil
}
