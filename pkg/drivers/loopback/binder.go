package loopback

import (
	"context"
	"fmt"
	"sync"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// extra is the key of a binding that a Binder made while messages flow.
type extra struct {
	queue int
	key   uint32
}

// extras stores the extra bindings of a topology: per binding and subscription, the time from which it works, by the
// broker's clock.
type extras struct {
	mu    sync.Mutex
	bound map[extra]map[int]int64
}

// bound returns the queues that a message of this extra binding reaches at the time now.
func (t *topology) bound(x extra, now int64) (all []*queue) {
	t.extras.mu.Lock()
	defer t.extras.mu.Unlock()
	for subscription, from := range t.extras.bound[x] {
		if q := t.queue(subscription, x.queue); q != nil && now >= from {
			all = append(all, q)
		}
	}
	return all
}

// Bind returns after bindDelay. The binding works bindSpread after that.
func (s *session) Bind(ctx context.Context, t drivers.Topology, subscription, queue int, key uint32) error {
	at, err := s.binding(t, subscription, queue, key)
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if d := time.Duration(s.options.BindDelay); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	x, e := extra{queue, key}, &at.extras
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bound == nil {
		e.bound = map[extra]map[int]int64{}
	}
	if e.bound[x] == nil {
		e.bound[x] = map[int]int64{}
	}
	e.bound[x][subscription] = s.broker.now() + int64(s.options.BindSpread)
	return nil
}

// Unbind takes effect immediately.
func (s *session) Unbind(_ context.Context, t drivers.Topology, subscription, queue int, key uint32) error {
	at, err := s.binding(t, subscription, queue, key)
	if err != nil {
		return fmt.Errorf("unbind: %w", err)
	}
	x, e := extra{queue, key}, &at.extras
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.bound[x], subscription)
	if len(e.bound[x]) == 0 {
		delete(e.bound, x)
	}
	return nil
}

// binding returns the topology of a binding, or an error if the session is closed or the binding is invalid.
func (s *session) binding(t drivers.Topology, subscription, queue int, key uint32) (*topology, error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil, drivers.ErrClosed
	}
	at, err := s.broker.topology(t.Name)
	switch {
	case err != nil:
		return nil, err
	case key < drivers.ChurnKey:
		return nil, fmt.Errorf("key %d belongs to the queue's own bindings: those made while messages flow begin at %d",
			key, drivers.ChurnKey)
	case at.queue(subscription, queue) == nil:
		return nil, fmt.Errorf("topology %q has no queue %d in subscription %d", t.Name, queue, subscription)
	}
	return at, nil
}
