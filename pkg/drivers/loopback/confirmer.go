package loopback

import (
	"fmt"
	"sync"
	"time"

	"lockstep/pkg/drivers"
)

// confirmer gives confirms after a delay, in order, from one goroutine.
type confirmer struct {
	delay     time.Duration
	onConfirm func(token uint64, err error)

	mu      sync.Mutex
	pending []pending
	closed  bool // takes no more
	changed chan struct{}
	broken  chan struct{} // closed: what is pending fails
	once    sync.Once
	done    chan struct{}
}

type pending struct {
	token uint64
	err   error
	due   time.Time
}

func newConfirmer(delay time.Duration, onConfirm func(uint64, error)) *confirmer {
	return &confirmer{delay: delay, onConfirm: onConfirm, changed: make(chan struct{}, 1), broken: make(chan struct{}), done: make(chan struct{})}
}

// add promises a confirm; false if the confirmer is closed.
func (c *confirmer) add(token uint64, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.pending = append(c.pending, pending{token: token, err: err, due: time.Now().Add(c.delay)})
	if len(c.pending) == 1 {
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

// take removes what is pending, in the order in which it was added.
func (c *confirmer) take() (all []pending, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, c.pending = c.pending, nil
	return all, c.closed
}

func (c *confirmer) loop() {
	defer close(c.done)
	for {
		all, closed := c.take()
		for _, p := range all {
			c.settle(p)
		}
		if len(all) > 0 {
			continue
		}
		if closed {
			return
		}
		<-c.changed
	}
}

// settle confirms one message when it is due, or fails it if the link breaks before.
func (c *confirmer) settle(p pending) {
	if wait := time.Until(p.due); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.broken:
		}
	}
	select {
	case <-c.broken:
		p.err = fmt.Errorf("loopback link broke before the confirm: %w", drivers.ErrClosed)
	default:
	}
	c.onConfirm(p.token, p.err)
}

// fail makes everything outstanding fail, without waiting for it.
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

// finish waits for the confirms outstanding; those that are not there within most fail.
func (c *confirmer) finish(most time.Duration) {
	c.close()
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
		c.fail()
		<-c.done
	}
}
