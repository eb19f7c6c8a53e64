package engine

import "sync/atomic"

// slot is one message in flight: its buffer and its times. Slots may share one buffer. The publisher owns the slot
// until Publish is called. The confirm side owns it from then until release.
type slot struct {
	body     []byte
	sequence uint64
	intended int64
	send     int64
	free     int64 // when it was released, ns since T0
	out      bool  // in flight
	key      uint32
}

// inflight holds the slots of one publisher. Tokens are slot numbers, so confirms may come in any order. One goroutine
// takes slots (the publisher). Calls of find, free and release (the confirm side) are serialised. The two sides share
// no lock.
type inflight struct {
	slots []slot
	local []uint32 // the publisher's free slots; last in, first out, to stay in the processor's cache
	used  int      // slots that the publisher took and has not collected again

	firstFree, lastFree int64 // release times of the first and the last slot of the last collect

	ring  []uint32 // free slots that the publisher has not collected
	mask  uint64
	head  uint64        // next to read; used by the publisher
	tail  atomic.Uint64 // end of the released slots; written by the confirm side
	freed uint64        // next to write; used by the confirm side

	want     atomic.Uint64 // value of tail at which the publisher is to be woken
	released chan struct{} // holds one token when the publisher is to check again
}

// never is a value that tail does not reach.
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

// take returns a free slot, or false if all are in flight.
func (f *inflight) take() (uint32, bool) {
	if len(f.local) == 0 && f.collect() == 0 {
		return 0, false
	}
	i := f.local[len(f.local)-1]
	f.local = f.local[:len(f.local)-1]
	f.used++
	return i, true
}

// undo returns a slot whose message the driver did not accept.
func (f *inflight) undo(i uint32) {
	f.slots[i].out = false
	f.local = append(f.local, i)
	f.used--
}

// collect moves released slots to the publisher's free list, and returns their number.
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

// outstanding returns the number of messages in flight.
func (f *inflight) outstanding() int {
	f.collect()
	return f.used
}

// find returns the slot of a token. It returns nil if the token is not in flight, which is a bug of the driver. Called
// by the confirm side.
func (f *inflight) find(token uint64) *slot {
	if token >= uint64(len(f.slots)) || !f.slots[token].out {
		return nil
	}
	return &f.slots[token]
}

// free frees the slot of a token that find returned. The publisher cannot take it before release. Called by the confirm
// side.
func (f *inflight) free(token uint64, now int64) {
	s := &f.slots[token]
	s.out, s.free = false, now
	f.ring[f.freed&f.mask] = uint32(token)
	f.freed++
}

// release passes the slots to the publisher that were freed since the last call. Called by the confirm side.
func (f *inflight) release() {
	f.tail.Store(f.freed)
	if f.freed >= f.want.Load() {
		f.wake()
	}
}

// await arranges a token in released after n more slots were released since the last collect. It returns false if they
// already were. The publisher calls stopWaiting when it no longer waits.
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

// wake puts a token into released, unless there is one.
func (f *inflight) wake() {
	select {
	case f.released <- struct{}{}:
	default:
	}
}
