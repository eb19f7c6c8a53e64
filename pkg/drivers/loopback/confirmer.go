package loopback

import (
	"fmt"
	"sync"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// confirmer calls onConfirms when confirms are due, from one goroutine.
type confirmer struct {
	now        func() int64
	onConfirms func(tokens []uint64, err error)
	tokens     []uint64 // messages that take removed; used by the goroutine
	err        error    // their result

	mu      sync.Mutex
	pending later[pending]
	closed  bool // add returns false
	changed chan struct{}
	broken  chan struct{} // closed when the link breaks: pending confirms then fail
	once    sync.Once
	done    chan struct{}
}

type pending struct {
	token uint64
	err   error
}

func newConfirmer(now func() int64, onConfirms func([]uint64, error)) *confirmer {
	return &confirmer{now: now, onConfirms: onConfirms, changed: make(chan struct{}, 1), broken: make(chan struct{}),
		done: make(chan struct{})}
}

// add schedules exactly one confirm at the time due. It returns false, and schedules none, if the confirmer is closed.
func (c *confirmer) add(token uint64, err error, due int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if c.pending.add(due, pending{token, err}) {
		c.signal()
	}
	return true
}

func (c *confirmer) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *confirmer) isBroken() bool {
	select {
	case <-c.broken:
		return true
	default:
		return false
	}
}

// take moves the confirms to tokens that are due and have the same result. All confirms fail if the link is broken. If
// none is due, it returns how long to wait; -1 means until a change.
func (c *confirmer) take() (wait time.Duration, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	due, has := c.pending.next()
	if !has {
		return -1, c.closed
	}
	broken, now := c.isBroken(), c.now()
	if due > now && !broken {
		return time.Duration(due - now), false
	}
	c.tokens, c.err = c.tokens[:0], c.pending.items[0].what.err
	if broken {
		c.err = fmt.Errorf("loopback link broke before the confirm: %w", drivers.ErrClosed)
	}
	for has && (broken || due <= now && c.pending.items[0].what.err == c.err) {
		c.tokens = append(c.tokens, c.pending.take().token)
		due, has = c.pending.next()
	}
	return 0, false
}

func (c *confirmer) loop() {
	defer close(c.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait, closed := c.take()
		switch {
		case closed:
			return
		case wait == 0:
			c.onConfirms(c.tokens, c.err)
			continue
		case wait > 0:
			timer.Reset(wait)
		default:
			timer.Stop()
		}
		broken := c.broken
		if c.isBroken() {
			broken = nil // the channel stays closed, and nothing is pending: do not spin
		}
		select {
		case <-timer.C:
		case <-c.changed:
		case <-broken:
		}
	}
}

// fail makes all outstanding confirms fail. It does not wait for the calls.
func (c *confirmer) fail() {
	c.once.Do(func() { close(c.broken) })
	c.close()
}

func (c *confirmer) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.signal()
}

// finish waits for the outstanding confirms. Those that are still pending after limit fail.
func (c *confirmer) finish(limit time.Duration) {
	c.close()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
		c.fail()
		<-c.done
	}
}
