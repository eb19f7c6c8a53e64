package server

import (
	"context"
	"math"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
)

// persistentService serves persistent subscriptions to streams. Those to $all are rejected as not implemented.
type persistentService struct {
	persistent.UnimplementedPersistentSubscriptionsServer
	groups *groups
}

var errAll = &fault{code: codes.Unimplemented,
	text: "persistent subscriptions to $all are not implemented by this stand-in"}

func (s *persistentService) Create(ctx context.Context, r *persistent.CreateReq) (*persistent.CreateResp, error) {
	o := r.GetOptions()
	if o.GetAll() != nil {
		return nil, errAll
	}
	stream, start := "", int64(0)
	if of := o.GetStream(); of != nil {
		stream = string(of.GetStreamIdentifier().GetStreamName())
		switch at := of.GetRevisionOption().(type) {
		case *persistent.CreateReq_StreamOptions_Revision:
			start = int64(at.Revision)
		case *persistent.CreateReq_StreamOptions_End:
			start = -1
		}
	}
	set, f := readSettings(o.GetSettings())
	if f == nil && (stream == "" || o.GetGroupName() == "") {
		f = invalid("a persistent subscription needs a stream and a group")
	}
	if f == nil {
		set.start = start
		f = s.groups.create(stream, o.GetGroupName(), set)
	}
	if f != nil {
		return nil, answer(ctx, f)
	}
	return &persistent.CreateResp{}, nil
}

// wishes are the settings of requests to create or update a group.
type wishes interface {
	GetResolveLinks() bool
	GetExtraStatistics() bool
	GetMaxRetryCount() int32
	GetMinCheckpointCount() int32
	GetMaxCheckpointCount() int32
	GetMaxSubscriberCount() int32
	GetLiveBufferSize() int32
	GetReadBatchSize() int32
	GetHistoryBufferSize() int32
	GetMessageTimeoutMs() int32
	GetMessageTimeoutTicks() int64
	GetCheckpointAfterMs() int32
	GetCheckpointAfterTicks() int64
}

func readWishes(w wishes) (settings, *fault) {
	set := settings{
		timeout: time.Duration(w.GetMessageTimeoutMs())*time.Millisecond +
			time.Duration(w.GetMessageTimeoutTicks())*100,
		maxRetries: w.GetMaxRetryCount(), maxSubscribers: w.GetMaxSubscriberCount(),
		live: w.GetLiveBufferSize(), history: w.GetHistoryBufferSize(), batch: w.GetReadBatchSize(),
		resolveLinks: w.GetResolveLinks(), extra: w.GetExtraStatistics(),
	}
	set.checkpoint.after = time.Duration(w.GetCheckpointAfterMs())*time.Millisecond +
		time.Duration(w.GetCheckpointAfterTicks())*100
	set.checkpoint.least, set.checkpoint.most = w.GetMinCheckpointCount(), w.GetMaxCheckpointCount()
	switch {
	case set.timeout < 0 || set.maxRetries < 0 || set.maxSubscribers < 0 || set.live < 0 || set.history < 0:
		return set, invalid("a setting of a persistent subscription is negative")
	case set.batch >= set.history:
		return set, invalid("the read batch size has to be smaller than the history buffer size")
	}
	return set, nil
}

func readSettings(s *persistent.CreateReq_Settings) (settings, *fault) {
	set, f := readWishes(s)
	set.strategy = s.GetConsumerStrategy()
	if set.strategy == "" {
		//lint:ignore SA1019 it is what clients send
		set.strategy = s.GetNamedConsumerStrategy().String()
	}
	return set, f
}

func (s *persistentService) Update(ctx context.Context, r *persistent.UpdateReq) (*persistent.UpdateResp, error) {
	o := r.GetOptions()
	if o.GetAll() != nil {
		return nil, errAll
	}
	g, f := s.groups.find(string(o.GetStream().GetStreamIdentifier().GetStreamName()), o.GetGroupName())
	if f != nil {
		return nil, answer(ctx, f)
	}
	set, f := readWishes(o.GetSettings())
	if f != nil {
		return nil, answer(ctx, f)
	}
	set.strategy = o.GetSettings().GetNamedConsumerStrategy().String()
	g.update(set)
	return &persistent.UpdateResp{}, nil
}

func (s *persistentService) Delete(ctx context.Context, r *persistent.DeleteReq) (*persistent.DeleteResp, error) {
	if r.GetOptions().GetAll() != nil {
		return nil, errAll
	}
	if f := s.groups.remove(string(r.GetOptions().GetStreamIdentifier().GetStreamName()),
		r.GetOptions().GetGroupName()); f != nil {
		return nil, answer(ctx, f)
	}
	return &persistent.DeleteResp{}, nil
}

func (s *persistentService) ReplayParked(ctx context.Context,
	r *persistent.ReplayParkedReq) (*persistent.ReplayParkedResp, error) {
	if r.GetOptions().GetAll() != nil {
		return nil, errAll
	}
	g, f := s.groups.find(string(r.GetOptions().GetStreamIdentifier().GetStreamName()), r.GetOptions().GetGroupName())
	if f != nil {
		return nil, answer(ctx, f)
	}
	g.replay(r.GetOptions().GetStopAt())
	return &persistent.ReplayParkedResp{}, nil
}

// Read connects a client to a group. It sends events, and receives acknowledgements and refusals.
func (s *persistentService) Read(call persistent.PersistentSubscriptions_ReadServer) error {
	first, err := call.Recv()
	if err != nil {
		return err
	}
	o := first.GetOptions()
	switch {
	case o == nil:
		return invalid("the first request has to be the options")
	case o.GetAll() != nil:
		return errAll
	case o.GetBufferSize() < 1 || o.GetBufferSize() > math.MaxInt16*16:
		return invalid("the buffer size is out of bounds")
	}
	g, f := s.groups.find(string(o.GetStreamIdentifier().GetStreamName()), o.GetGroupName())
	if f != nil {
		return answer(call.Context(), f)
	}
	c := newClient(call.Context(), int(o.GetBufferSize()))
	if f := g.join(c); f != nil {
		return answer(call.Context(), f)
	}
	defer g.leave(c)
	confirm := &persistent.ReadResp_SubscriptionConfirmation{SubscriptionId: g.stream + "::" + g.name}
	if err := call.Send(&persistent.ReadResp{Content: &persistent.ReadResp_SubscriptionConfirmation_{SubscriptionConfirmation: confirm}}); err != nil {
		return err
	}
	g.appended()
	answers := make(chan struct{})
	go func() {
		defer close(answers)
		takeAnswers(call, g)
	}()
	_, textIDs := o.GetUuidOption().GetContent().(*persistent.ReadReq_Options_UUIDOption_String_)
	err = deliver(call, c, textIDs)
	if call.Context().Err() != nil {
		<-answers // answers that the client sent before it left are processed
	}
	return err
}

// takeAnswers processes acknowledgements and refusals until the stream ends.
func takeAnswers(call persistent.PersistentSubscriptions_ReadServer, g *group) {
	for {
		r, err := call.Recv()
		if err != nil {
			return
		}
		if ack := r.GetAck(); ack != nil {
			g.acknowledge(parseIDs(ack.GetIds()))
		}
		if nack := r.GetNack(); nack != nil {
			g.refuse(parseIDs(nack.GetIds()), how(nack.GetAction()))
		}
	}
}

func how(a persistent.ReadReq_Nack_Action) refusal {
	switch a {
	case persistent.ReadReq_Nack_Park:
		return refusePark
	case persistent.ReadReq_Nack_Skip, persistent.ReadReq_Nack_Stop:
		return refuseSkip
	}
	return refuseRetry
}

func parseIDs(all []*shared.UUID) []uuid.UUID {
	ids := make([]uuid.UUID, 0, len(all))
	for _, one := range all {
		if id, ok := parseID(one); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// deliver sends the group's messages to a client, until the client or the group ends.
func deliver(call persistent.PersistentSubscriptions_ReadServer, c *client, textIDs bool) error {
	var batch []delivery
	for {
		select {
		case <-c.wake:
		case <-call.Context().Done():
			return call.Context().Err()
		}
		var why *fault
		batch, why = c.collect(batch)
		for _, d := range batch {
			if err := call.Send(d.response(textIDs)); err != nil {
				return err
			}
		}
		if why != nil {
			return answer(call.Context(), why)
		}
	}
}

func (d delivery) response(textIDs bool) *persistent.ReadResp {
	e := d.event
	return &persistent.ReadResp{Content: &persistent.ReadResp_Event{Event: &persistent.ReadResp_ReadEvent{
		Event: &persistent.ReadResp_ReadEvent_RecordedEvent{
			Id: writeID(e.id, textIDs), StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(e.stream)},
			StreamRevision: e.revision, PreparePosition: e.position, CommitPosition: e.position,
			Metadata: e.metadata(), CustomMetadata: e.meta, Data: e.data,
		},
		Position: &persistent.ReadResp_ReadEvent_CommitPosition{CommitPosition: e.position},
		Count:    &persistent.ReadResp_ReadEvent_RetryCount{RetryCount: d.retries},
	}}}
}
