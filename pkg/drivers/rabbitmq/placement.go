package rabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// leaderLife is how long a leader that was looked up is used, so that connection-per-message does not look it up for
// each message.
const leaderLife = 5 * time.Second

// placed is the placement of a queue at a time.
type placed struct {
	leader    string
	followers []string
	at        time.Time
}

// place returns the index of the endpoint for node. For leader and follower it is that of the queue, and for spread
// that of connection ordinal.
func (s *session) place(ctx context.Context, node drivers.Node, ordinal int, t drivers.Topology, queue string) (int, error) {
	switch node {
	case "", drivers.AnyNode:
		return anywhere, nil
	case drivers.SpreadNode:
		return from(ordinal % len(s.endpoints)), nil
	case drivers.LeaderNode, drivers.FollowerNode:
		return s.placeByRole(ctx, node, t, queue)
	}
	return strconv.Atoi(string(node)) // declare has checked it
}

func (s *session) placeByRole(ctx context.Context, role drivers.Node, t drivers.Topology, queue string) (int, error) {
	s.placesMu.Lock()
	defer s.placesMu.Unlock()
	if s.nodes == nil {
		nodes, err := s.nameNodes(ctx, t)
		if err != nil {
			return 0, fmt.Errorf("place on the %s of %s: %w", role, queue, err)
		}
		s.nodes = nodes
	}
	where, known := s.leaders[queue]
	if !known || time.Since(where.at) > leaderLife || len(where.with(role)) == 0 {
		var err error
		if where, err = s.awaitRole(ctx, role, queue); err != nil {
			return 0, fmt.Errorf("place on the %s of %s: %w", role, queue, err)
		}
		s.leaders[queue] = where
	}
	for i, name := range s.nodes {
		if name != "" && slices.Contains(where.with(role), name) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("place on the %s of %s: it is at %v, the options' urls lead to %v", role, queue,
		where.with(role), s.nodes)
}

// awaitRole waits until the broker reports nodes in this role. For a stream it does so only after gathering statistics.
func (s *session) awaitRole(ctx context.Context, role drivers.Node, queue string) (where placed, err error) {
	err = kit.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		if where, err = s.findQueue(ctx, queue); err != nil || len(where.with(role)) > 0 {
			return true, err
		}
		return false, errors.New("the broker names no node")
	})
	return where, err
}

// with returns the nodes in a role.
func (p placed) with(role drivers.Node) []string {
	switch {
	case role == drivers.FollowerNode:
		return p.followers
	case p.leader == "":
		return nil
	}
	return []string{p.leader}
}

// queueInfo is the description of a queue in the management API.
type queueInfo struct {
	Node         string   `json:"node"`
	Leader       string   `json:"leader"`
	Members      []string `json:"members"`
	Mirrors      []string `json:"slave_nodes"`
	Synchronised []string `json:"synchronised_slave_nodes"`
}

func (s *session) findQueue(ctx context.Context, queue string) (placed, error) {
	var q queueInfo
	if err := s.api.call(ctx, http.MethodGet, nil, &q, "queues", s.endpoints[0].vhost, queue); err != nil {
		return placed{}, err
	}
	where := placed{leader: q.Leader, at: time.Now()}
	if where.leader == "" {
		where.leader = q.Node
	}
	for _, name := range append(q.Members, q.Mirrors...) {
		if name != where.leader {
			where.followers = append(where.followers, name)
		}
	}
	return where, nil
}

// maxLookups limits the queues whose leaders are looked up one by one.
const maxLookups = 500

// Leaders asks the management API for the leader of each queue. Without it, or with too many queues, it returns nil.
func (s *session) Leaders(ctx context.Context, t drivers.Topology) (map[string]int, error) {
	sets := s.options.queueSets(t)
	if s.api == nil || sets*t.Queues > maxLookups {
		return nil, nil
	}
	var nodes []nodeInfo
	if err := s.api.call(ctx, http.MethodGet, nil, &nodes, "nodes"); err != nil {
		return nil, err
	}
	leaders := map[string]int{}
	for _, n := range nodes {
		if n.Running {
			leaders[n.Name] = 0
		}
	}
	for set := range sets {
		for q := range t.Queues {
			at, err := s.awaitRole(ctx, drivers.LeaderNode, s.options.queueName(t, set, q))
			if err != nil {
				return nil, err
			}
			leaders[at.leader]++
		}
	}
	return leaders, nil
}

// nameNodes returns the node name of each endpoint, or "" if the endpoint does not answer. It fails only if all do.
func (s *session) nameNodes(ctx context.Context, t drivers.Topology) ([]string, error) {
	names := make([]string, len(s.endpoints))
	var errs []error
	for i := range s.endpoints {
		name, err := s.nameNode(ctx, i, t.Name+"-probe-"+rand.Text())
		if err != nil {
			errs = append(errs, err)
		}
		names[i] = name
	}
	if len(errs) == len(names) {
		return nil, errors.Join(errs...)
	}
	return names, nil
}

// nameNode declares an exclusive queue. RabbitMQ places such a queue on the node of its connection. So this works
// through proxies and address translation, where the addresses of the nodes' listeners would be wrong.
func (s *session) nameNode(ctx context.Context, at int, probe string) (string, error) {
	ctx, cancel := kit.Share(ctx, len(s.endpoints)-at+1)
	defer cancel()
	c, err := s.dial(ctx, administration, at)
	if err != nil {
		return "", err
	}
	defer c.Close()
	err = c.within(ctx, func() error {
		ch, err := c.Channel()
		if err != nil {
			return err
		}
		_, err = ch.QueueDeclare(probe, false, false, true, false, nil)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("find the name of the node at %s: %w", c.address, err)
	}
	where, err := s.findQueue(ctx, probe)
	return where.leader, err
}
