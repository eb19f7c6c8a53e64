package server

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
)

// features reports the features of the server.
type features struct {
	serverfeatures.UnimplementedServerFeaturesServer
	version string
}

// supported are the methods, by the names of the protocol.
var supported = map[string][]string{
	"event_store.client.streams.streams": {"append", "read", "delete", "tombstone"},
	"event_store.client.persistent_subscriptions.persistentsubscriptions": {"create", "update", "delete", "read",
		"getinfo", "list", "replayparked"},
	"event_store.client.gossip.gossip": {"read"},
}

func (f features) GetSupportedMethods(context.Context, *shared.Empty) (*serverfeatures.SupportedMethods, error) {
	all := &serverfeatures.SupportedMethods{EventStoreServerVersion: f.version}
	for service, methods := range supported {
		for _, method := range methods {
			all.Methods = append(all.Methods, &serverfeatures.SupportedMethod{ServiceName: service, MethodName: method})
		}
	}
	return all, nil
}

// gossiper reports the members of the cluster.
type gossiper struct {
	gossip.UnimplementedGossipServer
	server *Server
}

func (g gossiper) Read(context.Context, *shared.Empty) (*gossip.ClusterInfo, error) {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	return &gossip.ClusterInfo{Members: g.server.members}, nil
}

func member(at net.Addr, state gossip.MemberInfo_VNodeState) *gossip.MemberInfo {
	host, text, _ := net.SplitHostPort(at.String())
	port, _ := strconv.Atoi(text)
	return &gossip.MemberInfo{
		State: state, IsAlive: true, TimeStamp: time.Now().UnixNano() / 100,
		HttpEndPoint: &gossip.EndPoint{Address: host, Port: uint32(port)},
	}
}

// elsewhere is a follower's service for persistent subscriptions. It refers clients to the leader.
type elsewhere struct {
	persistent.UnimplementedPersistentSubscriptionsServer
	server *Server
}

func (e elsewhere) leader(ctx context.Context) error {
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	at := e.server.members[0].GetHttpEndPoint()
	return answer(ctx, notLeader(at.GetAddress(), at.GetPort()))
}

func (e elsewhere) Create(ctx context.Context, _ *persistent.CreateReq) (*persistent.CreateResp, error) {
	return nil, e.leader(ctx)
}

func (e elsewhere) Delete(ctx context.Context, _ *persistent.DeleteReq) (*persistent.DeleteResp, error) {
	return nil, e.leader(ctx)
}

func (e elsewhere) GetInfo(ctx context.Context, _ *persistent.GetInfoReq) (*persistent.GetInfoResp, error) {
	return nil, e.leader(ctx)
}

func (e elsewhere) List(ctx context.Context, _ *persistent.ListReq) (*persistent.ListResp, error) {
	return nil, e.leader(ctx)
}

func (e elsewhere) Read(call persistent.PersistentSubscriptions_ReadServer) error {
	if _, err := call.Recv(); err != nil {
		return err
	}
	return e.leader(call.Context())
}
