package netsim

import (
	"math"
	"net"
	"os"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/record"
)

// line is one direction of a connection. Bytes written at its near end arrive, delayed, at its far end.
type line struct {
	mu        sync.Mutex
	path      *path
	bytes     ring
	marks     marks // arrival times of all bytes in the ring
	end       error // arrives after the bytes; nil: not ended
	endAt     int64
	broken    error // nothing arrives any more; the near end gets the error at brokenAt
	brokenAt  int64
	held      bool         // a fault holds all bytes
	delays    *record.Hist // delays of delivered pieces; nil: not recorded
	near, far side

	blocked, unblocked func() // called when write begins and ends to wait for space
}

// side is one end of a line. The line's mutex guards its fields, except turn.
type side struct {
	turn     chan struct{} // a token during a call; waits for a mutex do not block durably in a bubble
	wake     chan struct{}
	alarm    *clock.Alarm
	waiting  bool
	deadline int64 // of calls; never: no deadline
	closed   error // error of calls; nil: open
}

const never = math.MaxInt64

func newLine(p *path, buffer int) *line {
	l := &line{path: p, bytes: ring{limit: buffer}, blocked: func() {}, unblocked: func() {}}
	for _, s := range []*side{&l.near, &l.far} {
		s.turn, s.wake, s.deadline = make(chan struct{}, 1), make(chan struct{}, 1), never
		s.alarm = clock.NewAlarm(s.wake)
	}
	return l
}

// enter waits for the side's turn and locks the line.
func (l *line) enter(s *side) {
	s.turn <- struct{}{}
	l.mu.Lock()
}

func (l *line) leave(s *side) {
	l.mu.Unlock()
	<-s.turn
}

// wait unlocks the line until the time at, the side's deadline or a nudge. It may return spuriously.
func (l *line) wait(s *side, at int64) {
	s.waiting = true
	if at = min(at, s.deadline); at != never {
		s.alarm.Set(at)
	}
	l.mu.Unlock()
	<-s.wake
	l.mu.Lock()
	s.waiting = false
	s.alarm.Stop()
}

// nudge makes a waiting side check again at the time at, instead of its earlier time.
func (l *line) nudge(s *side, at int64) {
	if s.waiting {
		s.alarm.Set(min(at, s.deadline))
	}
}

// refusal returns the error of a call at the side: closed, or deadline exceeded.
func (s *side) refusal(now int64) error {
	if s.closed != nil {
		return s.closed
	}
	if now >= s.deadline {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// write adds b to the line. It waits while the line is full.
func (l *line) write(b []byte) (int, error) {
	l.enter(&l.near)
	defer l.leave(&l.near)
	n := 0
	for {
		now := clock.Now()
		if err := l.near.refusal(now); err != nil {
			return n, err
		}
		if l.broken != nil {
			if now >= l.brokenAt {
				return n, l.broken
			}
			return n + len(b), nil // lost, but the near end does not get the error yet
		}
		k := l.bytes.put(b)
		l.stamp(k, now)
		n, b = n+k, b[k:]
		if len(b) == 0 {
			return n, nil
		}
		l.blocked()
		l.wait(&l.near, never)
		l.unblocked()
	}
}

// space waits until the line has space, and returns the free memory. Call fill afterwards with the number of bytes. It
// returns nil if the near end is closed.
func (l *line) space() []byte {
	l.enter(&l.near)
	defer l.leave(&l.near)
	for {
		if l.near.closed != nil {
			return nil
		}
		if b := l.bytes.reserve(); len(b) > 0 {
			return b
		}
		l.wait(&l.near, never)
	}
}

// fill adds the first n bytes of the memory that space returned.
func (l *line) fill(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes.keep(n)
	l.stamp(n, clock.Now())
}

// stamp sets the arrival times of the last n bytes, piece by piece, and wakes the far end for the first of them.
func (l *line) stamp(n int, now int64) {
	idle := l.marks.empty()
	for n > 0 {
		k := n
		if l.path.bandwidth > 0 {
			k = min(n, l.path.piece)
		}
		l.marks.add(l.path.arrival(k, now), k)
		n -= k
	}
	if idle && !l.marks.empty() {
		l.nudge(&l.far, l.marks.first().at)
	}
}

// finish ends the line: end arrives after all bytes.
func (l *line) finish(end error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finishLocked(end)
}

func (l *line) finishLocked(end error) {
	now := clock.Now()
	l.end, l.endAt = end, l.path.arrival(0, now)
	if l.broken != nil {
		l.endAt = now
	}
	if l.marks.empty() {
		l.nudge(&l.far, l.endAt)
	}
}

// shut closes the near end. Calls there fail with closed, and end arrives after all bytes. It returns false if the near
// end was closed with net.ErrClosed before. Otherwise a later call replaces an earlier one.
func (l *line) shut(closed, end error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.near.closed == net.ErrClosed {
		return false
	}
	if l.near.closed != closed {
		l.near.closed = closed
		l.finishLocked(end)
		l.nudge(&l.near, clock.Now())
	}
	return true
}

// abandon closes both ends. Bytes on the line are lost.
func (l *line) abandon(closed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.near.closed, l.far.closed = closed, closed
	l.nudge(&l.near, clock.Now())
	l.nudge(&l.far, clock.Now())
}

// setDeadline makes calls at the side fail from the time t on, including calls in progress. A zero t removes the
// deadline.
func (l *line) setDeadline(s *side, t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.closed == net.ErrClosed {
		return s.closed
	}
	now := clock.Now()
	s.deadline = never
	if !t.IsZero() {
		s.deadline = now
		if left := int64(time.Until(t)); left > 0 && left < never-max(now, 0) { // in a bubble now is negative
			s.deadline = now + left
		} else if left > 0 {
			s.deadline = never
		}
	}
	l.nudge(s, now)
	return nil
}

// arrived returns the number of bytes that have arrived, at most limit.
func (l *line) arrived(now int64, limit int) int {
	if l.held {
		return 0
	}
	return l.marks.arrived(now, limit)
}

// next returns the time of the next event at the far end.
func (l *line) next() int64 {
	switch {
	case l.held:
		return never
	case !l.marks.empty():
		return l.marks.first().at
	case l.end != nil:
		return l.endAt
	}
	return never
}

// read reads bytes that have arrived. It waits for the first, or returns the end of the line, repeatedly.
func (l *line) read(b []byte) (int, error) {
	l.enter(&l.far)
	defer l.leave(&l.far)
	for called := int64(0); ; {
		now := clock.Now()
		if called == 0 {
			called = now
		}
		if err := l.far.refusal(now); err != nil {
			return 0, err
		}
		if len(b) == 0 {
			return 0, nil
		}
		if n := l.arrived(now, len(b)); n > 0 {
			l.handOver(now, called)
			l.bytes.copy(b[:n])
			l.drop(n)
			return n, nil
		}
		if l.next() <= now {
			return 0, l.end
		}
		l.wait(&l.far, l.next())
	}
}

// take returns a view of at most limit bytes that have arrived, valid until giveBack. It waits for the first. After the
// last byte it returns the end of the line, once.
func (l *line) take(limit int) ([]byte, error) {
	l.enter(&l.far)
	defer l.leave(&l.far)
	for called := int64(0); ; {
		now := clock.Now()
		if called == 0 {
			called = now
		}
		if n := l.arrived(now, limit); n > 0 {
			l.handOver(now, called)
			return l.bytes.first(n), nil
		}
		if l.next() <= now {
			end := l.end
			l.end = nil
			return nil, end
		}
		l.wait(&l.far, l.next())
	}
}

// handOver records the delay of the first piece, for a call that began at called. A piece that arrived before the call
// is on time.
func (l *line) handOver(now, called int64) {
	if k := l.marks.first(); l.delays != nil && !k.known {
		k.known = true
		l.delays.Record(now - max(k.at, called))
	}
}

// giveBack ends the use of the bytes from take: the first n were forwarded.
func (l *line) giveBack(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(n)
}

func (l *line) drop(n int) {
	full := l.bytes.free() == 0
	l.bytes.drop(n)
	l.marks.drop(n)
	if full {
		l.nudge(&l.near, clock.Now())
	}
}

// breakOff loses all bytes on the line. The near end gets err after one latency.
func (l *line) breakOff(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := clock.Now()
	l.broken, l.brokenAt = err, now+l.path.latency
	l.drop(l.bytes.n)
	l.endAt = now
	l.nudge(&l.near, now)
}

func (l *line) isClosing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end == errClosing
}

// hold stops the arrival of bytes (on) or lets it continue.
func (l *line) hold(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = on
	for i := range l.marks.list { // their delays are caused by the fault
		l.marks.list[i].known = true
	}
	if at := l.next(); at != never {
		l.nudge(&l.far, at)
	}
}

// change adds to the latency of the round trip. bandwidth 0 restores that of the conditions.
func (l *line) change(latency, bandwidth int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.path.latency += latency / 2
	l.path.limit(bandwidth)
}
