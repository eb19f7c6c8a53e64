package clock

import (
	"sync"
	"time"
)

// Alarm puts a token into a channel at a chosen point in time. It is for those who wait for a point in time
// and for something else as well: whatever else happens can send its token to the same channel. The methods
// are for one goroutine at a time.
type Alarm struct {
	c     chan struct{}
	at    int64
	place int  // in the timekeeper's heap, counted from 1; 0: not in it
	kept  bool // last set with the timekeeper, so that may hold it
	plain plainTimer
}

// NewAlarm returns an alarm that sends to c, which must have room for one token. A send to a full c is
// dropped: the token in it says as much. In a synctest bubble, c must be of that bubble.
func NewAlarm(c chan struct{}) *Alarm { return &Alarm{c: c} }

// Set arms the alarm for the time at, in place of what it was armed for. For a time in the past the token is
// sent before Set returns. Tokens never come early.
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

// Stop disarms the alarm: once it returns, no token is sent until the next Set. One sent before stays in the
// channel. An alarm that is not wanted any more must be stopped.
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

// plainTimer is a timer of Go under an alarm: in a bubble, and on platforms without a timekeeper.
type plainTimer struct {
	mu    sync.Mutex
	timer *time.Timer // nil: not armed; it also tells a timer that fires from one that was replaced meanwhile
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
