package loopback

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// session is one agent's session with a broker.
type session struct {
	broker  *broker
	options options

	mu     sync.Mutex
	closed bool
	own    string             // the topology that this session set up last
	conns  map[*conn]struct{} // open connections
}

var _ interface {
	drivers.Describer
	drivers.Prober
	drivers.Binder
} = (*session)(nil)

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
	open := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
	s.broker.leave()
	return nil
}
