package eventstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"

	"lockstep/pkg/drivers"
)

// askWithin is the maximum time of a probe. Nodes that do not answer do not hold up the metrics of the groups.
const askWithin = 3 * time.Second

// Probe reads the statistics of the nodes, and the leader's data about the groups of the topology that this session
// used last.
func (s *session) Probe(ctx context.Context) ([]drivers.Metric, error) {
	s.mu.Lock()
	t := s.topology
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var ofNodes, ofGroups []drivers.Metric
	var errNodes, errGroups error
	var wg sync.WaitGroup
	wg.Go(func() { ofNodes, errNodes = s.statMetrics(ctx) })
	if t.Name != "" && t.Consumers > 0 {
		wg.Go(func() { ofGroups, errGroups = s.groupMetrics(ctx, t) })
	}
	wg.Wait()
	metrics := append(ofNodes, ofGroups...)
	if err := errors.Join(errNodes, errGroups); err != nil {
		return metrics, fmt.Errorf("probe EventStoreDB: %w", err)
	}
	if len(metrics) == 0 {
		return nil,
			fmt.Errorf("probe EventStoreDB: its nodes report no statistics to this user, and the cell has no persistent subscriptions: %w", drivers.ErrUnsupported)
	}
	return metrics, nil
}

// groupMetrics returns the totals of the groups of all queues.
func (s *session) groupMetrics(ctx context.Context, t drivers.Topology) ([]drivers.Metric, error) {
	at, err := s.place(ctx, drivers.AnyNode)
	if err != nil {
		return nil, err
	}
	var sum accounting
	for queue := range t.Queues {
		list, err := s.list(ctx, at[0], streamName(t, queue))
		if err != nil {
			return nil, fmt.Errorf("query %s for groups: %w", at[0].address, err)
		}
		sum.add(list)
	}
	metrics := []drivers.Metric{
		{Name: drivers.MetricConsumers, Value: sum.consumers}, {Name: drivers.MetricUnacked, Value: sum.unacked},
		{Name: drivers.MetricLag, Value: sum.lag},
	}
	for name, counter := range map[drivers.MetricName]float64{drivers.MetricPublishRate: sum.appended,
		drivers.MetricDeliverRate: sum.delivered} {
		if rate, known := s.grown.PerSecond(t.Name+" "+string(name), counter); known {
			metrics = append(metrics, drivers.Metric{Name: name, Value: rate})
		}
	}
	return metrics, nil
}

// list requests the groups of a stream from the leader.
func (s *session) list(ctx context.Context, at endpoint, stream string) ([]*persistent.SubscriptionInfo, error) {
	conn, err := s.aside(at)
	if err != nil {
		return nil, err
	}
	r, err := persistent.NewPersistentSubscriptionsClient(conn).List(ctx,
		&persistent.ListReq{Options: &persistent.ListReq_Options{
			ListOption: &persistent.ListReq_Options_ListForStream{ListForStream: &persistent.ListReq_StreamOption{
				StreamOption: &persistent.ListReq_StreamOption_Stream{Stream: &shared.StreamIdentifier{StreamName: []byte(stream)}},
			}},
		}})
	return r.GetSubscriptions(), err
}

// accounting are the totals over groups.
type accounting struct{ consumers, unacked, lag, appended, delivered float64 }

// add adds the groups of one stream.
func (t *accounting) add(groups []*persistent.SubscriptionInfo) {
	for i, g := range groups {
		t.consumers += float64(len(g.GetConnections()))
		t.unacked += float64(g.GetTotalInFlightMessages())
		t.delivered += float64(g.GetTotalItems())
		known, err := strconv.ParseInt(g.GetLastKnownEventPosition(), 10, 64)
		if err != nil {
			continue // the stream has no events yet
		}
		done, err := strconv.ParseInt(g.GetLastCheckpointedEventPosition(), 10, 64)
		if from, bad := strconv.ParseInt(g.GetStartFrom(), 10, 64); err != nil && bad == nil {
			done = from - 1
		}
		t.lag += float64(known - done)
		if i == 0 {
			t.appended += float64(known)
		}
	}
}
