package server

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// group is one persistent subscription. It is guarded by the server.
type group struct {
	server       *Server
	stream, name string
	start, next  uint64 // revisions of the first event, and of the next event
	timeout      time.Duration
	maxRetries   int32
	single       bool // the first client with a free slot receives, instead of one after the other
	retry        []*message
	outstanding  map[uuid.UUID]*message
	clients      []*client // the next recipient is first
	total        int64
}

// message is an event that a group delivers.
type message struct {
	event   *event
	retries int32
	due     time.Time // zero: no timeout
	to      *client
}

// client reads a persistent subscription. It is guarded by the server, except for messages.
type client struct {
	name     string
	slots    int // free places in its buffer
	total    int64
	messages chan *message
}

// push delivers messages to clients with free slots.
func (g *group) push() {
	for {
		var m *message
		if len(g.retry) > 0 {
			m = g.retry[0]
		} else if events := g.server.streams[g.stream].from(g.next, 1); len(events) > 0 {
			m = &message{event: events[0]}
		}
		at := slices.IndexFunc(g.clients, func(c *client) bool {
			return c.slots > 0 && len(c.messages) < cap(c.messages)
		})
		if m == nil || at < 0 {
			return
		}
		c := g.clients[at]
		if !g.single {
			g.clients = append(slices.Delete(g.clients, at, at+1), c)
		}
		if len(g.retry) > 0 {
			g.retry = g.retry[1:]
		} else {
			g.next = m.event.revision + 1
		}
		if m.to = c; g.timeout > 0 {
			m.due = time.Now().Add(g.timeout)
		}
		g.outstanding[m.event.id] = m
		c.slots--
		c.total++
		g.total++
		c.messages <- m
	}
}

// settle ends the delivery of a message to its client.
func (g *group) settle(m *message) {
	delete(g.outstanding, m.event.id)
	m.to.slots++
}

// again schedules a message for redelivery. With limited, it is parked after the maximum number of retries.
func (g *group) again(m *message, limited bool) {
	g.settle(m)
	if !limited || m.retries < g.maxRetries {
		g.retry = append(g.retry, &message{event: m.event, retries: m.retries + 1})
	}
}

// expire redelivers messages after their timeout.
func (s *Server) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, groups := range s.groups {
		for _, g := range groups {
			for _, m := range g.outstanding {
				if !m.due.IsZero() && m.due.Before(now) {
					g.again(m, true)
				}
			}
			g.push()
		}
	}
	if !s.stopped {
		s.timer.Reset(s.options.Tick)
	}
}

type persistentService struct {
	persistent.UnimplementedPersistentSubscriptionsServer
	server *Server
}

func (s persistentService) Create(_ context.Context, r *persistent.CreateReq) (*persistent.CreateResp, error) {
	o := r.GetOptions()
	stream, set := string(o.GetStream().GetStreamIdentifier().GetStreamName()), o.GetSettings()
	if stream == "" || o.GetStream().GetEnd() != nil {
		return nil, status.Error(codes.Unimplemented, "the stand-in supports only persistent subscriptions to streams, "+
			"from the start or a revision")
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.server.groups[stream][o.GetGroupName()] != nil {
		return nil, status.Error(codes.AlreadyExists, "the group exists")
	}
	if s.server.groups[stream] == nil {
		s.server.groups[stream] = map[string]*group{}
	}
	start := o.GetStream().GetRevision()
	s.server.groups[stream][o.GetGroupName()] = &group{
		server: s.server, stream: stream, name: o.GetGroupName(), start: start, next: start,
		timeout:    time.Duration(set.GetMessageTimeoutMs()) * time.Millisecond,
		maxRetries: set.GetMaxRetryCount(), single: set.GetConsumerStrategy() != "RoundRobin",
		outstanding: map[uuid.UUID]*message{},
	}
	return &persistent.CreateResp{}, nil
}

var errNoGroup = status.Error(codes.NotFound, "the group does not exist")

func (s persistentService) Delete(_ context.Context, r *persistent.DeleteReq) (*persistent.DeleteResp, error) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	g := s.server.groups[string(r.GetOptions().GetStreamIdentifier().GetStreamName())][r.GetOptions().GetGroupName()]
	if g == nil {
		return nil, errNoGroup
	}
	delete(s.server.groups[g.stream], g.name)
	return &persistent.DeleteResp{}, nil
}

// List lists the groups of one stream, or of all.
func (s persistentService) List(_ context.Context, r *persistent.ListReq) (*persistent.ListResp, error) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	all := &persistent.ListResp{}
	one := r.GetOptions().GetListForStream().GetStream()
	for stream, groups := range s.server.groups {
		for _, g := range groups {
			if one == nil || stream == string(one.GetStreamName()) {
				all.Subscriptions = append(all.Subscriptions, g.info())
			}
		}
	}
	return all, nil
}

// info describes a group. Its checkpoint is always up to date.
func (g *group) info() *persistent.SubscriptionInfo {
	i := &persistent.SubscriptionInfo{EventSource: g.stream, GroupName: g.name,
		StartFrom: strconv.FormatUint(g.start, 10), TotalItems: g.total,
		TotalInFlightMessages: int32(len(g.outstanding))}
	done := g.next
	for _, m := range g.outstanding {
		done = min(done, m.event.revision)
	}
	for _, m := range g.retry {
		done = min(done, m.event.revision)
	}
	if done > g.start {
		i.LastCheckpointedEventPosition = strconv.FormatUint(done-1, 10)
	}
	if of := g.server.streams[g.stream]; of != nil && of.next > 0 {
		i.LastKnownEventPosition = strconv.FormatUint(of.next-1, 10)
	}
	for _, c := range g.clients {
		i.Connections = append(i.Connections, &persistent.SubscriptionInfo_ConnectionInfo{
			ConnectionName: c.name, TotalItems: c.total, InFlightMessages: int32(cap(c.messages) - c.slots)})
	}
	return i
}

// Read connects a client to a group. It sends events, and receives acknowledgements and refusals.
func (s persistentService) Read(call persistent.PersistentSubscriptions_ReadServer) error {
	first, err := call.Recv()
	if err != nil {
		return err
	}
	size := int(first.GetOptions().GetBufferSize())
	c := &client{slots: size, messages: make(chan *message, size)}
	if name := metadata.ValueFromIncomingContext(call.Context(), "connection-name"); len(name) > 0 {
		c.name = name[0]
	}
	s.server.mu.Lock()
	g := s.server.groups[string(first.GetOptions().GetStreamIdentifier().GetStreamName())][first.GetOptions().GetGroupName()]
	if g == nil {
		s.server.mu.Unlock()
		return errNoGroup
	}
	g.clients = append(g.clients, c)
	g.push()
	s.server.mu.Unlock()
	err = call.Send(&persistent.ReadResp{Content: &persistent.ReadResp_SubscriptionConfirmation_{
		SubscriptionConfirmation: &persistent.ReadResp_SubscriptionConfirmation{SubscriptionId: c.name}}})
	if err != nil {
		return err
	}
	go g.takeAnswers(call)
	defer g.leave(c)
	for {
		select {
		case m := <-c.messages:
			p := m.event.proposed
			err := call.Send(&persistent.ReadResp{Content: &persistent.ReadResp_Event{Event: &persistent.ReadResp_ReadEvent{
				Event: &persistent.ReadResp_ReadEvent_RecordedEvent{
					Id: p.GetId(), StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(g.stream)},
					StreamRevision: m.event.revision, Metadata: p.GetMetadata(), Data: p.GetData(),
				},
				Position: &persistent.ReadResp_ReadEvent_NoPosition{NoPosition: &shared.Empty{}},
				Count:    &persistent.ReadResp_ReadEvent_RetryCount{RetryCount: m.retries},
			}}})
			if err != nil {
				return err
			}
		case <-call.Context().Done():
			return call.Context().Err()
		}
	}
}

// takeAnswers processes acknowledgements and refusals until the call ends.
func (g *group) takeAnswers(call persistent.PersistentSubscriptions_ReadServer) {
	for {
		r, err := call.Recv()
		if err != nil {
			return
		}
		g.server.mu.Lock()
		for _, id := range append(r.GetAck().GetIds(), r.GetNack().GetIds()...) {
			switch m := g.outstanding[readID(id)]; {
			case m == nil: // its timeout has passed
			case r.GetAck() != nil:
				g.settle(m)
			default:
				g.again(m, true)
			}
		}
		g.push()
		g.server.mu.Unlock()
	}
}

// leave removes a client. Its unacknowledged messages are redelivered.
func (g *group) leave(c *client) {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	g.clients = slices.DeleteFunc(g.clients, func(other *client) bool { return other == c })
	for _, m := range g.outstanding {
		if m.to == c {
			g.again(m, false)
		}
	}
	g.push()
}
