// Package server is a stand-in for EventStoreDB: it serves the published gRPC protocol of streams and persistent
// subscriptions, from memory, for tests where no EventStoreDB can be had. It is not EventStoreDB, and no figure of it
// says anything of one.
//
// What it has: appends with expected revisions, their idempotence and the size limit; reads and catch-up subscriptions
// of streams and of $all; deletes, tombstones, and the metadata $maxCount and $tb; persistent subscriptions to streams
// with acknowledgement, refusal, retries, parking and time-outs; gossip. What it has not: users, links, projections,
// persistent subscriptions to $all, BatchAppend, and a disk.
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

// What EventStoreDB has where nobody sets anything else.
const (
	defaultVersion       = "23.10.0.stand-in" // so that no record takes it for the real one
	defaultMaxAppendSize = 1 << 20
	defaultTick          = time.Second
	// callsPerConnection is how many calls, subscriptions included, a connection carries at a time.
	callsPerConnection = 100
)

// Options are those of a server. The zero value is as EventStoreDB is.
type Options struct {
	Version       string        // whose protocol it speaks; what follows the third number is free
	MaxAppendSize int           // bytes of data of one append
	Tick          time.Duration // how often it looks for messages that timed out
	NoStats       bool          // as old releases, it has no service for statistics
	// Credentials are for TLS; nil is without.
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

// New makes a server with nothing in it. End it with Stop.
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

// Serve is the leader at l until Stop. It returns nil after Stop.
func (s *Server) Serve(l net.Listener) error { return s.serve(l, gossip.MemberInfo_Leader) }

// ServeFollower is a follower at l, until Stop: it has the leader's streams, passes appends on to it, and sends those
// who want persistent subscriptions there. Serve has to have been called.
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

// Stop breaks every connection and ends. Safe to call twice.
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
