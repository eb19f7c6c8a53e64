package kafka

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"lockstep/pkg/drivers"
)

// The kinds of objects that a task creates.
const (
	kindTopic = "topic"
	kindGroup = "consumer group"
)

// Leftovers lists topics and consumer groups.
func (s *session) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	topics, err := query(ctx, func(ctx context.Context) (kadm.TopicDetails, error) { return s.admin.ListTopics(ctx) })
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", explain(err))
	}
	groups, err := query(ctx, func(ctx context.Context) (kadm.ListedGroups, error) { return s.admin.ListGroups(ctx) })
	if err != nil { // also of a single broker
		return nil, fmt.Errorf("list groups: %w", explain(err))
	}
	var all []drivers.Leftover
	for _, name := range groups.Groups() {
		all = append(all, drivers.Leftover{Kind: kindGroup, Name: name})
	}
	for _, name := range topics.Names() {
		all = append(all, drivers.Leftover{Kind: kindTopic, Name: name})
	}
	return slices.DeleteFunc(all, func(x drivers.Leftover) bool { return !strings.HasPrefix(x.Name, prefix) }), nil
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
