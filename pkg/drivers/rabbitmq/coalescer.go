package rabbitmq

import (
	"net"
	"sync"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// maxCoalesced is the number of buffered bytes above which Write waits.
const maxCoalesced = 64 << 10

// coalescer is a network connection that collects data that is written while the previous write is running, and writes
// it together. Nothing is delayed: an idle connection writes at once. It costs a goroutine switch per write.
type coalescer struct {
	net.Conn
	raw     net.Conn         // the connection below TLS, whose Close does not wait for the peer
	waiting *drivers.Waiting // records when Write waits for the broker; may be nil

	mu      sync.Mutex
	changed sync.Cond // buffer, err or closing has changed
	buffer  []byte    // not written yet
	err     error     // of a write
	closing bool
	ended   chan struct{}
}

// newCoalescer returns a coalescer for conn, which is raw or uses it.
func newCoalescer(conn, raw net.Conn, waiting *drivers.Waiting) *coalescer {
	c := &coalescer{Conn: conn, raw: raw, waiting: waiting, ended: make(chan struct{})}
	c.changed.L = &c.mu
	go c.run()
	return c
}

// Write implements net.Conn. It copies b. Errors of the network are returned by a later call, and end reads, too.
func (c *coalescer) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isFull() {
		c.waiting.Begin()
		for c.isFull() {
			c.changed.Wait()
		}
		c.waiting.End()
	}
	switch {
	case c.err != nil:
		return 0, c.err
	case c.closing:
		return 0, net.ErrClosed
	}
	c.buffer = append(c.buffer, b...)
	c.changed.Broadcast()
	return len(b), nil
}

// Read implements net.Conn. After a failed write it returns the error of the write.
func (c *coalescer) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err != nil {
			err = c.err
		}
	}
	return n, err
}

func (c *coalescer) isFull() bool { return len(c.buffer) >= maxCoalesced && c.err == nil && !c.closing }

// run writes the buffer until the connection is closed or a write fails.
func (c *coalescer) run() {
	defer close(c.ended)
	var writing []byte
	for {
		c.mu.Lock()
		for len(c.buffer) == 0 && !c.closing {
			c.changed.Wait()
		}
		if len(c.buffer) == 0 {
			c.mu.Unlock()
			return
		}
		writing, c.buffer = c.buffer, writing[:0]
		c.changed.Broadcast()
		c.mu.Unlock()
		if _, err := c.Conn.Write(writing); err != nil {
			c.mu.Lock()
			c.err = err
			c.changed.Broadcast()
			c.mu.Unlock()
			_ = c.raw.Close()
			return
		}
	}
}

// Close implements net.Conn. It writes the buffer, if the peer accepts it within a second.
func (c *coalescer) Close() error {
	c.mu.Lock()
	c.closing = true
	c.changed.Broadcast()
	c.mu.Unlock()
	defer time.AfterFunc(time.Second, func() { _ = c.raw.Close() }).Stop()
	<-c.ended
	return c.Conn.Close()
}
