package loopback

import (
	"bytes"
	"slices"
	"sync"
)

// sequence numbers the messages of a publisher, so that the number of faults is exact. Publishers of
// connection-per-message share one sequence per queue, since each of them sends one message.
type sequence struct {
	mu   sync.Mutex
	n    int64  // messages accepted
	held []byte // body that will be stored after the next message, to swap the two
	has  bool

	delays, confirmDelays dealer
}

func (s *sequence) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n, s.held, s.has = 0, nil, false
	s.delays, s.confirmDelays = dealer{}, dealer{}
}

// fate is the treatment of one message by the configured faults.
type fate struct {
	rejected bool
	bodies   [3][]byte // the bodies to store in each queue, in this order
	count    int

	delay, confirmDelay int64 // ns
}

func (f *fate) add(body []byte) {
	f.bodies[f.count] = body
	f.count++
}

// next returns the fate of the next message. It is called once for each accepted message.
func (s *sequence) next(o *options, body []byte) (f fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.n
	s.n++
	f.delay, f.confirmDelay = s.delays.next(&o.Delay, o.Seed), s.confirmDelays.next(&o.ConfirmDelay, o.Seed+1)
	every := func(n int64) bool { return n > 0 && s.n%n == 0 }
	f.rejected = every(o.Reject)
	_, swapped := slices.BinarySearch(o.Swap, at)
	held, has := s.held, s.has
	s.held, s.has = nil, false
	switch {
	case f.rejected || every(o.Lose):
	case swapped:
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

// rest removes and returns the body that is still held for a swap.
func (s *sequence) rest() (body []byte, has bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, has = s.held, s.has
	s.held, s.has = nil, false
	return body, has
}
