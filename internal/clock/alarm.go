package clock

import (
	"sync"
	"time"
)

// Alarm sends a token to a channel at a chosen time. It is for goroutines that wait for a time and for other events:
// those events can send their tokens to the same channel. Methods must be called by one goroutine at a time.
type Alarm struct {
	c     chan struct{}
	at    int64
	place int  // position in the timekeeper's heap, from 1; 0: not in it
	kept  bool // last set with the timekeeper, which may still hold it
	plain plainTimer
}

// NewAlarm returns an alarm that sends to c, which must have a capacity of one. A send to a full c is dropped. In a
// synctest bubble, c must belong to that bubble.
func NewAlarm(c chan struct{}) *Alarm { return &Alarm{c: c} }

// Set arms the alarm for the time at, and replaces any earlier time. If at is in the past, the token is sent before Set
// returns. Tokens are never sent early.
func (a *Alarm) Set(at int64) {
	now := Now()
	if now >= at {
		a.Stop()
		a.ring()
		return
	}
	if bubbled() || theKeeper() == nil {
		a.plain.set(a, time.Duration(host(at)-host(now)))
		return
	}
	a.kept = true
	theKeeper().set(a, at)
}

// Stop disarms the alarm. After it returns, no token is sent until the next Set. A token that was sent before stays in
// the channel. An alarm that is no longer used must be stopped.
func (a *Alarm) Stop() {
	if !a.kept {
		a.plain.stop()
		return
	}
	a.kept = false
	theKeeper().remove(a)
}

func (a *Alarm) ring() {
	select {
	case a.c <- struct{}{}:
	default:
	}
}

// plainTimer implements an alarm with a Go timer: in a bubble, and on platforms without a timekeeper.
type plainTimer struct {
	mu    sync.Mutex
	timer *time.Timer // nil: not armed. The callback compares it to detect that it was replaced
}

func (p *plainTimer) set(a *Alarm, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	var armed *time.Timer
	armed = time.AfterFunc(wait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.timer == armed {
			p.timer = nil
			a.ring()
		}
	})
	p.timer = armed
}

func (p *plainTimer) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}
