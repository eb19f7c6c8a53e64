package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lockstep/pkg/drivers"
)

// askWithin is the maximum time of a probe. Parts without an answer do not hold up the metrics of the others.
const askWithin = 3 * time.Second

// Probe reads the lag and the members of the task's groups, and the publish rate and stored bytes of its topics. It
// also reads the number of under-replicated partitions. Brokers report their own resource usage only over JMX, so those
// metrics need an agent on the host.
func (s *session) Probe(ctx context.Context) ([]drivers.Metric, error) {
	t := s.topology()
	if t.Queues == 0 {
		return nil, nil // nothing was set up or connected yet
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	parts := []func(context.Context, drivers.Topology) ([]drivers.Metric, error){s.replicaMetrics, s.diskMetrics,
		s.logMetrics, s.groupMetrics}
	answers, errs := make([][]drivers.Metric, len(parts)), make([]error, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() { answers[i], errs[i] = part(ctx, t) })
	}
	wg.Wait()
	metrics := slices.Concat(answers...)
	if err := errors.Join(errs...); err != nil {
		return metrics, fmt.Errorf("probe Kafka: %w", err)
	}
	return metrics, nil
}

// replicaMetrics counts the partitions that have fewer in-sync replicas than replicas.
func (s *session) replicaMetrics(ctx context.Context, t drivers.Topology) ([]drivers.Metric, error) {
	known, err := s.metadata(ctx, s.admin, topicNames(t))
	if err != nil {
		return nil, err
	}
	partitions, short := 0, 0
	for _, topic := range known.Topics {
		for _, p := range topic.Partitions {
			partitions++
			if len(p.ISR) < len(p.Replicas) {
				short++
			}
		}
	}
	if all := t.Queues * s.options.Partitions; partitions < all {
		return nil, fmt.Errorf("request replicas: %d of %d partitions are known", partitions, all)
	}
	return []drivers.Metric{
		{Name: drivers.MetricQueues, Value: float64(t.Queues)},
		{Name: drivers.MetricUnderReplicated, Value: float64(short)},
	}, nil
}

// diskMetrics returns, per broker, the size of the topics' logs and the free disk space. A broker that is down is
// missing, which MetricUnderReplicated shows.
func (s *session) diskMetrics(ctx context.Context, t drivers.Topology) ([]drivers.Metric, error) {
	request := kmsg.NewPtrDescribeLogDirsRequest()
	for _, name := range topicNames(t) {
		topic := kmsg.NewDescribeLogDirsRequestTopic()
		topic.Topic = name
		for p := range s.options.Partitions {
			topic.Partitions = append(topic.Partitions, int32(p))
		}
		request.Topics = append(request.Topics, topic)
	}
	shards, err := within(ctx, func() ([]kgo.ResponseShard, error) { return s.admin.RequestSharded(ctx, request), nil })
	if err != nil {
		return nil, fmt.Errorf("request the sizes of logs: %w", err)
	}
	var metrics []drivers.Metric
	for _, shard := range shards {
		if shard.Err == nil {
			metrics = append(metrics, ofDirs(fmt.Sprint(shard.Meta.NodeID),
				shard.Resp.(*kmsg.DescribeLogDirsResponse))...)
		}
	}
	if len(metrics) == 0 {
		return nil, errors.New("request the sizes of logs: no broker answers")
	}
	return metrics, nil
}

// ofDirs adds up a broker's log directories. If one cannot be read, it returns nothing, because a partial sum would be
// wrong.
func ofDirs(node string, response *kmsg.DescribeLogDirsResponse) []drivers.Metric {
	if kerr.ErrorForCode(response.ErrorCode) != nil || len(response.Dirs) == 0 {
		return nil
	}
	var stored, free float64
	volumes := map[[2]int64]bool{} // directories with the same size and free space are assumed to be on the same disk
	for _, dir := range response.Dirs {
		if kerr.ErrorForCode(dir.ErrorCode) != nil {
			return nil
		}
		for _, t := range dir.Topics {
			for _, p := range t.Partitions {
				stored += float64(p.Size)
			}
		}
		if disk := [2]int64{dir.TotalBytes, dir.UsableBytes}; dir.UsableBytes >= 0 && !volumes[disk] {
			volumes[disk] = true
			free += float64(dir.UsableBytes)
		}
	}
	metrics := []drivers.Metric{{Name: drivers.MetricStored, Node: node, Value: stored}}
	if len(volumes) > 0 {
		metrics = append(metrics, drivers.Metric{Name: drivers.MetricDiskFree, Node: node, Value: free})
	}
	return metrics
}

// logMetrics returns the publish rate and the lag.
func (s *session) logMetrics(ctx context.Context, t drivers.Topology) ([]drivers.Metric, error) {
	ends, err := s.ends(ctx, topicNames(t))
	if err != nil {
		return nil, err
	}
	appended := 0.0
	for _, topic := range ends {
		for _, end := range topic {
			appended += float64(end)
		}
	}
	var metrics []drivers.Metric
	if rate, known := s.grown.PerSecond(t.Name, appended); known {
		metrics = append(metrics, drivers.Metric{Name: drivers.MetricPublishRate, Value: rate})
	}
	if t.Consumers == 0 {
		return metrics, nil
	}
	committed, err := s.positions(ctx, t)
	if err != nil {
		return metrics, err
	}
	return append(metrics, drivers.Metric{Name: drivers.MetricLag, Value: float64(lag(t, ends, committed))}), nil
}

// lag adds up, over all groups and partitions, the number of messages after the committed position.
func lag(t drivers.Topology, ends map[string][]int64, committed map[string]map[int32]int64) (total int64) {
	for sub := range t.Subscriptions {
		for q := range t.Queues {
			at := committed[groupName(t, sub, q)]
			for p, end := range ends[topicName(t, q)] {
				total += max(0, end-at[int32(p)])
			}
		}
	}
	return total
}

// groupMetrics counts the members of the task's groups. A group that no consumer has joined yet does not exist, and
// counts as empty.
func (s *session) groupMetrics(ctx context.Context, t drivers.Topology) ([]drivers.Metric, error) {
	if t.Consumers == 0 {
		return nil, nil
	}
	request := kmsg.NewPtrDescribeGroupsRequest()
	for sub := range t.Subscriptions {
		for q := range t.Queues {
			request.Groups = append(request.Groups, groupName(t, sub, q))
		}
	}
	response, err := request.RequestWith(ctx, s.admin)
	if err != nil {
		return nil, fmt.Errorf("request members of groups: %w", explain(err))
	}
	members := 0
	for _, g := range response.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return nil, fmt.Errorf("request members of group %s: %w", g.Group, explain(err))
		}
		members += len(g.Members)
	}
	if len(response.Groups) < len(request.Groups) {
		return nil, fmt.Errorf("read members of groups: the response has %d of %d groups", len(response.Groups), len(request.Groups))
	}
	return []drivers.Metric{{Name: drivers.MetricConsumers, Value: float64(members)}}, nil
}

// positions returns the committed position of each group in each partition. It is 0 before the first commit.
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
	response, err := request.RequestWith(ctx, s.admin)
	if err != nil {
		return nil, fmt.Errorf("request the committed offsets: %w", explain(err))
	}
	committed := map[string]map[int32]int64{}
	for _, g := range response.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return nil, fmt.Errorf("request the committed offsets of group %s: %w", g.Group, explain(err))
		}
		at := map[int32]int64{}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, fmt.Errorf("request the committed offsets of group %s in partition %d: %w", g.Group, p.Partition,
						explain(err))
				}
				at[p.Partition] = max(0, p.Offset)
			}
		}
		committed[g.Group] = at
	}
	return committed, nil
}
