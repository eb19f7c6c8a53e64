package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/pkg/drivers"
)

// Probe asks how far the task's groups are behind, what its topics take on disk, and how many of their partitions are short of replicas.
func (s *session) Probe(ctx context.Context) ([]drivers.Figure, error) {
	t := s.topology()
	if t.Queues == 0 {
		return nil, nil // nothing was set up or connected yet
	}
	topics := topicNames(t)
	short, err := s.underReplicated(ctx, topics)
	if err != nil {
		return nil, fmt.Errorf("probe Kafka: %w", err)
	}
	figures := []drivers.Figure{{Name: drivers.FigureUnderReplicated, Value: float64(short)}}
	stored, err := s.stored(ctx, topics)
	if err != nil {
		return nil, fmt.Errorf("probe Kafka: %w", err)
	}
	for broker, bytes := range stored {
		figures = append(figures, drivers.Figure{Name: drivers.FigureStored, Node: broker, Value: float64(bytes)})
	}
	if t.Consumers > 0 {
		lag, err := s.lag(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("probe Kafka: %w", err)
		}
		figures = append(figures, drivers.Figure{Name: drivers.FigureLag, Value: float64(lag)})
	}
	return figures, nil
}

// underReplicated counts partitions with fewer replicas in sync than they have.
func (s *session) underReplicated(ctx context.Context, topics []string) (n int, err error) {
	known, err := s.metadata(ctx, s.admin, topics)
	if err != nil {
		return 0, err
	}
	for _, t := range known.Topics {
		for _, p := range t.Partitions {
			if len(p.ISR) < len(p.Replicas) {
				n++
			}
		}
	}
	return n, nil
}

// stored is what each broker has of the topics on its disks, in bytes.
func (s *session) stored(ctx context.Context, topics []string) (map[string]int64, error) {
	request := kmsg.NewPtrDescribeLogDirsRequest()
	for _, name := range topics {
		topic := kmsg.NewDescribeLogDirsRequestTopic()
		topic.Topic = name
		for p := range s.options.Partitions {
			topic.Partitions = append(topic.Partitions, int32(p))
		}
		request.Topics = append(request.Topics, topic)
	}
	shards, err := within(ctx, func() ([]kgo.ResponseShard, error) { return s.admin.RequestSharded(ctx, request), nil })
	if err != nil {
		return nil, fmt.Errorf("ask for the sizes of logs: %w", err)
	}
	stored := map[string]int64{}
	for _, shard := range shards {
		if shard.Err != nil {
			continue // a broker that is down says nothing; under_replicated tells
		}
		node := fmt.Sprint(shard.Meta.NodeID)
		for _, dir := range shard.Resp.(*kmsg.DescribeLogDirsResponse).Dirs {
			if kerr.ErrorForCode(dir.ErrorCode) != nil {
				continue
			}
			for _, t := range dir.Topics {
				for _, p := range t.Partitions {
					stored[node] += p.Size
				}
			}
		}
	}
	if len(stored) == 0 {
		return nil, errors.New("ask for the sizes of logs: no broker answers")
	}
	return stored, nil
}

// lag adds up, over all groups and partitions, how many messages are behind the position that was committed.
func (s *session) lag(ctx context.Context, t drivers.Topology) (total int64, err error) {
	committed, err := s.positions(ctx, t)
	if err != nil {
		return 0, err
	}
	ends, err := s.ends(ctx, topicNames(t))
	if err != nil {
		return 0, err
	}
	for sub := range t.Subscriptions {
		for q := range t.Queues {
			at := committed[groupName(t, sub, q)]
			for p, end := range ends[topicName(t, q)] {
				total += max(0, end-at[int32(p)])
			}
		}
	}
	return total, nil
}

// positions asks what each group has committed in each partition. Before its first commit a group is at the beginning.
func (s *session) positions(ctx context.Context, t drivers.Topology) (map[string]map[int32]int64, error) {
	request := kmsg.NewPtrOffsetFetchRequest()
	for sub := range t.Subscriptions {
		for q := range t.Queues {
			group := kmsg.NewOffsetFetchRequestGroup()
			group.Group = groupName(t, sub, q)
			topic := kmsg.NewOffsetFetchRequestGroupTopic()
			topic.Topic = topicName(t, q)
			for p := range s.options.Partitions {
				topic.Partitions = append(topic.Partitions, int32(p))
			}
			group.Topics = append(group.Topics, topic)
			request.Groups = append(request.Groups, group)
		}
	}
	said, err := request.RequestWith(ctx, s.admin)
	if err != nil {
		return nil, fmt.Errorf("ask what was committed: %w", explain(err))
	}
	committed := map[string]map[int32]int64{}
	for _, g := range said.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return nil, fmt.Errorf("ask what group %s has committed: %w", g.Group, explain(err))
		}
		at := map[int32]int64{}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				at[p.Partition] = max(0, p.Offset)
			}
		}
		committed[g.Group] = at
	}
	return committed, nil
}
