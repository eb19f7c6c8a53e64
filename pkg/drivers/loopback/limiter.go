package loopback

import (
	"sync"
	"time"
)

// catchUp is how far behind its schedule a limiter may fall, by late timers, and still make up for it.
const catchUp = 100 * time.Millisecond

// limiter gives out the moments at which messages may be accepted: the n-th of a second is due n/rate after it
// began. So timers that wake late cost no throughput, and no second has more than rate plus what was behind.
type limiter struct {
	mu     sync.Mutex
	rate   int64
	second time.Time
	n      int64
}

// limiter returns the one limiter of the broker for this rate.
func (b *broker) limiter(rate int64) *limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.limiters[rate]
	if l == nil {
		l = &limiter{rate: rate}
		b.limiters[rate] = l
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
	if now.Sub(due) > catchUp {
		l.second, l.n, due = now, 0, now
	}
	l.n++
	return due.Sub(now)
}
