package loopback

import (
	"sync"
	"time"
)

// limiter gives out the moments at which messages may be accepted: the n-th of a second is due n/rate after it began. A
// message that comes late for its moment, by a timer or because nobody had anything to send, goes at once; burst
// moments may be made up for like that, and what is beyond is lost. So any time t sees at most rate·t + burst + 1
// messages, and timers that wake late cost no throughput up to burst/rate.
type limiter struct {
	mu      sync.Mutex
	rate    int64
	catchUp time.Duration
	second  time.Time
	n       int64
}

// limiter returns the one limiter of the broker for this rate and burst.
func (b *broker) limiter(rate, burst int64) *limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := [2]int64{rate, burst}
	l := b.limiters[key]
	if l == nil {
		l = &limiter{rate: rate, catchUp: time.Duration(burst * int64(time.Second) / rate)}
		b.limiters[key] = l
	}
	return l
}

// reserve takes the next moment and returns how long it is until then; ≤ 0 is now.
func (l *limiter) reserve(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == l.rate {
		l.second, l.n = l.second.Add(time.Second), 0
	}
	due := l.second.Add(time.Duration(l.n * int64(time.Second) / l.rate))
	switch {
	case l.second.IsZero():
		l.second, due = now, now
	case now.Sub(due) > l.catchUp:
		l.second, l.n = now.Add(-l.catchUp), 0
		due = l.second
	}
	l.n++
	return due.Sub(now)
}
