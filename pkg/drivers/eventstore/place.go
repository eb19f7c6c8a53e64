package eventstore

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/gossip"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// place returns the endpoints for a node, in the order in which to try them. In a cluster, AnyNode and SpreadNode mean
// the leader: the other nodes forward requests to it, and only the leader has persistent subscriptions.
func (s *session) place(ctx context.Context, node drivers.Node) ([]kit.Endpoint, error) {
	if i, err := strconv.Atoi(string(node)); err == nil {
		return s.endpoints[i : i+1], nil // declare has checked it
	}
	if len(s.endpoints) == 1 && node != drivers.FollowerNode {
		return s.endpoints, nil
	}
	want := gossip.MemberInfo_Leader
	if node == drivers.FollowerNode {
		want = gossip.MemberInfo_Follower
	}
	return s.roles.Get(want.String(), func() ([]kit.Endpoint, error) {
		members, err := s.members(ctx)
		if err != nil {
			return nil, err
		}
		var found []kit.Endpoint
		for _, m := range members {
			if m.GetIsAlive() && m.GetState() == want {
				e := s.endpoints[0]
				e.Address = addressOf(m)
				found = append(found, e)
			}
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("find the %s among %d members of the cluster: there is none at the moment", want,
				len(members))
		}
		return found, nil
	})
}

func addressOf(m *gossip.MemberInfo) string {
	return net.JoinHostPort(m.GetHttpEndPoint().GetAddress(), strconv.Itoa(int(m.GetHttpEndPoint().GetPort())))
}

// members returns the members of the cluster, from the first node that answers.
func (s *session) members(ctx context.Context) ([]*gossip.MemberInfo, error) {
	return kit.InTurn(ctx, len(s.endpoints), func(ctx context.Context, i int) (members []*gossip.MemberInfo, err error) {
		e := s.endpoints[i]
		c, err := s.connect(ctx, e, s.forwardManagement)
		if err == nil {
			members, err = c.client.Gossip(ctx)
			_ = c.Close()
		}
		if err != nil {
			return nil, fmt.Errorf("query %s for the members of the cluster: %w", e.Address, err)
		}
		return members, nil
	})
}
