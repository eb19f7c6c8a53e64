package loopback

import (
	"bytes"
	"slices"
	"sync"
)

// sequence numbers the messages of a publisher, for faults of exact amounts. Publishers of
// connection-per-message have one in common for each queue, since each of them sends one message.
type sequence struct {
	mu   sync.Mutex
	n    int64  // messages accepted
	held []byte // the body that waits for its next neighbour, to change places with it
	has  bool

	delays, confirmDelays dealer
}

func (s *sequence) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n, s.held, s.has = 0, nil, false
	s.delays, s.confirmDelays = dealer{}, dealer{}
}

// fate is what happens to one message.
type fate struct {
	rejected bool
	bodies   [3][]byte // what goes into each queue, in this order
	count    int

	delay, confirmDelay int64 // ns
}

func (f *fate) add(body []byte) {
	f.bodies[f.count] = body
	f.count++
}

// next decides on the next message. It is called once for each message accepted.
func (s *sequence) next(o *options, body []byte) (f fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.n
	s.n++
	f.delay, f.confirmDelay = s.delays.next(&o.Delay, o.Seed), s.confirmDelays.next(&o.ConfirmDelay, o.Seed+1)
	every := func(n int64) bool { return n > 0 && s.n%n == 0 }
	f.rejected = every(o.Reject)
	held, has := s.held, s.has
	s.held, s.has = nil, false
	switch {
	case f.rejected || every(o.Lose):
	case isSwapped(o.Swap, at):
		s.held, s.has = bytes.Clone(body), true
	default:
		f.add(body)
		if every(o.Duplicate) {
			f.add(body)
		}
	}
	if has {
		f.add(held)
	}
	return f
}

func isSwapped(swap []int64, at int64) bool {
	_, found := slices.BinarySearch(swap, at)
	return found
}

// rest gives up the body that still waits for a neighbour.
func (s *sequence) rest() (body []byte, has bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, has = s.held, s.has
	s.held, s.has = nil, false
	return body, has
}
