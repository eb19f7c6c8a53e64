package kafka

import (
	"context"
	"sync"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
)

// client is a library's client for publishers. It uses one link.
type client interface {
	producer(ctx context.Context, spec legacy.PublisherSpec) (producer, error)
	close()
}

// sharedClient is a client with its link and the number of its users.
type sharedClient struct {
	client
	link *link
	uses int // guarded by the mutex of its slot
}

// slotKey identifies a shared client.
type slotKey struct {
	number int
	topic  string
	mode   drivers.Mode
	keyed  bool
}

// slot stores the shared client of one key while it has users.
type slot struct {
	mu sync.Mutex
	at *sharedClient
}

// join returns a client for the spec's connection number, and the function to call when its user has ended. With
// franz-go, publishers with the same number, queue and mode share a client and its connections. With kafka-go, each
// publisher has its own.
func (s *session) join(ctx context.Context, spec legacy.PublisherSpec) (*sharedClient, func(), error) {
	if spec.Connection == legacy.Exclusive || s.options.Client == kafkaGo {
		c, err := s.client(ctx, spec)
		if err != nil {
			return nil, nil, err
		}
		return c, c.close, nil
	}
	key := slotKey{spec.Connection, topicName(spec.Topology, spec.Queue), spec.Mode, spec.Keyed}
	s.mu.Lock()
	if s.slots[key] == nil {
		s.slots[key] = &slot{}
	}
	slot := s.slots[key]
	s.mu.Unlock()
	slot.mu.Lock()
	defer slot.mu.Unlock()
	if slot.at == nil || slot.at.link.over.Load() {
		c, err := s.client(ctx, spec)
		if err != nil {
			return nil, nil, err
		}
		slot.at = c
	}
	c := slot.at
	c.uses++
	return c, func() { slot.leave(c) }, nil
}

func (s *session) client(ctx context.Context, spec legacy.PublisherSpec) (*sharedClient, error) {
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
	return &sharedClient{client: c, link: l}, nil
}

func (s *slot) leave(c *sharedClient) {
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
