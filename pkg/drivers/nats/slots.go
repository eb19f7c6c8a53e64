package nats

import (
	"strconv"
	"sync/atomic"
)

// slot is a reply subject for one unconfirmed message. The subject is created once, so that publishing allocates
// nothing.
type slot struct {
	reply string
	busy  atomic.Bool

	// written by the publisher before busy is set
	token   uint64
	to      string // subject of the message
	body    []byte
	repeats int // how often the message was published again
}

// settle frees the slot and returns its token. It returns false if the slot was free. Only one caller gets true.
func (s *slot) settle() (uint64, bool) {
	if !s.busy.Load() {
		return 0, false
	}
	token := s.token
	return token, s.busy.CompareAndSwap(true, false)
}

// slots are all slots of a publisher. Only its goroutine calls take. Any goroutine may find and settle slots.
type slots struct {
	prefix string // prefix of the reply subjects
	all    atomic.Pointer[[]*slot]
	next   int
}

func newSlots(prefix string, n int) *slots {
	s := &slots{prefix: prefix}
	s.all.Store(&[]*slot{})
	s.grow(n)
	return s
}

func (s *slots) grow(n int) {
	old := *s.all.Load()
	block := make([]slot, n)
	all := make([]*slot, len(old), len(old)+n)
	copy(all, old)
	for i := range block {
		block[i].reply = s.prefix + strconv.Itoa(len(all))
		all = append(all, &block[i])
	}
	s.next = len(old)
	s.all.Store(&all)
}

// take returns a free slot. The next one is nearly always free, because confirms arrive in about the order of messages.
func (s *slots) take(token uint64, to string, body []byte) *slot {
	all := *s.all.Load()
	for range all {
		at := all[s.next]
		if s.next++; s.next == len(all) {
			s.next = 0
		}
		if !at.busy.Load() {
			at.token, at.to, at.body, at.repeats = token, to, body, 0
			at.busy.Store(true)
			return at
		}
	}
	s.grow(len(all))
	return s.take(token, to, body)
}

// find returns the slot of a reply subject, or nil.
func (s *slots) find(subject string) *slot {
	if len(subject) <= len(s.prefix) {
		return nil
	}
	n := 0
	for _, c := range []byte(subject[len(s.prefix):]) {
		if c < '0' || c > '9' || n > 1<<32 {
			return nil
		}
		n = n*10 + int(c-'0')
	}
	if all := *s.all.Load(); n < len(all) {
		return all[n]
	}
	return nil
}

// busy reports whether any message is unconfirmed.
func (s *slots) busy() bool {
	for _, at := range *s.all.Load() {
		if at.busy.Load() {
			return true
		}
	}
	return false
}
