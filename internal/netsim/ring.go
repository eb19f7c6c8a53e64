package netsim

// ring is a queue of bytes whose memory grows up to a limit. Its content, and the memory that reserve returned, are
// not moved until the next put or reserve.
type ring struct {
	memory  []byte
	head, n int
	limit   int
}

const smallestRing = 16 << 10

func (r *ring) free() int { return r.limit - r.n }

// put appends as much of b as the limit permits, and returns the number of bytes.
func (r *ring) put(b []byte) int {
	b = b[:min(len(b), r.free())]
	if r.n+len(b) > len(r.memory) {
		r.grow(r.n + len(b))
	}
	for left := b; len(left) > 0; {
		k := copy(r.space(), left)
		r.n += k
		left = left[k:]
	}
	return len(b)
}

// reserve returns memory for the next bytes. Call keep afterwards with their number. It is empty only at the limit.
func (r *ring) reserve() []byte {
	if 2*r.n >= len(r.memory) && len(r.memory) < r.limit {
		r.grow(max(2*r.n, smallestRing))
	}
	return r.space()
}

func (r *ring) keep(n int) { r.n += n }

// first returns a view of the first bytes, at most n, as far as they are contiguous.
func (r *ring) first(n int) []byte {
	n = min(n, r.n, len(r.memory)-r.head)
	return r.memory[r.head : r.head+n]
}

// copy fills b from the first bytes. There must be as many.
func (r *ring) copy(b []byte) {
	k := copy(b, r.first(len(b)))
	copy(b[k:], r.memory)
}

// drop removes the first n bytes. There must be as many.
func (r *ring) drop(n int) {
	r.n -= n
	if r.head += n; r.head >= len(r.memory) {
		r.head -= len(r.memory)
	}
}

// space returns the contiguous free memory after the last byte.
func (r *ring) space() []byte {
	if r.n == 0 {
		r.head = 0
	}
	tail := r.head + r.n
	if tail >= len(r.memory) {
		return r.memory[tail-len(r.memory) : r.head]
	}
	return r.memory[tail:]
}

func (r *ring) grow(need int) {
	size := max(smallestRing, 2*len(r.memory))
	for size < need {
		size *= 2
	}
	memory := make([]byte, min(size, r.limit))
	r.copy(memory[:r.n])
	r.memory, r.head = memory, 0
}

// marks are the arrival times of the bytes in a ring, in order.
type marks struct {
	list  []mark
	head  int
	apart bool // additions are never merged
}

type mark struct {
	from, at int64 // when the first and the last of its bytes arrive
	n        int
	known    bool // its delay was recorded, or is not caused by the network
}

// merged is the maximum distance of arrivals, in ns, that are merged at the later time, unless apart is set. It limits
// the memory for many small pieces.
const merged = 5_000

func (m *marks) empty() bool { return m.head == len(m.list) }

// first returns the mark that arrives first. There must be one.
func (m *marks) first() *mark { return &m.list[m.head] }

func (m *marks) add(at int64, n int) {
	if m.empty() {
		m.list, m.head = m.list[:0], 0
	} else if last := &m.list[len(m.list)-1]; !m.apart && at-last.from <= merged {
		last.at = at
		last.n += n
		return
	}
	if len(m.list) == cap(m.list) && m.head > len(m.list)/2 {
		m.list = m.list[:copy(m.list, m.list[m.head:])]
		m.head = 0
	}
	m.list = append(m.list, mark{from: at, at: at, n: n})
}

// arrived returns the number of bytes that have arrived, at most limit. With apart it counts only the first mark.
func (m *marks) arrived(now int64, limit int) int {
	n := 0
	for _, k := range m.list[m.head:] {
		if k.at > now || n >= limit || m.apart && n > 0 {
			break
		}
		n += k.n
	}
	return min(n, limit)
}

// drop removes the first n bytes.
func (m *marks) drop(n int) {
	for n > 0 {
		k := m.first()
		part := min(n, k.n)
		k.n -= part
		n -= part
		if k.n == 0 {
			m.head++
		}
	}
}
