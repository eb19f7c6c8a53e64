package eventstore

import (
	"context"
	"sync"

	"lockstep/pkg/drivers"
)

// seatKey tells shared connections apart.
type seatKey struct {
	node   drivers.Node
	number int
}

// seat is where the connection of one number is, as long as somebody uses it.
type seat struct {
	mu   sync.Mutex
	link *link
}

// join gives a connection as node and number say, and what is to be called when its user has ended.
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
	key := seatKey{node, number}
	s.mu.Lock()
	if s.seats[key] == nil {
		s.seats[key] = &seat{}
	}
	seat := s.seats[key]
	s.mu.Unlock()
	seat.mu.Lock()
	defer seat.mu.Unlock()
	if seat.link == nil || seat.link.cause() != nil {
		l, err := s.reach(ctx, node)
		if err != nil {
			return nil, nil, err
		}
		seat.link = l
	}
	l := seat.link
	l.uses++
	return l, func() { seat.leave(l) }, nil
}

// reach connects to where a node is now.
func (s *session) reach(ctx context.Context, node drivers.Node) (*link, error) {
	at, err := s.place(ctx, node)
	if err != nil {
		return nil, err
	}
	return s.dialFirst(ctx, at)
}

func (s *seat) leave(l *link) {
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
