package rabbitmq

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// place returns the endpoints for node, in the order in which to try them. For leader and follower they are those of
// the queue, and for spread they begin with that of connection ordinal.
func (s *session) place(ctx context.Context, node drivers.Node, ordinal int, t drivers.Topology, queue string) ([]endpoint,
	error) {
	switch node {
	case "", drivers.AnyNode:
		return anywhere, nil
	case drivers.SpreadNode:
		return s.from(ordinal % len(s.endpoints)), nil
	case drivers.LeaderNode, drivers.FollowerNode:
		at, err := s.placeByRole(ctx, node, t, queue)
		if err != nil {
			return nil, fmt.Errorf("place on the %s of %s: %w", node, queue, err)
		}
		return at, nil
	}
	i, err := strconv.Atoi(string(node))
	if err != nil {
		return nil, fmt.Errorf("place on node %q: %w", node, err)
	}
	return s.endpoints[i : i+1], nil // declare has checked the index
}

// from returns all endpoints, beginning with endpoint i.
func (s *session) from(i int) []endpoint { return slices.Concat(s.endpoints[i:], s.endpoints[:i]) }

func (s *session) placeByRole(ctx context.Context, role drivers.Node, t drivers.Topology, queue string) ([]endpoint, error) {
	s.placesMu.Lock()
	defer s.placesMu.Unlock()
	if s.nodes == nil {
		nodes, err := s.nameNodes(ctx, t)
		if err != nil {
			return nil, err
		}
		s.nodes = nodes
	}
	where, err := s.roles.Get(string(role)+" "+queue, func() ([]string, error) { return s.awaitRole(ctx, role, queue) })
	if err != nil {
		return nil, err
	}
	var at []endpoint
	names := slices.Clone(s.nodes)
	for i, name := range names {
		switch {
		case name == "":
			names[i] = s.endpoints[i].address + " (no answer)"
		case slices.Contains(where, name):
			at = append(at, s.endpoints[i])
		}
	}
	if len(at) == 0 {
		return nil, fmt.Errorf("it is at %v, the options' urls lead to %v: give the urls of all nodes", where, names)
	}
	return at, nil
}

// forgetPlaces is called after a failed connection: another node may lead by now, and an endpoint without a name may
// answer.
func (s *session) forgetPlaces() {
	s.placesMu.Lock()
	defer s.placesMu.Unlock()
	s.roles.Clear()
	if slices.Contains(s.nodes, "") {
		s.nodes = nil
	}
}

// awaitRole waits until the broker reports nodes in this role. For a stream it does so only after gathering statistics.
func (s *session) awaitRole(ctx context.Context, role drivers.Node, queue string) (nodes []string, err error) {
	err = kit.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		leader, followers, err := s.findQueue(ctx, queue)
		nodes = followers
		if role == drivers.LeaderNode {
			nodes = []string{leader}
		}
		if err != nil || len(nodes) > 0 && nodes[0] != "" {
			return true, err
		}
		return false, errors.New("the broker names no node")
	})
	return nodes, err
}

// queueInfo is the description of a queue in the management API.
type queueInfo struct {
	Node         string   `json:"node"`
	Leader       string   `json:"leader"`
	Members      []string `json:"members"`
	Online       []string `json:"online"` // of Members
	Mirrors      []string `json:"slave_nodes"`
	Synchronised []string `json:"synchronised_slave_nodes"`
}

// findQueue returns the nodes of a queue. Members that are known to be down are no followers.
func (s *session) findQueue(ctx context.Context, queue string) (leader string, followers []string, err error) {
	var q queueInfo
	if err := s.api.get(ctx, nil, &q, "queues", s.endpoints[0].vhost, queue); err != nil {
		return "", nil, err
	}
	leader = cmp.Or(q.Leader, q.Node)
	down := func(name string) bool { return len(q.Online) > 0 && !slices.Contains(q.Online, name) }
	followers = append(slices.DeleteFunc(q.Members, down), q.Mirrors...)
	return leader, slices.DeleteFunc(followers, func(name string) bool { return name == leader }), nil
}

// maxLookups limits the queues whose leaders are looked up one by one.
const maxLookups = 500

// Leaders asks the management API for the leader of each queue.
func (s *session) Leaders(ctx context.Context, t drivers.Topology) (map[string]int, error) {
	sets := s.options.queueSets(t)
	switch {
	case s.api == nil && len(s.endpoints) == 1:
		return nil, nil
	case s.api == nil:
		return nil, errors.New("only the management API reports the leaders: give management")
	case sets*t.Queues > maxLookups:
		return nil, fmt.Errorf("%d queues are too many to request the leader of each (maximum %d)", sets*t.Queues, maxLookups)
	}
	nodes, err := s.runningNodes(ctx)
	if err != nil {
		return nil, err
	}
	leaders := map[string]int{}
	for _, n := range nodes {
		leaders[n.Name] = 0
	}
	for set := range sets {
		for q := range t.Queues {
			at, err := s.awaitRole(ctx, drivers.LeaderNode, s.options.queueName(t, set, q))
			if err != nil {
				return nil, err
			}
			leaders[at[0]]++
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
	c, err := s.dialOne(ctx, administration, s.endpoints[at])
	if err != nil {
		return "", err
	}
	defer c.Close()
	err = c.within(ctx, func() error {
		ch, err := c.amqp.Channel()
		if err != nil {
			return err
		}
		_, err = ch.QueueDeclare(probe, false, false, true, false, nil)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("find the name of the node at %s: %w", c.address, err)
	}
	leader, _, err := s.findQueue(ctx, probe)
	return leader, err
}
