package engine

import "sync/atomic"

// slot is one message in flight: its buffer, which it may have in common with the others, and its times. The publisher
// owns it until Publish, the confirm side from then until it is released.
type slot struct {
	body     []byte
	sequence uint64
	intended int64
	send     int64
	free     int64 // when it was released, ns of the task's epoch
	out      bool  // in flight
}

// inflight holds the slots of one publisher. Tokens are slot numbers, so confirms may come in any order.
// One goroutine takes, one at a time releases; they share no lock.
type inflight struct {
	slots []slot
	local []uint32 // free slots known to the publisher, used last in first out to stay in cache
	used  int      // taken and not seen released, by the publisher

	firstFree, lastFree int64 // when the first and the last of those last collected were released

	ring []uint32 // released slots on their way back
	mask uint64
	head uint64        // next to read, publisher's
	tail atomic.Uint64 // next to write, confirm side's

	want     atomic.Uint64 // the tail at which the publisher wants to be woken
	released chan struct{} // one token: "look again"
}

// never is a tail that is not reached.
const never = ^uint64(0)

func newInflight(n int, body func() []byte) *inflight {
	size := 1
	for size < n {
		size *= 2
	}
	f := &inflight{slots: make([]slot, n), local: make([]uint32, n), ring: make([]uint32, size), mask: uint64(size - 1),
		released: make(chan struct{}, 1)}
	f.want.Store(never)
	for i := range f.slots {
		f.slots[i].body = body()
		f.local[n-1-i] = uint32(i)
	}
	return f
}

// take returns a free slot, or false when all are in flight.
func (f *inflight) take() (uint32, bool) {
	if len(f.local) == 0 && f.collect() == 0 {
		return 0, false
	}
	i := f.local[len(f.local)-1]
	f.local = f.local[:len(f.local)-1]
	f.used++
	return i, true
}

// undo gives back a slot whose message was not accepted.
func (f *inflight) undo(i uint32) {
	f.slots[i].out = false
	f.local = append(f.local, i)
	f.used--
}

// collect moves released slots to the publisher's own list and returns how many.
func (f *inflight) collect() int {
	tail, n := f.tail.Load(), 0
	if f.head == tail {
		return 0
	}
	f.firstFree, f.lastFree = f.slots[f.ring[f.head&f.mask]].free, f.slots[f.ring[(tail-1)&f.mask]].free
	for ; f.head != tail; f.head++ {
		f.local = append(f.local, f.ring[f.head&f.mask])
		n++
	}
	f.used -= n
	return n
}

// outstanding is how many messages are in flight, as far as the publisher has seen.
func (f *inflight) outstanding() int {
	f.collect()
	return f.used
}

// find is the confirm side's: it returns nil for a token that is not in flight, which is a fault of the driver.
func (f *inflight) find(token uint64) *slot {
	if token >= uint64(len(f.slots)) || !f.slots[token].out {
		return nil
	}
	return &f.slots[token]
}

// release is the confirm side's, for a token that find knows.
func (f *inflight) release(token uint64, now int64) {
	s := &f.slots[token]
	s.out, s.free = false, now
	tail := f.tail.Load()
	f.ring[tail&f.mask] = uint32(token)
	f.tail.Store(tail + 1)
	if tail+1 >= f.want.Load() {
		f.wake()
	}
}

// await asks for a token in released once n more slots were released, counted from what was collected; it returns false
// when they are already. The publisher calls stopWaiting when it no longer waits.
func (f *inflight) await(n int) bool {
	target := f.head + uint64(n)
	f.want.Store(target)
	if f.tail.Load() >= target {
		f.stopWaiting()
		return false
	}
	return true
}

func (f *inflight) stopWaiting() { f.want.Store(never) }

// wake makes a waiting publisher look again.
func (f *inflight) wake() {
	select {
	case f.released <- struct{}{}:
	default:
	}
}
