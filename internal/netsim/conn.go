package netsim

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"example.org/lockstep/lockstep/internal/record"
)

// conn is a connection under simulated conditions. Two goroutines move bytes between its lines and the real connection.
// in ends when the real connection ends. out closes the real connection after all bytes written before Close have
// arrived.
type conn struct {
	inner    net.Conn
	in, out  *line
	received chan struct{} // closed when nothing more is read from the real connection
	faults   *Faults       // nil: no faults are injected
	delays   *Delays       // nil: delays are not recorded
}

// halfCloser is a conn whose real connection supports CloseWrite.
type halfCloser struct{ *conn }

// linger is the time that a peer has, after Close, to receive the bytes of each write, and then to close its end.
const linger = 10 * time.Second

// errClosing ends the line out after Close; the real connection is then closed. io.EOF ends it after CloseWrite, and
// ECONNRESET after reset.
var errClosing = errors.New("closing")

func newConn(inner net.Conn, there, back *path, conditions Conditions) net.Conn {
	buffer := conditions.Buffer
	if buffer <= 0 {
		buffer = DefaultBuffer
	}
	c := &conn{inner: inner, out: newLine(there, buffer), in: newLine(back, buffer),
		received: make(chan struct{}), faults: conditions.Faults, delays: conditions.Delays}
	// one write of the client is one write to the peer, so that its cost on the host does not depend on latency
	c.out.marks.apart = true
	if c.faults != nil {
		c.faults.adopt(c)
	}
	c.delays.adopt(c)
	go c.receive()
	go c.send()
	if _, ok := inner.(interface{ CloseWrite() error }); ok {
		return halfCloser{c}
	}
	return c
}

// receive moves bytes from the peer into the line in.
func (c *conn) receive() {
	defer close(c.received)
	for {
		b := c.in.space()
		if b == nil { // closed: see send
			_, _ = io.Copy(io.Discard, c.inner)
			return
		}
		n, err := c.inner.Read(b)
		c.in.fill(n)
		if err != nil {
			c.in.finish(err)
			return
		}
	}
}

// send moves bytes that arrive on the line out to the peer.
func (c *conn) send() {
	const maxBytes = 256 << 10
	for {
		b, end := c.out.take(maxBytes)
		switch {
		case end == errClosing, end == syscall.ECONNRESET:
			// If the real connection is closed with unread bytes, the kernel resets it and loses what it still has to
			// send. So the peer reads the end first, and receive reads until the peer ends, too.
			half, ok := c.inner.(interface{ CloseWrite() error })
			if ok && end == errClosing && half.CloseWrite() == nil {
				_ = c.inner.SetReadDeadline(time.Now().Add(linger))
				<-c.received
			}
			c.inner.Close()
			if c.faults != nil {
				c.faults.leave(c)
			}
			c.delays.leave(c)
			return
		case end != nil:
			if half, ok := c.inner.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		default:
			if c.out.isClosing() {
				_ = c.inner.SetWriteDeadline(time.Now().Add(linger))
			}
			if _, err := c.inner.Write(b); err != nil {
				c.out.breakOff(err)
				continue
			}
			c.out.giveBack(len(b))
		}
	}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	return n, c.wrap("read", err)
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.out.write(b)
	return n, c.wrap("write", err)
}

// OnBlocked sets functions that are called when a Write begins and ends to wait for space. Call it before the first
// Write.
func (c *conn) OnBlocked(begin, end func()) { c.out.blocked, c.out.unblocked = begin, end }

// Close ends all calls. It delivers the written bytes and then closes the real connection in the background.
func (c *conn) Close() error {
	if !c.out.shut(net.ErrClosed, errClosing) {
		return c.wrap("close", net.ErrClosed)
	}
	c.in.abandon(net.ErrClosed)
	_ = c.inner.SetWriteDeadline(time.Now().Add(linger)) // for a write that may be blocked now
	return nil
}

// CloseWrite delivers the written bytes, after which the peer reads the end.
func (c halfCloser) CloseWrite() error {
	if !c.out.shut(syscall.EPIPE, io.EOF) {
		return c.wrap("close", net.ErrClosed)
	}
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.inner.LocalAddr() }
func (c *conn) RemoteAddr() net.Addr { return c.inner.RemoteAddr() }

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	return c.wrap("set", c.in.setDeadline(&c.in.far, t))
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.wrap("set", c.out.setDeadline(&c.out.near, t))
}

// wrap converts errors of this package to the form of package net. io.EOF and errors of the real connection are not
// changed.
func (c *conn) wrap(op string, err error) error {
	var of *net.OpError
	if err == nil || err == io.EOF || errors.As(err, &of) {
		return err
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

func (c *conn) takeDelays(into *record.Hist) {
	for _, l := range []*line{c.in, c.out} {
		l.mu.Lock()
		into.Merge(l.delays)
		l.delays.Reset()
		l.mu.Unlock()
	}
}

// reset breaks the connection at both ends.
func (c *conn) reset() {
	// send closes the real connection as soon as out is shut: its peer must then read an error, not an orderly end
	discard(c.inner)
	c.out.shut(syscall.ECONNRESET, syscall.ECONNRESET) // before the connection ends, whose errors would be others
	c.in.abandon(syscall.ECONNRESET)
	c.inner.Close()
}
