package nats

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// place returns the endpoints for a node, in the order in which to try them. For spread, ordinal is the number of
// the connection or queue.
func (s *session) place(ctx context.Context, node drivers.Node, ordinal int, stream string) ([]kit.Endpoint, error) {
	switch node {
	case "", drivers.AnyNode:
		return s.endpoints, nil
	case drivers.SpreadNode:
		first := ordinal % len(s.endpoints)
		return slices.Concat(s.endpoints[first:], s.endpoints[:first]), nil
	case drivers.LeaderNode, drivers.FollowerNode:
		return s.roles.Get(string(node)+" "+stream, func() ([]kit.Endpoint, error) { return s.role(ctx, node, stream) })
	}
	i, err := strconv.Atoi(string(node))
	if err != nil {
		return nil, fmt.Errorf("place on node %q: %w", node, err)
	}
	return s.endpoints[i : i+1], nil // declare has checked the index
}

// role returns the endpoints that lead a stream, or those that are its followers.
func (s *session) role(ctx context.Context, role drivers.Node, stream string) ([]kit.Endpoint, error) {
	js, err := s.management(ctx)
	if err != nil {
		return nil, err
	}
	found, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("find the %s of stream %s: %w", role, stream, err)
	}
	cluster := found.CachedInfo().Cluster
	if cluster == nil {
		if role == drivers.LeaderNode {
			return s.endpoints[:1], nil
		}
		return nil, fmt.Errorf("find the follower of stream %s: its server is in no cluster: %w", stream,
			drivers.ErrUnsupported)
	}
	want := []string{cluster.Leader}
	if role == drivers.FollowerNode {
		want = nil
		for _, peer := range cluster.Replicas {
			want = append(want, peer.Name)
		}
	}
	var places []kit.Endpoint
	for _, e := range s.endpoints {
		if name, err := s.serverName(ctx, e); err == nil && slices.Contains(want, name) {
			places = append(places, e)
		}
	}
	if len(places) == 0 {
		return nil, fmt.Errorf("find the %s of stream %s: none of the urls is that of %v: give those of all servers",
			role, stream, want)
	}
	return places, nil
}

// Leaders returns the leaders of the streams. A server without a cluster has none.
func (s *session) Leaders(ctx context.Context, t drivers.Topology) (map[string]int, error) {
	js, err := s.management(ctx)
	if err != nil {
		return nil, err
	}
	leaders := map[string]int{}
	for _, e := range s.endpoints {
		if name, err := s.serverName(ctx, e); err == nil { // a server that is down leads nothing
			leaders[name] = 0
		}
	}
	for q := range t.Queues {
		found, err := js.Stream(ctx, streamName(t, q))
		if err != nil {
			return nil, fmt.Errorf("find the leader of stream %s: %w", streamName(t, q), err)
		}
		cluster := found.CachedInfo().Cluster
		if cluster == nil {
			return nil, nil
		}
		leaders[cluster.Leader]++
	}
	return leaders, nil
}

// serverName returns the name of a server. It connects only if the name is unknown.
func (s *session) serverName(ctx context.Context, e kit.Endpoint) (string, error) {
	s.mu.Lock()
	name := s.names[e.Address]
	s.mu.Unlock()
	if name != "" {
		return name, nil
	}
	c, err := s.dial(ctx, e, s.env.Dial)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.nc.ConnectedServerName(), nil
}

// firstReplica returns the name of the first of these servers that can lead a stream; "": none.
func (s *session) firstReplica(ctx context.Context, at []kit.Endpoint, of *jetstream.ClusterInfo) string {
	ctx, cancel := context.WithTimeout(ctx, 2*leaderPatience)
	defer cancel()
	for _, e := range at {
		name, err := s.serverName(ctx, e)
		replica := func(p *jetstream.PeerInfo) bool { return p.Name == name && !p.Offline }
		if err == nil && (name == of.Leader || slices.ContainsFunc(of.Replicas, replica)) {
			return name
		}
	}
	return ""
}

// leaderPatience is the time after which lead repeats its request to move the leader. It begins when there is a leader.
// It is also the maximum wait for the answer to a query: no server answers one that arrives while the leader changes.
const leaderPatience = time.Second

// lead moves the leader of a queue's stream to the node that the topology names. NATS places streams with one replica
// itself.
func (s *session) lead(ctx context.Context, js jetstream.JetStream, t drivers.Topology, queue int,
	stream jetstream.Stream) error {
	info := stream.CachedInfo()
	spread := t.QueueNode == drivers.SpreadNode
	if !spread && !t.QueueNode.Chosen() || info.Cluster == nil ||
		spread && (s.options.Replicas == 1 || len(s.endpoints) == 1) {
		return nil
	}
	at, err := s.place(ctx, t.QueueNode, queue, info.Config.Name)
	if err != nil {
		return err
	}
	var name string
	if spread {
		name = s.firstReplica(ctx, at, info.Cluster)
	} else if name, err = s.serverName(ctx, at[0]); err != nil {
		return err
	}
	if name == "" { // none of the urls is that of a replica
		return nil
	}
	if info.Cluster.Leader == name {
		return nil
	}
	if s.options.Replicas == 1 {
		return fmt.Errorf("place stream %s on %s: one of one replica is placed by NATS: %w", info.Config.Name, name,
			drivers.ErrUnsupported)
	}
	ask, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": name}})
	if err != nil {
		return err
	}
	leader, requested := info.Cluster.Leader, time.Time{}
	err = kit.Poll(ctx, pollInterval, func() (bool, error) {
		answer, cancel := context.WithTimeout(ctx, leaderPatience)
		defer cancel()
		now, err := stream.Info(answer)
		if err != nil || now.Cluster == nil {
			return false, err
		}
		leader = now.Cluster.Leader
		// A replica that is not current ignores the request, and the stream has no leader until the next election.
		current := slices.ContainsFunc(now.Cluster.Replicas, func(p *jetstream.PeerInfo) bool {
			return p.Name == name && p.Current && !p.Offline
		})
		if leader == "" { // an election is running: nobody accepts a request, and its winner gets leaderPatience
			requested = time.Now()
		}
		if leader != name && current && time.Since(requested) > leaderPatience { // a new stream may reject it
			requested = time.Now()
			_ = js.Conn().PublishRequest("$JS.API.STREAM.LEADER.STEPDOWN."+info.Config.Name, client.NewInbox(), ask)
		}
		return leader == name, nil
	})
	if err != nil {
		return fmt.Errorf("move the leader of stream %s from %q to %s: %w: increase connect (an election takes up to 9 s)",
			info.Config.Name, leader, name, err)
	}
	return nil
}

// Describe reports the version of the server on the management connection, the names of the reachable servers, and
// stream settings.
func (s *session) Describe(ctx context.Context) (drivers.Description, error) {
	js, err := s.management(ctx)
	if err != nil {
		return drivers.Description{}, fmt.Errorf("describe NATS: %w", err)
	}
	o, nc := &s.options, js.Conn()
	d := drivers.Description{Product: "NATS", Version: nc.ConnectedServerVersion(), Settings: map[string]string{
		"replicas": strconv.Itoa(o.Replicas), "ackWait": o.AckWait.String(),
		"maxPayload": strconv.FormatInt(nc.MaxPayload(), 10),
	}}
	if o.Storage != "" {
		d.Settings["storage"] = o.Storage
	}
	if o.Embedded {
		d.Settings["sync"] = o.Sync
	}
	if cluster := nc.ConnectedClusterName(); cluster != "" {
		d.Settings["cluster"] = cluster
	}
	for _, e := range s.endpoints {
		if name, err := s.serverName(ctx, e); err == nil && !slices.Contains(d.Members, name) {
			d.Members = append(d.Members, name)
		}
	}
	slices.Sort(d.Members)
	return d, nil
}
