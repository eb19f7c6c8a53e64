package server

import (
	"context"
	"strconv"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
)

// GetInfo returns the state of a group.
func (s *persistentService) GetInfo(ctx context.Context, r *persistent.GetInfoReq) (*persistent.GetInfoResp, error) {
	if r.GetOptions().GetAll() != nil {
		return nil, errAll
	}
	g, f := s.groups.find(string(r.GetOptions().GetStreamIdentifier().GetStreamName()), r.GetOptions().GetGroupName())
	if f != nil {
		return nil, answer(ctx, f)
	}
	return &persistent.GetInfoResp{SubscriptionInfo: g.info()}, nil
}

// List returns the state of all groups, or of those of a stream.
func (s *persistentService) List(ctx context.Context, r *persistent.ListReq) (*persistent.ListResp, error) {
	stream := string(r.GetOptions().GetListForStream().GetStream().GetStreamName())
	if r.GetOptions().GetListForStream().GetAll() != nil {
		return nil, errAll
	}
	list := &persistent.ListResp{}
	for _, g := range s.groups.of(stream) {
		list.Subscriptions = append(list.Subscriptions, g.info())
	}
	if len(list.Subscriptions) == 0 && stream != "" {
		return nil, answer(ctx, groupMissing(stream, ""))
	}
	return list, nil
}

// info returns the state of a group. Rates are since the previous call.
func (g *group) info() *persistent.SubscriptionInfo {
	g.store.mu.RLock()
	known := int64(-1)
	if of := g.store.find(g.stream); of != nil {
		known = int64(of.next) - 1
	}
	g.store.mu.RUnlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	seconds := time.Since(g.measured.at).Seconds()
	set := &g.settings
	i := &persistent.SubscriptionInfo{
		EventSource: g.stream, GroupName: g.name, Status: "Live", StartFrom: strconv.FormatInt(set.start, 10),
		TotalItems: g.total, CountSinceLastMeasurement: g.total - g.measured.total,
		AveragePerSecond: rate(g.total-g.measured.total, seconds),
		ResolveLinkTos:   set.resolveLinks, ExtraStatistics: set.extra,
		MessageTimeoutMilliseconds: int32(set.timeout.Milliseconds()),
		MaxRetryCount:              set.maxRetries, LiveBufferSize: set.live, BufferSize: set.history,
		ReadBatchSize:               set.batch,
		CheckPointAfterMilliseconds: int32(set.checkpoint.after.Milliseconds()),
		MinCheckPointCount:          set.checkpoint.least, MaxCheckPointCount: set.checkpoint.most,
		RetryBufferCount: int32(len(g.retry)), OutstandingMessagesCount: int32(len(g.outstanding)),
		NamedConsumerStrategy: set.strategy, MaxSubscriberCount: set.maxSubscribers,
		ParkedMessageCount: int64(len(g.parked)),
	}
	if int64(g.next) <= known {
		i.Status = "Behind"
	}
	if g.checkpointed >= 0 {
		i.LastCheckpointedEventPosition = strconv.FormatInt(g.checkpointed, 10)
	}
	if known >= 0 {
		i.LastKnownEventPosition = strconv.FormatInt(known, 10)
	}
	for _, c := range g.clients {
		i.TotalInFlightMessages += int32(c.inFlight)
		i.Connections = append(i.Connections, &persistent.SubscriptionInfo_ConnectionInfo{
			From: c.from, ConnectionName: c.name, TotalItems: c.total, InFlightMessages: int32(c.inFlight),
			AvailableSlots:            int32(c.slots),
			CountSinceLastMeasurement: c.total - c.measured, AverageItemsPerSecond: rate(c.total-c.measured, seconds),
		})
		c.measured = c.total
	}
	g.measured.total, g.measured.at = g.total, time.Now()
	return i
}

func rate(n int64, seconds float64) int32 {
	if seconds <= 0 {
		return 0
	}
	return int32(float64(n) / seconds)
}
