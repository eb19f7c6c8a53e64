package requests

import (
	"fmt"
	"sync"

	"lockstep/pkg/drivers"
)

// Member uses a link: a publisher or a consumer.
type Member interface {
	Broke(cause error) // its link is broken
	Abandon()          // its session is closed
}

// Link is what a driver's own link embeds: whether it is whole, and who has to know. The zero Link is whole. Its
// methods are safe for concurrent use; they call members outside of any lock.
type Link struct {
	mu      sync.Mutex
	ended   bool
	cause   error
	members map[Member]struct{}
}

// Broke tells the members that the link is broken, unless it has ended. Only the first call does anything.
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

// Err says why the link is of no use any more, or nil.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil && l.ended {
		return drivers.ErrClosed
	}
	return l.cause
}

// Join has m told of the end of the link, which may have come already.
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

// Part has m told of nothing more.
func (l *Link) Part(m Member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.members, m)
}

// End is what a link's Close begins with: the members that are left are abandoned. first reports whether it is the
// first call, idle whether the link was whole and without members, so that it may end in order.
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

// Linked is a driver's own link.
type Linked interface {
	comparable
	Err() error
	Close() // safe to call twice
}

// Links are the links of a session. The zero Links is ready to use.
type Links[L Linked] struct {
	mu     sync.Mutex
	closed bool
	open   map[L]struct{}
	seats  map[int]*seat[L]
}

// seat is the link of a connection number.
type seat[L Linked] struct {
	mu   sync.Mutex
	link L
	uses int // of link; 0: there is none
}

// Open makes a link that is closed with the session.
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

// Drop closes a link.
func (s *Links[L]) Drop(l L) {
	s.mu.Lock()
	delete(s.open, l)
	s.mu.Unlock()
	l.Close()
}

// Take gives the link of a connection number, a new one if that is broken, or for drivers.Exclusive one that nobody
// else has. Give it back with leave, once: the last one closes it.
func (s *Links[L]) Take(number int, connect func() (L, error)) (l L, leave func(), err error) {
	if number == drivers.Exclusive {
		l, err = s.Open(connect)
		return l, func() { s.Drop(l) }, err
	}
	s.mu.Lock()
	if s.seats == nil {
		s.seats = map[int]*seat[L]{}
	}
	at := s.seats[number]
	if at == nil {
		at = &seat[L]{}
		s.seats[number] = at
	}
	s.mu.Unlock()
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.uses == 0 || at.link.Err() != nil {
		fresh, err := s.Open(connect)
		if err != nil {
			return l, nil, err
		}
		at.link, at.uses = fresh, 0 // who uses a broken one closes it, more than once if they are several
	}
	l = at.link
	at.uses++
	return l, func() { s.leave(at, l) }, nil
}

func (s *Links[L]) leave(at *seat[L], l L) {
	at.mu.Lock()
	last := at.link != l // it broke, and another has its seat
	if !last {
		at.uses--
		last = at.uses == 0
	}
	at.mu.Unlock()
	if last {
		s.Drop(l)
	}
}

// Close closes all links, at once, and those that are still being made.
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
