package loopback

const (
	segmentSlots = 256
	segmentBytes = 32 << 10
	freeSegments = 16      // segments kept for reuse, for each queue
	maxBytesKept = 1 << 20 // a segment is larger only for a body that is
	yieldCount   = segmentSlots
	yieldBytes   = 64 << 10
)

// slot is one message in a segment: where its body is, and when it may be delivered (0: at once).
type slot struct {
	at, size int
	ready    int64
}

// segment is a piece of a queue: bodies one after another in one buffer that never moves, since deliveries
// point into it. It is used again when all of its messages are released.
type segment struct {
	buf      []byte
	slots    []slot
	released int
	next     *segment
}

// run is a stretch of messages of one segment that a consumer has taken. Slices are taken under the queue's
// lock; what they show does not change until the run is released.
type run struct {
	seg         *segment
	buf         []byte
	slots       []slot
	redelivered bool
}

// bytes sums the bodies: they lie one after another.
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

// readyOf counts the leading slots that are ready now, and says when the first other one will be.
func readyOf(slots []slot, now int64) (n int, next int64) {
	for i := range slots {
		if slots[i].ready > now {
			return i, slots[i].ready
		}
	}
	return len(slots), 0
}

// part is a stretch of a run.
func (r run) part(from, to int) run {
	r.slots = r.slots[from:to]
	return r
}

// extend appends r, as a longer last run where it goes on with it.
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
