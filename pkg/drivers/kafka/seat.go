package kafka

import (
	"context"
	"sync"

	"lockstep/pkg/drivers"
)

// client is a library's client for publishers. It uses one link.
type client interface {
	outlet(ctx context.Context, spec drivers.PublisherSpec) (outlet, error)
	close()
}

// seated is a client with its link and the number of its users.
type seated struct {
	client
	link *link
	uses int // guarded by the mutex of its seat
}

// seatKey identifies a shared client.
type seatKey struct {
	number int
	topic  string
	mode   drivers.Mode
}

// seat stores the shared client of one key while it has users.
type seat struct {
	mu sync.Mutex
	at *seated
}

// join returns a client for the spec's connection number, and the function to call when its user has ended. With
// franz-go, publishers with the same number, queue and mode share a client and its connections. With kafka-go, each
// publisher has its own.
func (s *session) join(ctx context.Context, spec drivers.PublisherSpec) (*seated, func(), error) {
	if spec.Connection == drivers.Exclusive || s.options.Client == kafkaGo {
		c, err := s.client(ctx, spec)
		if err != nil {
			return nil, nil, err
		}
		return c, c.close, nil
	}
	key := seatKey{spec.Connection, topicName(spec.Topology, spec.Queue), spec.Mode}
	s.mu.Lock()
	if s.seats[key] == nil {
		s.seats[key] = &seat{}
	}
	seat := s.seats[key]
	s.mu.Unlock()
	seat.mu.Lock()
	defer seat.mu.Unlock()
	if seat.at == nil || seat.at.link.over.Load() {
		c, err := s.client(ctx, spec)
		if err != nil {
			return nil, nil, err
		}
		seat.at = c
	}
	c := seat.at
	c.uses++
	return c, func() { seat.leave(c) }, nil
}

func (s *session) client(ctx context.Context, spec drivers.PublisherSpec) (*seated, error) {
	l, err := s.link()
	if err != nil {
		return nil, err
	}
	connect := s.newGoClient
	if s.options.Client == franz {
		connect = s.newFranzClient
	}
	c, err := connect(ctx, l, spec)
	if err != nil {
		l.close()
		return nil, err
	}
	return &seated{client: c, link: l}, nil
}

func (s *seat) leave(c *seated) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.uses--
	if c.uses > 0 {
		return
	}
	c.close()
	if s.at == c {
		s.at = nil
	}
}
