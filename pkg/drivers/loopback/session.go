package loopback

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// session is one agent's session with a broker.
type session struct {
	broker  *broker
	options options
	conns   kit.Conns

	mu     sync.Mutex
	closed bool
	own    string // the topology that this session set up last
}

var _ interface {
	drivers.Describer
	drivers.Prober
	drivers.Binder
	drivers.Verifier
} = (*session)(nil)

// nameOf returns the name of a topology. Existing queues are those of a topology that another session declared under
// the name Existing.
func nameOf(t drivers.Topology) string { return cmp.Or(t.Existing, t.Name) }

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

// Verify looks for the topology that another session declared.
func (s *session) Verify(ctx context.Context, t drivers.Topology) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	at, err := s.broker.topology(t.Existing)
	if err != nil {
		return fmt.Errorf("verify existing queues: %w", err)
	}
	if at.queue(0, t.Queues-1) == nil {
		return fmt.Errorf("verify existing queues: topology %q has %d queues: lower topology.queues, which is %d", t.Existing,
			at.shape[1], t.Queues)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own = t.Existing
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
	s.mu.Unlock()
	s.conns.Close()
	s.broker.leave()
	return nil
}
