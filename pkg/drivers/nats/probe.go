package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// askWithin is the maximum time of a probe. Fewer than eight servers that do not answer in time do not hold up the
// metrics of the others.
const askWithin = 3 * time.Second

// Probe returns the metrics of the task's streams and consumers, the storage of the account, and, with the option
// monitoring, the servers' own metrics.
func (s *session) Probe(ctx context.Context) ([]drivers.Metric, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var ofServers, ofStreams []drivers.Metric
	var errServers, errStreams error
	var wg sync.WaitGroup
	wg.Go(func() { ofServers, errServers = s.monitor.metrics(ctx, &s.grown) })
	wg.Go(func() { ofStreams, errStreams = s.streamMetrics(ctx) })
	wg.Wait()
	metrics := append(ofServers, ofStreams...)
	if err := errors.Join(errServers, errStreams); err != nil {
		return metrics, fmt.Errorf("query NATS for its metrics: %w", err)
	}
	return metrics, nil
}

func (s *session) streamMetrics(ctx context.Context) ([]drivers.Metric, error) {
	t := s.task.Load()
	if t != nil && t.Existing != "" {
		return nil, nil // the user of an existing stream may have no right to them
	}
	c, err := s.probes.Get(func() (*conn, error) { return s.dialFirst(ctx, s.endpoints, s.env.ManagementDialer()) })
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(c.nc)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = c.raw.Close() })() // the library may hold its lock in a blocked write
	account, err := js.AccountInfo(ctx)
	if err != nil {
		return nil, explain(err)
	}
	metrics := []drivers.Metric{{Name: drivers.MetricStored, Value: float64(account.Store)}}
	if t == nil {
		return metrics, nil
	}
	own, err := s.ownMetrics(ctx, js, *t)
	return append(metrics, own...), err
}

// sums are the totals over the task's streams and their consumers.
type sums struct {
	queues, short                                int
	depth, appended, unacked, pending, delivered uint64
}

// ownMetrics returns the totals of the task's streams. If a stream is missing, it returns only the counts of streams.
func (s *session) ownMetrics(ctx context.Context, js jetstream.JetStream, t drivers.Topology) ([]drivers.Metric, error) {
	sum, err := sumUp(ctx, js, t)
	if err != nil {
		return nil, err
	}
	metrics := []drivers.Metric{{Name: drivers.MetricQueues, Value: float64(sum.queues)},
		{Name: drivers.MetricUnderReplicated, Value: float64(sum.short)}}
	if sum.queues != t.Queues {
		return metrics, nil
	}
	rate := func(name string, counter uint64) {
		if r, known := s.grown.PerSecond(t.Name+" "+name, float64(counter)); known {
			metrics = append(metrics, drivers.Metric{Name: name, Value: r})
		}
	}
	metrics = append(metrics, drivers.Metric{Name: drivers.MetricQueueDepth, Value: float64(sum.depth)})
	rate(drivers.MetricPublishRate, sum.appended)
	if t.Consumers > 0 {
		metrics = append(metrics, drivers.Metric{Name: drivers.MetricUnacked, Value: float64(sum.unacked)},
			drivers.Metric{Name: drivers.MetricLag, Value: float64(sum.unacked + sum.pending)})
		rate(drivers.MetricDeliverRate, sum.delivered)
	}
	return metrics, nil
}

func sumUp(ctx context.Context, js jetstream.JetStream, t drivers.Topology) (sum sums, err error) {
	for q := range t.Queues {
		stream, err := js.Stream(ctx, streamName(t, q))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return sum, fmt.Errorf("find stream %s: %w", streamName(t, q), err)
		}
		info := stream.CachedInfo()
		sum.queues++
		depth := info.State.Msgs
		sum.appended += info.State.LastSeq
		if lacksReplica(info) {
			sum.short++
		}
		if t.Consumers > 0 {
			waiting, err := sum.consumers(ctx, stream)
			if err != nil {
				return sum, err
			}
			if info.Config.Retention == jetstream.LimitsPolicy { // the stream also keeps acknowledged messages
				depth = waiting
			}
		}
		sum.depth += depth
	}
	return sum, nil
}

// consumers adds the consumers of one stream. waiting is the maximum number of messages that one of them has not
// acknowledged.
func (sum *sums) consumers(ctx context.Context, stream jetstream.Stream) (waiting uint64, err error) {
	consumers := stream.ListConsumers(ctx)
	for c := range consumers.Info() {
		sum.unacked += uint64(c.NumAckPending)
		sum.pending += c.NumPending
		sum.delivered += c.Delivered.Consumer
		waiting = max(waiting, uint64(c.NumAckPending)+c.NumPending)
	}
	if err := consumers.Err(); err != nil {
		return 0, fmt.Errorf("list consumers of stream %s: %w", stream.CachedInfo().Config.Name, err)
	}
	return waiting, nil
}

// lacksReplica reports whether fewer servers than configured have the whole stream.
func lacksReplica(info *jetstream.StreamInfo) bool {
	current := 1 // the leader
	if info.Cluster != nil {
		for _, peer := range info.Cluster.Replicas {
			if peer.Current && !peer.Offline {
				current++
			}
		}
	}
	return current < info.Config.Replicas
}
