package kafka

import (
	"context"
	"sync"

	"lockstep/pkg/drivers"
)

// client is a library's client for publishers, and the link that it works over.
type client interface {
	outlet(ctx context.Context, spec drivers.PublisherSpec) (outlet, error)
	close()
}

// seated is a client and what it is known by.
type seated struct {
	client
	link *link
	uses int // guarded by its seat
}

// seatKey tells shared clients apart.
type seatKey struct {
	number int
	topic  string
	mode   drivers.Mode
}

// seat is where the client of one number is, as long as somebody uses it.
type seat struct {
	mu sync.Mutex
	at *seated
}

// join gives a client as the spec's connection number says, and what is to be called when its user has ended.
// Publishers of one number and one queue share a client of franz-go, and its connections; with kafka-go each has its
// own.
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
