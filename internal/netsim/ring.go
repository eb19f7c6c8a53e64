package netsim

// ring holds bytes in order, in memory that grows with them up to a limit. The part of it that holds bytes,
// and the part that room gave away, stay where they are until the next put or room.
type ring struct {
	memory  []byte
	head, n int
	limit   int
}

const smallestRing = 16 << 10

func (r *ring) free() int { return r.limit - r.n }

// put appends as much of b as the limit has room for and says how much that was.
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

// room returns memory to put the next bytes into; keep then says how many. It is empty at the limit only.
func (r *ring) room() []byte {
	if 2*r.n >= len(r.memory) && len(r.memory) < r.limit {
		r.grow(max(2*r.n, smallestRing))
	}
	return r.space()
}

func (r *ring) keep(n int) { r.n += n }

// first returns the first bytes, n at most, as far as they lie in one piece.
func (r *ring) first(n int) []byte {
	n = min(n, r.n, len(r.memory)-r.head)
	return r.memory[r.head : r.head+n]
}

// copy fills b from the first bytes; there must be as many.
func (r *ring) copy(b []byte) {
	k := copy(b, r.first(len(b)))
	copy(b[k:], r.memory)
}

// drop forgets the first n bytes, which must be there.
func (r *ring) drop(n int) {
	r.n -= n
	if r.head += n; r.head >= len(r.memory) {
		r.head -= len(r.memory)
	}
}

// space is the unused memory behind the last byte, as far as it lies in one piece.
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

// marks say when the bytes of a ring arrive: so many until then, so many more until then.
type marks struct {
	list  []mark
	head  int
	apart bool // each addition stays a piece of its own
}

type mark struct {
	from, at int64 // when the first and the last of its bytes arrive
	n        int
	known    bool // its delay is recorded, or not of the network
}

// merged is how near arrivals may be, in ns, to count as one at the later of their times, on the way from the broker.
// It bounds the memory that many small pieces take.
const merged = 5_000

func (m *marks) empty() bool { return m.head == len(m.list) }

// first is the mark that arrives first; there must be one.
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

// arrived says how many bytes have arrived, counting no further than to most; of pieces that stay apart, those of the
// first.
func (m *marks) arrived(now int64, most int) int {
	n := 0
	for _, k := range m.list[m.head:] {
		if k.at > now || n >= most || m.apart && n > 0 {
			break
		}
		n += k.n
	}
	return min(n, most)
}

// drop forgets the first n bytes.
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
