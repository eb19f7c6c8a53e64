package loopback

const (
	segmentSlots = 256
	segmentBytes = 32 << 10
	freeSegments = 16      // maximum number of free segments per queue
	maxBytesKept = 1 << 20 // only a segment for a larger body has more bytes
	yieldCount   = segmentSlots
	yieldBytes   = 64 << 10
)

// slot is one message in a segment: the position of its body, and when it may be delivered (0: immediately).
type slot struct {
	at, size int
	ready    int64
}

// segment is a part of a queue. Its bodies lie one after another in one buffer, which never moves, because deliveries
// point into it. It can be reused when all of its messages are released.
type segment struct {
	buf      []byte
	slots    []slot
	released int
	next     *segment
}

// run is a sequence of consecutive messages of one segment that a consumer has taken. It is created under the queue's
// lock. The data that it refers to does not change until the run is released.
type run struct {
	seg         *segment
	buf         []byte
	slots       []slot
	redelivered bool
}

// bytes returns the total size of the bodies, which lie one after another.
func (r run) bytes() int {
	if len(r.slots) == 0 {
		return 0
	}
	last := r.slots[len(r.slots)-1]
	return last.at + last.size - r.slots[0].at
}

func newSegment(size int) *segment {
	return &segment{buf: make([]byte, 0, size), slots: make([]slot, 0, segmentSlots)}
}

// readyOf counts the leading slots that are ready now. next is the ready time of the first other slot, or 0.
func readyOf(slots []slot, now int64) (n int, next int64) {
	for i := range slots {
		if slots[i].ready > now {
			return i, slots[i].ready
		}
	}
	return len(slots), 0
}

// part returns the messages from ≤ i < to of a run.
func (r run) part(from, to int) run {
	r.slots = r.slots[from:to]
	return r
}

// extend appends r to runs. It extends the last run instead if r continues it in the same segment.
func extend(runs []run, r run) []run {
	if n := len(runs); n > 0 {
		last := &runs[n-1]
		if l := len(last.slots); last.seg == r.seg && cap(last.slots) > l && &last.slots[:l+1][l] == &r.slots[0] {
			last.slots = last.slots[:l+len(r.slots)]
			return runs
		}
	}
	return append(runs, r)
}
