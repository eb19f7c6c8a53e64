package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// askWithin is the maximum time of a probe. Parts without an answer do not hold up the metrics of the others.
const askWithin = 3 * time.Second

// Probe reads the lag and the members of the task's groups, and the publish rate and stored bytes of its topics. It
// also reads the number of under-replicated partitions. Brokers report their own resource usage only over JMX, so those
// metrics need an agent on the host.
func (s *session) Probe(ctx context.Context) ([]drivers.Metric, error) {
	t := s.task.Load()
	if t == nil {
		return nil, nil // nothing was set up or connected yet
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	parts := []func(context.Context, drivers.Topology) ([]drivers.Metric, error){s.replicaMetrics, s.diskMetrics,
		s.logMetrics, s.groupMetrics}
	answers := make([][]drivers.Metric, len(parts))
	err := kit.Each(len(parts), func(i int) (err error) {
		answers[i], err = parts[i](ctx, *t)
		return err
	})
	if err != nil {
		err = fmt.Errorf("probe Kafka: %w", err)
	}
	return slices.Concat(answers...), err
}

// replicaMetrics counts the partitions that have fewer in-sync replicas than replicas.
func (s *session) replicaMetrics(ctx context.Context, t drivers.Topology) ([]drivers.Metric, error) {
	known, err := metadataOf(ctx, s.library, topicNames(t))
	if err != nil {
		return nil, fmt.Errorf("request replicas: %w", explain(err))
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
	topics := kadm.TopicsSet{}
	for _, name := range topicNames(t) {
		for p := range s.options.Partitions {
			topics.Add(name, int32(p))
		}
	}
	all, err := query(ctx, func(ctx context.Context) (kadm.DescribedAllLogDirs, error) {
		return s.admin.DescribeAllLogDirs(ctx, topics)
	})
	var metrics []drivers.Metric
	for node, dirs := range all {
		metrics = append(metrics, ofDirs(fmt.Sprint(node), dirs)...)
	}
	if len(metrics) == 0 {
		return nil, fmt.Errorf("request the sizes of logs: no broker answers (%w)", cmp.Or(err, errors.New("no directories")))
	}
	return metrics, nil
}

// ofDirs adds up a broker's log directories. If one cannot be read, it returns nothing, because a partial sum would be
// wrong.
func ofDirs(node string, dirs kadm.DescribedLogDirs) []drivers.Metric {
	if len(dirs) == 0 {
		return nil
	}
	var free float64
	volumes := map[[2]int64]bool{} // directories with the same size and free space are assumed to be on the same disk
	for _, dir := range dirs {
		if dir.Err != nil {
			return nil
		}
		if disk := [2]int64{dir.TotalBytes, dir.UsableBytes}; dir.UsableBytes >= 0 && !volumes[disk] {
			volumes[disk] = true
			free += float64(dir.UsableBytes)
		}
	}
	metrics := []drivers.Metric{{Name: drivers.MetricStored, Node: node, Value: float64(dirs.Size())}}
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
	ends.Each(func(at kadm.ListedOffset) { appended += float64(at.Offset) })
	var metrics []drivers.Metric
	if rate, known := s.grown.PerSecond(t.Name, appended); known {
		metrics = append(metrics, drivers.Metric{Name: drivers.MetricPublishRate, Value: rate})
	}
	if t.Consumers == 0 {
		return metrics, nil
	}
	committed, err := query(ctx, func(ctx context.Context) (kadm.FetchOffsetsResponses, error) {
		return s.admin.FetchManyOffsets(ctx, s.options.groupNames(t)...), nil
	})
	if err != nil {
		return metrics, err
	}
	starts, err := s.starts(ctx, topicNames(t))
	if err != nil {
		return metrics, err
	}
	lag := 0.0
	for sub := range t.Subscriptions {
		for q := range t.Queues {
			group := committed[s.options.groupName(t, sub, q)]
			if group.Err != nil && !errors.Is(group.Err, kerr.GroupIDNotFound) {
				return metrics, fmt.Errorf("request the committed offsets of group %s: %w", s.options.groupName(t, sub, q), explain(group.Err))
			}
			for p, end := range ends[topicName(t, q)] {
				at, _ := group.Fetched.Lookup(topicName(t, q), p) // none before the first commit
				first := starts[topicName(t, q)][p].Offset        // messages before it are deleted
				lag += float64(max(0, end.Offset-max(first, at.At)))
			}
		}
	}
	return append(metrics, drivers.Metric{Name: drivers.MetricLag, Value: lag}), nil
}

// groupMetrics counts the members of the task's groups. A group that no consumer has joined yet does not exist, and
// counts as empty.
func (s *session) groupMetrics(ctx context.Context, t drivers.Topology) ([]drivers.Metric, error) {
	if t.Consumers == 0 {
		return nil, nil
	}
	groups, err := s.describeGroups(ctx, s.options.groupNames(t))
	if err != nil {
		return nil, err
	}
	members := 0
	for _, g := range groups {
		members += len(g.Members)
	}
	if all := len(s.options.groupNames(t)); len(groups) < all {
		return nil, fmt.Errorf("read members of groups: the response has %d of %d groups", len(groups), all)
	}
	return []drivers.Metric{{Name: drivers.MetricConsumers, Value: float64(members)}}, nil
}
