package requests

import (
	"fmt"
	"sync"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
)

// Member is a user of a link: a publisher or a consumer.
type Member interface {
	Broke(cause error) // the link broke
	Abandon()          // the session is closed
}

// Link is embedded in a driver's own link. It stores whether the link works, and notifies its members when it breaks or
// ends. The zero Link works. Its methods are safe for concurrent use. They call members without holding a lock.
type Link struct {
	mu      sync.Mutex
	ended   bool
	cause   error
	members map[Member]struct{}
}

// Broke marks the link as broken and notifies the members. It does nothing after the first call, or after End.
func (l *Link) Broke(cause error) {
	l.mu.Lock()
	if l.ended || l.cause != nil {
		l.mu.Unlock()
		return
	}
	l.cause = cause
	all := l.list()
	l.mu.Unlock()
	for _, m := range all {
		m.Broke(cause)
	}
}

func (l *Link) list() []Member {
	all := make([]Member, 0, len(l.members))
	for m := range l.members {
		all = append(all, m)
	}
	return all
}

// Err returns why the link cannot be used any more, or nil.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil && l.ended {
		return drivers.ErrClosed
	}
	return l.cause
}

// Join adds a member. If the link is broken or has ended already, it notifies m immediately.
func (l *Link) Join(m Member) {
	l.mu.Lock()
	if l.members == nil {
		l.members = map[Member]struct{}{}
	}
	l.members[m] = struct{}{}
	cause, ended := l.cause, l.ended
	l.mu.Unlock()
	switch {
	case cause != nil:
		m.Broke(cause)
	case ended:
		m.Abandon()
	}
}

// Part removes a member.
func (l *Link) Part(m Member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.members, m)
}

// End marks the link as ended, and abandons the remaining members. A link's Close calls it first. first reports whether
// this is the first call. idle reports whether the link works and had no members, so that it can end in an orderly way.
func (l *Link) End() (first, idle bool) {
	l.mu.Lock()
	first, idle = !l.ended, l.cause == nil && len(l.members) == 0
	l.ended = true
	all := l.list()
	l.mu.Unlock()
	if first {
		for _, m := range all {
			m.Abandon()
		}
	}
	return first, idle
}

// Linked is the interface of a driver's own link.
type Linked interface {
	comparable
	Err() error
	Close() // safe to call twice
}

// Links are the links of a session. The zero Links is ready to use. Its methods are safe for concurrent use.
type Links[L Linked] struct {
	mu          sync.Mutex
	closed      bool
	open        map[L]struct{}
	sharedLinks map[int]*sharedLink[L]
}

// sharedLink is the shared link of one connection number.
type sharedLink[L Linked] struct {
	mu   sync.Mutex
	link L
	uses int // number of users of link; 0: no link
}

// Open creates a link. It is closed with the session, if not before.
func (s *Links[L]) Open(connect func() (L, error)) (L, error) {
	l, err := connect()
	if err != nil {
		return l, err
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		if s.open == nil {
			s.open = map[L]struct{}{}
		}
		s.open[l] = struct{}{}
	}
	s.mu.Unlock()
	if closed {
		l.Close()
		return l, fmt.Errorf("session: %w", drivers.ErrClosed)
	}
	return l, nil
}

// Drop closes a link and removes it.
func (s *Links[L]) Drop(l L) {
	s.mu.Lock()
	delete(s.open, l)
	s.mu.Unlock()
	l.Close()
}

// Take returns the link of a connection number. It creates a link if there is none, if it is broken, or if the number
// is legacy.Exclusive. The caller must call leave exactly once. The last user closes the link.
func (s *Links[L]) Take(number int, connect func() (L, error)) (l L, leave func(), err error) {
	if number == legacy.Exclusive {
		l, err = s.Open(connect)
		return l, func() { s.Drop(l) }, err
	}
	s.mu.Lock()
	if s.sharedLinks == nil {
		s.sharedLinks = map[int]*sharedLink[L]{}
	}
	at := s.sharedLinks[number]
	if at == nil {
		at = &sharedLink[L]{}
		s.sharedLinks[number] = at
	}
	s.mu.Unlock()
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.uses == 0 || at.link.Err() != nil {
		fresh, err := s.Open(connect)
		if err != nil {
			return l, nil, err
		}
		at.link, at.uses = fresh, 0 // every user of the broken link closes it, which is safe
	}
	l = at.link
	at.uses++
	return l, func() { s.leave(at, l) }, nil
}

func (s *Links[L]) leave(at *sharedLink[L], l L) {
	at.mu.Lock()
	last := at.link != l // it broke, and was replaced
	if !last {
		at.uses--
		last = at.uses == 0
	}
	at.mu.Unlock()
	if last {
		s.Drop(l)
	}
}

// Close closes all links immediately, including those that are being opened.
func (s *Links[L]) Close() {
	s.mu.Lock()
	s.closed = true
	all := make([]L, 0, len(s.open))
	for l := range s.open {
		all = append(all, l)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, l := range all {
		wg.Go(l.Close)
	}
	wg.Wait()
}
