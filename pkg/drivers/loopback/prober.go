package loopback

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Probe counts the messages and consumers of the topology that this session set up last. The counts are exact.
func (s *session) Probe(ctx context.Context) ([]drivers.Metric, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	name, closed := s.own, s.closed
	s.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("probe loopback: %w", drivers.ErrClosed)
	}
	if name == "" {
		return nil, errors.New("probe loopback: this session has no topology")
	}
	t, err := s.broker.topology(name)
	if err != nil {
		return nil, fmt.Errorf("probe loopback: %w", err)
	}
	var queues, depth, unacked, consumers int
	for _, q := range slices.Concat(t.queues...) {
		q.mu.Lock()
		queues, depth, unacked, consumers = queues+1, depth+q.ready+q.held, unacked+q.held, consumers+q.consumers
		q.mu.Unlock()
	}
	return []drivers.Metric{
		{Name: drivers.MetricQueues, Value: float64(queues)},
		{Name: drivers.MetricQueueDepth, Value: float64(depth)},
		{Name: drivers.MetricUnacked, Value: float64(unacked)},
		{Name: drivers.MetricConsumers, Value: float64(consumers)},
	}, nil
}
