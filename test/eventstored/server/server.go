// Package server is a stand-in for EventStoreDB: it serves the published gRPC protocol of streams and persistent
// subscriptions from memory, for tests without EventStoreDB. Measurements of it do not apply to EventStoreDB.
//
// Supported: appends with expected revisions, idempotence and the size limit; reads and catch-up subscriptions of
// streams and of $all; deletes, tombstones, and the metadata $maxCount and $tb; persistent subscriptions to streams
// with acknowledgement, refusal, retries, parking and timeouts; gossip.
//
// Not supported: users, links, projections, persistent subscriptions to $all, BatchAppend, and storage on disk.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// Defaults of EventStoreDB.
const (
	defaultVersion       = "23.10.0.stand-in" // must not be mistaken for a real version
	defaultMaxAppendSize = 1 << 20
	defaultTick          = time.Second
	// callsPerConnection is the maximum number of concurrent calls of a connection, including subscriptions.
	callsPerConnection = 100
)

// Options are the options of a server. The zero value selects EventStoreDB's defaults.
type Options struct {
	Version       string        // of the protocol; the text after the third number is free
	MaxAppendSize int           // maximum bytes of data in one append
	Tick          time.Duration // interval of the check for timeouts
	NoStats       bool          // no service for statistics, as in old releases
	// Credentials are for TLS; nil: no TLS.
	Credentials credentials.TransportCredentials
}

// Server is one stand-in. Its methods are safe for concurrent use.
type Server struct {
	options Options
	store   *store
	groups  *groups
	stop    context.CancelFunc
	ticking sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	serving []*grpc.Server
	members []*gossip.MemberInfo
}

// New creates an empty server. End it with Stop.
func New(o Options) *Server {
	o.Version = cmp.Or(o.Version, defaultVersion)
	o.MaxAppendSize = cmp.Or(o.MaxAppendSize, defaultMaxAppendSize)
	o.Tick = cmp.Or(o.Tick, defaultTick)
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{options: o, store: newStore(), stop: stop}
	s.groups = newGroups(s.store)
	s.ticking.Go(func() { s.groups.tick(ctx, o.Tick) })
	return s
}

// Serve serves as the leader until Stop, and then returns nil.
func (s *Server) Serve(l net.Listener) error { return s.serve(l, gossip.MemberInfo_Leader) }

// ServeFollower serves as a follower until Stop. It has the leader's streams, forwards appends to it, and refers
// clients of persistent subscriptions to it. Call Serve first.
func (s *Server) ServeFollower(l net.Listener) error { return s.serve(l, gossip.MemberInfo_Follower) }

func (s *Server) serve(l net.Listener, state gossip.MemberInfo_VNodeState) error {
	server := grpc.NewServer(s.grpcOptions()...)
	streams.RegisterStreamsServer(server, &streamsService{store: s.store, groups: s.groups,
		maxAppend: s.options.MaxAppendSize})
	serverfeatures.RegisterServerFeaturesServer(server, features{version: s.options.Version})
	gossip.RegisterGossipServer(server, gossiper{server: s})
	if !s.options.NoStats {
		server.RegisterService(&statsService, nil)
	}
	if state == gossip.MemberInfo_Leader {
		persistent.RegisterPersistentSubscriptionsServer(server, &persistentService{groups: s.groups})
	} else {
		persistent.RegisterPersistentSubscriptionsServer(server, elsewhere{server: s})
	}
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return errors.Join(errors.New("the server was stopped"), l.Close())
	}
	s.serving = append(s.serving, server)
	s.members = append(s.members, member(l.Addr(), state))
	s.mu.Unlock()
	if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve at %s: %w", l.Addr(), err)
	}
	return nil
}

func (s *Server) grpcOptions() []grpc.ServerOption {
	o := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(callsPerConnection),
		grpc.MaxRecvMsgSize(17 << 20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	}
	if s.options.Credentials != nil {
		o = append(o, grpc.Creds(s.options.Credentials))
	}
	return o
}

// Stop closes every connection and ends the server. It is safe to call it twice.
func (s *Server) Stop() {
	s.mu.Lock()
	s.stopped = true
	serving := s.serving
	s.serving = nil
	s.mu.Unlock()
	for _, server := range serving {
		server.Stop()
	}
	s.stop()
	s.ticking.Wait()
}
