package eventstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"

	"lockstep/pkg/drivers"
)

// probed is what the last probe saw.
type probed struct {
	at                  time.Time
	appended, delivered float64
}

// Probe asks about the groups of the last topology that this session heard of.
func (s *session) Probe(ctx context.Context) ([]drivers.Figure, error) {
	s.mu.Lock()
	t, last := s.topology, s.probed
	s.mu.Unlock()
	if t.Name == "" || t.Consumers == 0 {
		return nil, fmt.Errorf("probe EventStoreDB: it is asked about persistent subscriptions, and the cell has none: %w", drivers.ErrUnsupported)
	}
	at, err := s.place(ctx, drivers.AnyNode)
	if err != nil {
		return nil, fmt.Errorf("probe EventStoreDB: %w", err)
	}
	var sum tally
	for queue := range t.Queues {
		list, err := s.list(ctx, at[0], streamName(t, queue))
		if err != nil {
			return nil, fmt.Errorf("probe EventStoreDB at %s: %w", at[0].address, err)
		}
		sum.add(list)
	}
	now := probed{at: time.Now(), appended: sum.appended, delivered: sum.delivered}
	s.mu.Lock()
	s.probed = now
	s.mu.Unlock()
	figures := []drivers.Figure{
		{Name: drivers.FigureConsumers, Value: sum.consumers}, {Name: drivers.FigureUnacked, Value: sum.unacked}, {Name: drivers.FigureLag, Value: sum.lag},
	}
	if seconds := now.at.Sub(last.at).Seconds(); !last.at.IsZero() && seconds > 0 {
		figures = append(figures, drivers.Figure{Name: drivers.FigurePublishRate, Value: (now.appended - last.appended) / seconds},
			drivers.Figure{Name: drivers.FigureDeliverRate, Value: (now.delivered - last.delivered) / seconds})
	}
	return figures, nil
}

// list asks about the groups of a stream, at the leader.
func (s *session) list(ctx context.Context, at endpoint, stream string) ([]*persistent.SubscriptionInfo, error) {
	conn, err := s.aside(at)
	if err != nil {
		return nil, err
	}
	r, err := persistent.NewPersistentSubscriptionsClient(conn).List(ctx, &persistent.ListReq{Options: &persistent.ListReq_Options{
		ListOption: &persistent.ListReq_Options_ListForStream{ListForStream: &persistent.ListReq_StreamOption{
			StreamOption: &persistent.ListReq_StreamOption_Stream{Stream: &shared.StreamIdentifier{StreamName: []byte(stream)}},
		}},
	}})
	return r.GetSubscriptions(), err
}

// tally adds up what groups say.
type tally struct{ consumers, unacked, lag, appended, delivered float64 }

// add takes in the groups of one stream.
func (t *tally) add(groups []*persistent.SubscriptionInfo) {
	for i, g := range groups {
		t.consumers += float64(len(g.GetConnections()))
		t.unacked += float64(g.GetTotalInFlightMessages())
		t.delivered += float64(g.GetTotalItems())
		known, err := strconv.ParseInt(g.GetLastKnownEventPosition(), 10, 64)
		if err != nil {
			continue // nothing has been appended
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
