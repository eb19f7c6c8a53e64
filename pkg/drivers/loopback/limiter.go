package loopback

import (
	"cmp"
	"sync"
	"time"
)

// limiter allots the times at which messages are accepted: message n of each second is due n/rate after the second
// began. A message that comes after its time, because of a late timer or an idle publisher, is accepted immediately. At
// most burst such times can be caught up; earlier ones are lost. So any duration t has at most rate·t + burst + 1
// messages. Timers that wake up late by at most burst/rate cost no throughput.
type limiter struct {
	mu      sync.Mutex
	rate    int64
	catchUp time.Duration
	second  time.Time
	n       int64
}

// limiter returns the broker's limiter for this rate and burst. All publishers with these options share it.
func (b *broker) limiter(rate, burst int64) *limiter {
	burst = cmp.Or(burst, max(1, rate/100))
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

// reserve allots the next time and returns the wait until then. A result ≤ 0 means no wait.
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
