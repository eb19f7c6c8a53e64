package eventstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// probeTimeout is the maximum time of a probe.
const probeTimeout = 3 * time.Second

// Probe reads the leader's data about the groups of the topology that this session used last.
func (s *session) Probe(ctx context.Context) ([]drivers.Metric, error) {
	t := s.task.Load()
	if t == nil {
		return nil, errors.New("probe EventStoreDB: the session has not used a topology yet")
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var consumers, unacked, lag, appended, delivered float64
	for queue := range t.Queues {
		groups, err := s.groups(ctx, streamName(*t, queue))
		if err != nil {
			return nil, fmt.Errorf("probe EventStoreDB: %w", err)
		}
		for i, g := range groups {
			consumers += float64(len(g.Connections))
			unacked += float64(g.Stats.TotalInFlightMessages)
			delivered += float64(g.Stats.TotalItems)
			if g.Stats.LastKnownEventRevision == nil {
				continue // the stream has no events yet
			}
			events, done := *g.Stats.LastKnownEventRevision+1, uint64(0)
			if last := g.Stats.LastCheckpointedEventRevision; last != nil {
				done = *last + 1
			} else if from, given := g.Settings.StartFrom.(kurrentdb.StreamRevision); given {
				done = from.Value
			}
			lag += float64(events) - float64(min(done, events))
			if i == 0 {
				appended += float64(events)
			}
		}
	}
	metrics := []drivers.Metric{
		{Name: drivers.MetricConsumers, Value: consumers}, {Name: drivers.MetricUnacked, Value: unacked},
		{Name: drivers.MetricLag, Value: lag},
	}
	for name, counter := range map[string]float64{drivers.MetricPublishRate: appended,
		drivers.MetricDeliverRate: delivered} {
		if rate, known := s.grown.PerSecond(t.Name+" "+name, counter); known {
			metrics = append(metrics, drivers.Metric{Name: name, Value: rate})
		}
	}
	return metrics, nil
}

// groups requests the groups of a stream from the leader.
func (s *session) groups(ctx context.Context, stream string) ([]kurrentdb.PersistentSubscriptionInfo, error) {
	c, err := s.leader(ctx)
	if err != nil {
		return nil, err
	}
	groups, err := c.client.ListPersistentSubscriptionsForStream(ctx, stream,
		kurrentdb.ListPersistentSubscriptionsOptions{})
	if err != nil && !is(err, kurrentdb.ErrorCodeResourceNotFound) {
		return nil, fmt.Errorf("list the groups of stream %s: %w", stream, c.explain(ctx, err))
	}
	return groups, nil
}
