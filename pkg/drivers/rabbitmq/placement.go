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
	where, err := s.roles.Get(string(role)+" "+queue, func() ([]string, error) { return s.awaitRole(ctx, role, queue) })
	if err != nil {
		return 0, fmt.Errorf("place on the %s of %s: %w", role, queue, err)
	}
	for i, name := range s.nodes {
		if name != "" && slices.Contains(where, name) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("place on the %s of %s: it is at %v, the options' urls lead to %v", role, queue, where, s.nodes)
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
	Mirrors      []string `json:"slave_nodes"`
	Synchronised []string `json:"synchronised_slave_nodes"`
}

func (s *session) findQueue(ctx context.Context, queue string) (leader string, followers []string, err error) {
	var q queueInfo
	if err := s.api.get(ctx, nil, &q, "queues", s.endpoints[0].vhost, queue); err != nil {
		return "", nil, err
	}
	leader = cmp.Or(q.Leader, q.Node)
	return leader, slices.DeleteFunc(append(q.Members, q.Mirrors...), func(name string) bool { return name == leader }), nil
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
	c, err := s.dial(ctx, administration, at)
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
