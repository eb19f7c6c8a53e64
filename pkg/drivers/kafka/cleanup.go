package kafka

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/pkg/drivers"
)

// The kinds of objects that a task creates.
const (
	kindTopic = "topic"
	kindGroup = "consumer group"
)

// Leftovers lists topics and consumer groups.
func (s *session) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	known, err := s.metadata(ctx, s.admin, nil)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	var all []drivers.Leftover
	for _, t := range known.Topics {
		if t.Topic != nil && strings.HasPrefix(*t.Topic, prefix) {
			all = append(all, drivers.Leftover{Kind: kindTopic, Name: *t.Topic})
		}
	}
	groups, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, s.admin)
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", explain(err))
	}
	left, err := leftGroups(groups, prefix)
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", explain(err))
	}
	all = append(all, left...)
	slices.SortFunc(all, func(a, b drivers.Leftover) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// leftGroups returns the groups of an answer whose names begin with prefix. The answer contains an error code if one of
// the brokers failed.
func leftGroups(answer *kmsg.ListGroupsResponse, prefix string) (left []drivers.Leftover, err error) {
	for _, g := range answer.Groups {
		if strings.HasPrefix(g.Group, prefix) {
			left = append(left, drivers.Leftover{Kind: kindGroup, Name: g.Group})
		}
	}
	return left, failure(answer.ErrorCode, nil)
}

// Cleanup deletes topics and consumer groups. Missing ones are not an error.
func (s *session) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	var topics, groups []string
	for _, x := range these {
		switch x.Kind {
		case kindTopic:
			topics = append(topics, x.Name)
		case kindGroup:
			groups = append(groups, x.Name)
		default:
			return fmt.Errorf("cleanup %s %q: Kafka has no such things: %w", x.Kind, x.Name, drivers.ErrUnsupported)
		}
	}
	if err := s.remove(ctx, topics, groups); err != nil {
		return fmt.Errorf("cleanup: %w", err)
	}
	return nil
}
