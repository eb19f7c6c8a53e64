// Package server is a stand-in for EventStoreDB: it serves the published gRPC protocol of streams and persistent
// subscriptions from memory, for tests without EventStoreDB. Measurements of it do not apply to EventStoreDB.
//
// Supported are the requests of pkg/drivers/eventstore: appends with repeated events and the size limit, reads of
// the end of a stream, soft deletes, persistent subscriptions, and gossip of a leader with followers. Metadata of
// streams is stored without effect. Other requests are not implemented.
package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/gossip"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/serverfeatures"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// instance is the instance ID of all nodes, by which clients recognise the stand-in.
var instance = &shared.UUID{Value: &shared.UUID_String_{String_: "lockstep-stand-in"}}

// Options are the options of a server. The zero value selects EventStoreDB's defaults.
type Options struct {
	Version       string                           // version that the server reports
	MaxAppendSize int                              // maximum bytes of data in one append
	Tick          time.Duration                    // interval of the check for timeouts
	Fail          func() error                     // optional: the answer to an append that was received completely
	Credentials   credentials.TransportCredentials // nil: no TLS
}

// Server is one stand-in. Its methods are safe for concurrent use.
type Server struct {
	options Options

	mu      sync.Mutex // guards all that follows, and all streams and groups
	stopped bool
	timer   *time.Timer // calls expire
	serving []*grpc.Server
	members []*gossip.MemberInfo
	streams map[string]*stream
	groups  map[string]map[string]*group // by stream and name
}

// New creates an empty server. End it with Stop.
func New(o Options) *Server {
	o.Version = cmp.Or(o.Version, "23.10.0")
	o.MaxAppendSize = cmp.Or(o.MaxAppendSize, 1<<20)
	o.Tick = cmp.Or(o.Tick, time.Second)
	s := &Server{options: o, streams: map[string]*stream{}, groups: map[string]map[string]*group{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(o.Tick, s.expire)
	return s
}

// Serve serves one node until Stop, and then returns nil. The first node is the leader. Later ones are followers, which
// have the leader's streams, forward appends to it, and refer clients of persistent subscriptions to it.
func (s *Server) Serve(l net.Listener) error {
	o := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(100), // per connection, including subscriptions, as in EventStoreDB
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	}
	if s.options.Credentials != nil {
		o = append(o, grpc.Creds(s.options.Credentials))
	}
	s.mu.Lock()
	server, state := grpc.NewServer(append(o, grpc.UnknownServiceHandler(s.refer))...), gossip.MemberInfo_Follower
	if len(s.members) == 0 {
		state = gossip.MemberInfo_Leader
		persistent.RegisterPersistentSubscriptionsServer(server, persistentService{server: s})
	}
	streams.RegisterStreamsServer(server, streamsService{server: s})
	serverfeatures.RegisterServerFeaturesServer(server, features{version: s.options.Version})
	gossip.RegisterGossipServer(server, gossiper{server: s})
	at := l.Addr().(*net.TCPAddr)
	s.members = append(s.members, &gossip.MemberInfo{InstanceId: instance, State: state, IsAlive: true,
		HttpEndPoint: &gossip.EndPoint{Address: at.IP.String(), Port: uint32(at.Port)}})
	if s.serving = append(s.serving, server); s.stopped {
		server.Stop()
	}
	s.mu.Unlock()
	if err := server.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Stop closes every connection and ends the server. It is safe to call it twice.
func (s *Server) Stop() {
	s.mu.Lock()
	s.stopped = true
	serving := s.serving
	s.serving = nil
	s.timer.Stop()
	s.mu.Unlock()
	for _, server := range serving {
		server.Stop()
	}
}

// refer answers requests about persistent subscriptions at a follower. It refers the client to the leader.
func (s *Server) refer(_ any, call grpc.ServerStream) error {
	s.mu.Lock()
	at := s.members[0].GetHttpEndPoint()
	s.mu.Unlock()
	call.SetTrailer(metadata.Pairs("exception", "not-leader", "leader-endpoint-host", at.GetAddress(),
		"leader-endpoint-port", strconv.Itoa(int(at.GetPort()))))
	return status.Error(codes.NotFound, "Leader info available")
}

// features reports the version, and the requests that the client sends only to servers with them.
type features struct {
	serverfeatures.UnimplementedServerFeaturesServer
	version string
}

func (f features) GetSupportedMethods(context.Context, *shared.Empty) (*serverfeatures.SupportedMethods, error) {
	list := &serverfeatures.SupportedMethod{MethodName: "list",
		ServiceName: "event_store.client.persistent_subscriptions.persistentsubscriptions"}
	return &serverfeatures.SupportedMethods{EventStoreServerVersion: f.version,
		Methods: []*serverfeatures.SupportedMethod{list}}, nil
}

// gossiper reports the members of the cluster.
type gossiper struct {
	gossip.UnimplementedGossipServer
	server *Server
}

func (g gossiper) Read(context.Context, *shared.Empty) (*gossip.ClusterInfo, error) {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	return &gossip.ClusterInfo{Members: slices.Clone(g.server.members)}, nil
}

// readID decodes an id. The client sends only structured ones.
func readID(id *shared.UUID) uuid.UUID {
	u, _ := kurrentdb.ParseUUIDFromInt64(id.GetStructured().GetMostSignificantBits(),
		id.GetStructured().GetLeastSignificantBits()) // never fails
	return u
}

// event is a stored event. It is immutable.
type event struct {
	id       uuid.UUID
	revision uint64
	proposed *streams.AppendReq_ProposedMessage
}

// stream is a stream with the events that can be read.
type stream struct {
	events []*event
	ids    map[uuid.UUID]bool // of events: appending one again has no effect
	next   uint64             // revision of the next event
}

// from returns events from a revision on, at most this number.
func (s *stream) from(revision uint64, limit int) []*event {
	if s == nil || len(s.events) == 0 {
		return nil
	}
	at := int(min(max(revision, s.events[0].revision)-s.events[0].revision, uint64(len(s.events))))
	return s.events[at:min(len(s.events), at+limit)]
}

type streamsService struct {
	streams.UnimplementedStreamsServer
	server *Server
}

// Append processes one append: options first, then events. It stores them when the client has closed its side.
func (s streamsService) Append(call streams.Streams_AppendServer) error {
	first, err := call.Recv()
	if err != nil {
		return err
	}
	if first.GetOptions().GetAny() == nil {
		return status.Error(codes.Unimplemented, "the stand-in supports only appends without an expected revision")
	}
	var all []*streams.AppendReq_ProposedMessage
	size := 0
	for {
		request, err := call.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if size += len(request.GetProposedMessage().GetData()); size > s.server.options.MaxAppendSize {
			return status.Error(codes.InvalidArgument,
				"Maximum Append Size of "+strconv.Itoa(s.server.options.MaxAppendSize)+" Exceeded.")
		}
		all = append(all, request.GetProposedMessage())
	}
	if s.server.options.Fail != nil {
		if err := s.server.options.Fail(); err != nil {
			return err
		}
	}
	last := s.server.append(string(first.GetOptions().GetStreamIdentifier().GetStreamName()), all)
	return call.SendAndClose(&streams.AppendResp{Result: &streams.AppendResp_Success_{
		Success: &streams.AppendResp_Success{
			CurrentRevisionOption: &streams.AppendResp_Success_CurrentRevision{CurrentRevision: last},
			PositionOption:        &streams.AppendResp_Success_NoPosition{NoPosition: &shared.Empty{}},
		},
	}})
}

// append stores events that were not stored before, and returns the stream's last revision.
func (s *Server) append(name string, all []*streams.AppendReq_ProposedMessage) (last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.streams[name]
	if to == nil {
		to = &stream{ids: map[uuid.UUID]bool{}}
		s.streams[name] = to
	}
	for _, p := range all {
		if id := readID(p.GetId()); !to.ids[id] {
			to.ids[id] = true
			p.Metadata["created"] = strconv.FormatInt(time.Now().UnixNano()/100, 10)
			to.events = append(to.events, &event{id: id, revision: to.next, proposed: p})
			to.next++
		}
	}
	for _, g := range s.groups[name] {
		g.push()
	}
	return to.next - 1
}

// Delete hides the current events of a stream.
func (s streamsService) Delete(_ context.Context, r *streams.DeleteReq) (*streams.DeleteResp, error) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if of := s.server.streams[string(r.GetOptions().GetStreamIdentifier().GetStreamName())]; of != nil {
		of.events, of.ids = nil, map[uuid.UUID]bool{}
	}
	return &streams.DeleteResp{PositionOption: &streams.DeleteResp_Position_{Position: &streams.DeleteResp_Position{}}}, nil
}

// Read reads the last event of a stream.
func (s streamsService) Read(r *streams.ReadReq, call streams.Streams_ReadServer) error {
	name := r.GetOptions().GetStream().GetStreamIdentifier()
	if name == nil || r.GetOptions().GetSubscription() != nil {
		return status.Error(codes.Unimplemented, "the stand-in supports only reads of the end of a stream")
	}
	s.server.mu.Lock()
	of := s.server.streams[string(name.GetStreamName())]
	if of == nil || len(of.events) == 0 {
		s.server.mu.Unlock()
		return call.Send(&streams.ReadResp{Content: &streams.ReadResp_StreamNotFound_{
			StreamNotFound: &streams.ReadResp_StreamNotFound{StreamIdentifier: name}}})
	}
	e := of.events[len(of.events)-1]
	s.server.mu.Unlock()
	return call.Send(&streams.ReadResp{Content: &streams.ReadResp_Event{Event: &streams.ReadResp_ReadEvent{
		Event: &streams.ReadResp_ReadEvent_RecordedEvent{
			Id: e.proposed.GetId(), StreamIdentifier: name, StreamRevision: e.revision,
			Metadata: e.proposed.GetMetadata(), Data: e.proposed.GetData(),
		},
		Position: &streams.ReadResp_ReadEvent_NoPosition{NoPosition: &shared.Empty{}},
	}}})
}
