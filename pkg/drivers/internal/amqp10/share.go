package amqp10

import (
	"context"
	"sync"

	"lockstep/pkg/drivers/internal/legacy"
)

// share is a connection with several users.
type share struct {
	mu    sync.Mutex // locked while dialling
	link  *link
	users int // guarded by Session.mu
}

// lease is the use of a connection by one publisher or consumer.
type lease struct {
	*link
	release func() // closes the connection if this is its last user
	alone   bool
}

// lease returns the connection with this number. It dials if there is none. Exclusive connections are always new.
func (s *Session) lease(ctx context.Context, number int) (lease, error) {
	if number == legacy.Exclusive {
		l, err := s.dial(ctx, s.env.Dial)
		if err != nil {
			return lease{}, err
		}
		return lease{link: l, release: l.close, alone: true}, nil
	}
	s.mu.Lock()
	sh := s.shared[number]
	if sh == nil {
		sh = &share{}
		s.shared[number] = sh
	}
	sh.users++
	s.mu.Unlock()

	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.link == nil || sh.link.broken() {
		l, err := s.dial(ctx, s.env.Dial)
		if err != nil {
			s.leave(number, sh)
			return lease{}, err
		}
		sh.link = l
	}
	l := sh.link
	return lease{link: l, release: func() {
		if last := s.leave(number, sh); last || l.broken() {
			l.close()
		}
	}}, nil
}

// leave removes a user. It reports whether it was the last.
func (s *Session) leave(number int, sh *share) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh.users--
	if sh.users > 0 {
		return false
	}
	if s.shared[number] == sh {
		delete(s.shared, number)
	}
	return true
}
