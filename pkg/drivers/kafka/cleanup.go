package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// The kinds of objects that a task creates.
const (
	kindTopic = "topic"
	kindGroup = "consumer group"
)

func (s *session) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	topics, err := query(ctx, func(ctx context.Context) (kadm.TopicDetails, error) { return s.admin.ListTopics(ctx) })
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", explain(err))
	}
	groups, err := query(ctx, func(ctx context.Context) (kadm.ListedGroups, error) { return s.admin.ListGroups(ctx) })
	if err != nil { // also of a single broker
		return nil, fmt.Errorf("list groups: %w", explain(err))
	}
	return append(kit.Leftovers(kindGroup, prefix, groups.Groups()),
		kit.Leftovers(kindTopic, prefix, topics.Names())...), nil
}

// Cleanup deletes topics and consumer groups. Missing ones are not an error.
func (s *session) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	return kit.Cleanup(these, map[string]func([]string) error{
		kindGroup: func(names []string) error { return s.remove(ctx, nil, names) },
		kindTopic: func(names []string) error { return s.remove(ctx, names, nil) },
	})
}
