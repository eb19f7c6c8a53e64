package loopback

import (
	"bytes"
	"sync"
)

// queue is a linked list of segments. Publishers append to the tail, and consumers take runs from the head.
type queue struct {
	number uint32

	mu             sync.Mutex
	gone           bool // torn down: rejects messages and returns none
	delayed        bool // some slots have a ready time
	head           *segment
	headAt         int // next slot of head to take
	tail           *segment
	free           *segment
	freeCount      int
	size           int           // capacity of a new segment in bytes: several of the largest bodies so far
	ready          int           // messages not yet taken
	held           int           // messages taken and not yet released
	bytes          int           // total size of the bodies of ready and held messages
	later          later[[]byte] // bodies that may overtake each other; they move to the tail when due
	returned       []run         // taken and given back: delivered before all others
	waiting        []*consumer
	consumers      int
	blocked        chan struct{} // closed when messages are released; nil if no publisher waits
	unyielded      int           // messages pushed since a publisher last yielded
	unyieldedBytes int           // bytes pushed since a publisher last yielded
}

func newQueue(number uint32) *queue {
	s := newSegment(segmentBytes)
	return &queue{number: number, head: s, tail: s, size: segmentBytes}
}

// offered is the result of an offer.
type offered uint8

const (
	taken      offered = iota
	takenYield         // taken; the publisher should yield, so that the backlog stays in the CPU cache
	full
	gone
)

// offer appends a copy of body, for delivery at the time ready, unless the queue would exceed the bounds.
func (q *queue) offer(body []byte, ready int64, maxCount, maxBytes int) offered {
	q.mu.Lock()
	if q.gone {
		q.mu.Unlock()
		return gone
	}
	if count := q.ready + q.held; count >= maxCount || (q.bytes+len(body) > maxBytes && count > 0) {
		q.mu.Unlock()
		return full
	}
	q.push(body, ready)
	if len(q.waiting) > 0 {
		q.wake()
	}
	way := q.makeWay(len(body))
	q.mu.Unlock()
	if way {
		return takenYield
	}
	return taken
}

// offerLater adds a copy of body, for delivery at the time ready. It may overtake messages that are due later. There
// are no bounds.
func (q *queue) offerLater(body []byte, ready int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gone {
		return
	}
	q.later.add(ready, bytes.Clone(body))
	q.ready++
	q.bytes += len(body)
	q.wake()
}

// ripen moves the messages that are due from later to the tail. It returns the time at which the next is due, or 0.
func (q *queue) ripen(now int64) (next int64) {
	for {
		due, has := q.later.next()
		if !has {
			return 0
		}
		if due > now {
			return due
		}
		body := q.later.take()
		q.ready--
		q.bytes -= len(body)
		q.push(body, 0)
	}
}

func (q *queue) push(body []byte, ready int64) {
	s := q.tail
	at := len(s.buf)
	if len(s.slots) == segmentSlots || at+len(body) > cap(s.buf) {
		s = q.grow(len(body))
		at = 0
	}
	s.buf = append(s.buf, body...)
	s.slots = append(s.slots, slot{at: at, size: len(body), ready: ready})
	q.ready++
	q.bytes += len(body)
	if ready != 0 {
		q.delayed = true
	}
}

// makeWay reports whether the publisher should yield: enough was pushed since the last yield, and consumers have a
// backlog. Without yields, a publisher fills the queue during its whole time slice.
func (q *queue) makeWay(size int) bool {
	q.unyielded++
	q.unyieldedBytes += size
	if q.unyielded < yieldCount && q.unyieldedBytes < yieldBytes {
		return false
	}
	q.unyielded, q.unyieldedBytes = 0, 0
	return q.consumers > 0 && q.ready > 0
}

// grow appends a segment that has space for a body of this size.
func (q *queue) grow(size int) *segment {
	if want := max(size, min(4*size, maxBytesKept)); want > q.size {
		q.size, q.free, q.freeCount = want, nil, 0
	}
	old, s := q.tail, q.free
	if s != nil {
		q.free, s.next = s.next, nil
		q.freeCount--
	} else {
		s = newSegment(q.size)
	}
	old.next, q.tail = s, s
	if q.head == old && q.headAt == len(old.slots) {
		q.head, q.headAt = s, 0
		q.recycle(old)
	}
	return s
}

// recycle prepares a segment for reuse if it is full and all of its messages are released.
func (q *queue) recycle(s *segment) {
	if s.released < len(s.slots) {
		return
	}
	if s == q.tail {
		// everything is taken and released: start again in the same cache lines
		if s == q.head && q.headAt == len(s.slots) {
			s.buf, s.slots, s.released, q.headAt = s.buf[:0], s.slots[:0], 0, 0
		}
		return
	}
	if cap(s.buf) != q.size || q.freeCount == freeSegments {
		return
	}
	s.buf, s.slots, s.released = s.buf[:0], s.slots[:0], 0
	s.next, q.free = q.free, s
	q.freeCount++
}

// take returns up to limit of the next messages, all from one segment. If none is ready, next is the time when one will
// be, or 0 if that is unknown. The caller holds mu.
func (q *queue) take(limit int, now func() int64) (r run, next int64) {
	if len(q.returned) > 0 {
		return q.takeReturned(limit), 0
	}
	var ripe int64
	if len(q.later.items) > 0 {
		ripe = q.ripen(now())
	}
	s := q.head
	n := min(limit, len(s.slots)-q.headAt)
	if n > 0 && q.delayed {
		n, next = readyOf(s.slots[q.headAt:q.headAt+n], now())
	}
	if n <= 0 {
		if ripe > 0 && (next == 0 || ripe < next) {
			next = ripe
		}
		return run{}, next
	}
	r = run{seg: s, buf: s.buf, slots: s.slots[q.headAt : q.headAt+n]}
	q.headAt += n
	q.ready -= n
	q.held += n
	if q.headAt == len(s.slots) && s.next != nil {
		q.head, q.headAt = s.next, 0
	}
	return r, 0
}

func (q *queue) takeReturned(limit int) run {
	first := &q.returned[0]
	r := *first
	if len(r.slots) > limit {
		r.slots, first.slots = r.slots[:limit], first.slots[limit:]
	} else {
		q.returned[0] = run{}
		q.returned = q.returned[1:]
	}
	q.ready -= len(r.slots)
	q.held += len(r.slots)
	return r
}

// release removes messages that were taken: they are acknowledged, or dropped for good. The caller holds mu.
func (q *queue) release(r run) {
	q.held -= len(r.slots)
	q.bytes -= r.bytes()
	r.seg.released += len(r.slots)
	q.recycle(r.seg)
	q.unblock()
}

// unblock wakes publishers that wait for space. The caller holds mu.
func (q *queue) unblock() {
	if q.blocked != nil {
		close(q.blocked)
		q.blocked = nil
	}
}

// giveBack returns messages that were taken. They are delivered again, before all others. The caller holds mu.
func (q *queue) giveBack(r run) {
	if len(r.slots) == 0 {
		return
	}
	if q.gone {
		q.release(r)
		return
	}
	r.redelivered = true
	q.held -= len(r.slots)
	q.ready += len(r.slots)
	q.returned = append(q.returned, r)
	q.wake()
}

// wake wakes the consumer that has waited longest, if any. The caller holds mu.
func (q *queue) wake() {
	if n := len(q.waiting); n > 0 {
		c := q.waiting[0]
		q.waiting = q.waiting[:copy(q.waiting, q.waiting[1:])]
		c.parked = false
		c.wake <- struct{}{} // never blocks: its capacity is 1, and it is empty when the consumer parks
	}
}

// released returns nil if the queue has space now. Otherwise the channel is closed when messages are released.
func (q *queue) released(size, maxCount, maxBytes int) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if count := q.ready + q.held; q.gone || (count < maxCount && (q.bytes+size <= maxBytes || count == 0)) {
		return nil
	}
	if q.blocked == nil {
		q.blocked = make(chan struct{})
	}
	return q.blocked
}

// purge drops the messages that no consumer has taken. With gone, the queue rejects new ones.
func (q *queue) purge(gone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gone = q.gone || gone
	for _, r := range q.returned {
		q.bytes -= r.bytes()
	}
	for s, at := q.head, q.headAt; s != nil; s, at = s.next, 0 {
		q.bytes -= run{slots: s.slots[at:]}.bytes()
	}
	for _, l := range q.later.items {
		q.bytes -= len(l.what)
	}
	s := newSegment(q.size)
	q.head, q.tail, q.headAt, q.later = s, s, 0, later[[]byte]{}
	q.returned, q.ready, q.delayed = nil, 0, false
	q.unblock()
}
