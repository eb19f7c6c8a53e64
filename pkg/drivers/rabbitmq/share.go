package rabbitmq

import (
	"context"
	"sync"

	"lockstep/pkg/drivers/internal/legacy"
)

// shareKey identifies a shared connection by endpoint and connection number.
type shareKey struct{ at, number int }

// share is a connection with several users.
type share struct {
	mu    sync.Mutex // locked while dialling
	link  *link
	users int // guarded by session.mu
}

// lease is the use of a connection by one publisher or consumer.
type lease struct {
	*link
	release func() error // closes the connection if this is its last user
	alone   bool
}

// lease returns the connection with this number at this endpoint. It dials if there is none. Exclusive connections are
// always new.
func (s *session) lease(ctx context.Context, at, number int) (lease, error) {
	if number == legacy.Exclusive {
		l, err := s.dial(ctx, at)
		if err != nil {
			return lease{}, err
		}
		return lease{link: l, release: l.close, alone: true}, nil
	}
	key := shareKey{at, number}
	s.mu.Lock()
	sh := s.shared[key]
	if sh == nil {
		sh = &share{}
		s.shared[key] = sh
	}
	sh.users++
	s.mu.Unlock()

	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.link == nil || sh.link.IsClosed() {
		l, err := s.dial(ctx, at)
		if err != nil {
			s.leave(key, sh)
			return lease{}, err
		}
		sh.link = l
	}
	l := sh.link
	return lease{link: l, release: func() error {
		if last := s.leave(key, sh); last {
			return l.close()
		}
		return nil
	}}, nil
}

// leave removes a user. It reports whether it was the last.
func (s *session) leave(key shareKey, sh *share) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh.users--
	if sh.users > 0 {
		return false
	}
	if s.shared[key] == sh {
		delete(s.shared, key)
	}
	return true
}
