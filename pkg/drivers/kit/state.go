package kit

import (
	"errors"
	"fmt"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// State implements drivers.Ended for a Conn, a Publisher or a Consumer that embeds it. The zero State has not ended.
// Its methods are safe for concurrent use. It must not be copied.
type State struct {
	mu   sync.Mutex
	done chan struct{} // created by Done; closed when over
	over bool
	err  error
}

// Broke ends it because of err, which becomes Err and wraps drivers.ErrClosed. It returns false, and has no effect, if
// it has ended already.
func (s *State) Broke(err error) bool {
	if !errors.Is(err, drivers.ErrClosed) {
		err = fmt.Errorf("%w: %w", drivers.ErrClosed, err)
	}
	return s.end(err)
}

// End ends it because of Close: Err stays nil. It returns false, and has no effect, if it has ended already.
func (s *State) End() bool { return s.end(nil) }

// EndWith ends it because of err, or for the reason of its connection if that has ended.
func (s *State) EndWith(conn drivers.Ended, err error) bool {
	select {
	case <-conn.Done():
		err = conn.Err()
	default:
	}
	if err == nil {
		return s.End()
	}
	return s.Broke(err)
}

func (s *State) end(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.over, s.err = true, err
	if s.done == nil {
		s.done = closed
	} else {
		close(s.done)
	}
	return true
}

// closed is Done of everything that ended before Done was called.
var closed = make(chan struct{})

func init() { close(closed) }

// Done implements drivers.Ended.
func (s *State) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done == nil {
		s.done = make(chan struct{})
	}
	return s.done
}

// Err implements drivers.Ended.
func (s *State) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
