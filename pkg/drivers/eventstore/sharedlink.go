package eventstore

import (
	"context"
	"sync"

	"lockstep/pkg/drivers"
)

// linkKey identifies a shared connection.
type linkKey struct {
	node   drivers.Node
	number int
}

// sharedLink stores the shared connection of one key while it has users.
type sharedLink struct {
	mu   sync.Mutex
	link *link
}

// join returns a connection for node and number, and the function to call when its user has ended. Users with the same
// node and number share a connection, except with drivers.Exclusive.
func (s *session) join(ctx context.Context, node drivers.Node, number int) (*link, func(), error) {
	if node == "" {
		node = drivers.AnyNode
	}
	if number == drivers.Exclusive {
		l, err := s.reach(ctx, node)
		if err != nil {
			return nil, nil, err
		}
		return l, l.close, nil
	}
	key := linkKey{node, number}
	s.mu.Lock()
	if s.sharedLinks[key] == nil {
		s.sharedLinks[key] = &sharedLink{}
	}
	shared := s.sharedLinks[key]
	s.mu.Unlock()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.link == nil || shared.link.cause() != nil {
		l, err := s.reach(ctx, node)
		if err != nil {
			return nil, nil, err
		}
		shared.link = l
	}
	l := shared.link
	l.uses++
	return l, func() { shared.leave(l) }, nil
}

// reach connects to the current endpoint of a node.
func (s *session) reach(ctx context.Context, node drivers.Node) (*link, error) {
	at, err := s.place(ctx, node)
	if err != nil {
		return nil, err
	}
	return s.dialFirst(ctx, at)
}

func (s *sharedLink) leave(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.uses--
	if l.uses == 0 {
		l.close()
		if s.link == l {
			s.link = nil
		}
	}
}
