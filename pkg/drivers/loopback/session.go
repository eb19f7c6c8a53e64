package loopback

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"lockstep/pkg/drivers"
)

// session is one agent's session with a broker.
type session struct {
	broker  *broker
	options options

	mu     sync.Mutex
	closed bool
	own    string            // the topology that this session set up last
	parts  map[part]struct{} // open publishers and consumers
}

var _ interface {
	drivers.Describer
	drivers.Prober
	drivers.Binder
} = (*session)(nil)

// part is a publisher or consumer, for its session and its broker.
type part interface {
	cut()     // the link broke: stop, and call OnClosed
	abandon() // the session is closed: stop without waiting for confirms
}

func (s *session) Setup(ctx context.Context, t drivers.Topology) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.broker.declare(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own = t.Name
	return nil
}

func (s *session) Teardown(ctx context.Context, t drivers.Topology) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.broker.remove(t.Name)
	return nil
}

func (s *session) Publisher(ctx context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := s.broker.topology(spec.Topology.Name)
	if err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	p := newPublisher(s, t, spec)
	if err := s.add(p); err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	p.start()
	return p, nil
}

func (s *session) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer,
	error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := s.broker.topology(spec.Topology.Name)
	if err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	q := t.queue(spec.Subscription, spec.Queue)
	if q == nil {
		return nil, fmt.Errorf("connect consumer: topology %q has no queue %d in subscription %d", t.name, spec.Queue,
			spec.Subscription)
	}
	c := newConsumer(s, q, spec, handle)
	if err := s.add(c); err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	c.start()
	return c, nil
}

func (s *session) Describe(context.Context) (drivers.Description, error) {
	return drivers.Description{
		Product: "Lockstep loopback",
		Settings: map[string]string{
			"behaviour":     s.options.label(),
			"capacity":      strconv.Itoa(s.options.Capacity),
			"capacityBytes": strconv.Itoa(s.options.CapacityBytes),
		},
	}, nil
}

func (s *session) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	open := slices.Collect(maps.Keys(s.parts))
	s.mu.Unlock()
	for _, p := range open {
		p.abandon()
	}
	s.broker.leave()
	return nil
}

// add registers a new part. It returns ErrClosed if the session is closed.
func (s *session) add(p part) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return drivers.ErrClosed
	}
	s.parts[p] = struct{}{}
	s.broker.attach(p)
	return nil
}

// drop removes a part that has ended.
func (s *session) drop(p part) {
	s.broker.detach(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.parts, p)
}
