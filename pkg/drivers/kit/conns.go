package kit

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Conns are the open connections of a session. The zero Conns is ready to use. Its methods are safe for concurrent use.
type Conns struct {
	mu     sync.Mutex
	closed bool
	open   map[io.Closer]struct{}
}

// Add adds a connection. After Close, it closes the connection and returns an error that wraps drivers.ErrClosed.
func (s *Conns) Add(c io.Closer) error {
	if s.add(c) {
		return nil
	}
	_ = c.Close()
	return fmt.Errorf("session: %w", drivers.ErrClosed)
}

func (s *Conns) add(c io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.open == nil {
		s.open = map[io.Closer]struct{}{}
	}
	s.open[c] = struct{}{}
	return true
}

// Closed reports whether Close was called. Then it is of no use to dial.
func (s *Conns) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Remove removes a connection. Its Close calls it.
func (s *Conns) Remove(c io.Closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// Close closes all connections at the same time, and returns when they are closed.
func (s *Conns) Close() {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() { _ = c.Close() })
	}
	wg.Wait()
}
