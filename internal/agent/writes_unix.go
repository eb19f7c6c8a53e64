//go:build unix

package agent

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// blockable is a TCP connection that reports how long its send buffer was full. It writes like net.TCPConn: it tries,
// and waits when the buffer is full. It reads the clock only when it waits.
type blockable struct {
	*net.TCPConn
	raw     syscall.RawConn
	waiting *drivers.Waiting

	mu      sync.Mutex // guards the fields below, which belong to the current Write
	rest    []byte
	failure error
	blocked bool
	attempt func(fd uintptr) bool // made once, as a closure per Write would allocate
}

func newBlockable(conn *net.TCPConn, waiting *drivers.Waiting) net.Conn {
	raw, err := conn.SyscallConn()
	if err != nil {
		return conn // the connection is closed: its first write fails
	}
	c := &blockable{TCPConn: conn, raw: raw, waiting: waiting}
	c.attempt = c.writeAvailable
	return c
}

// Write writes like net.TCPConn.Write.
func (c *blockable) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest, c.failure, c.blocked = b, nil, false
	err := c.raw.Write(c.attempt)
	if c.blocked {
		c.waiting.End()
	}
	n := len(b) - len(c.rest)
	c.rest = nil
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		op.Op = "write"
	} else if err == nil && c.failure != nil {
		err = &net.OpError{Op: "write", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: c.failure}
	}
	return n, err
}

// writeAvailable writes until the buffer is full. It returns false if bytes remain.
func (c *blockable) writeAvailable(fd uintptr) bool {
	const atOnce = 1 << 30
	for len(c.rest) > 0 {
		n, err := syscall.Write(int(fd), c.rest[:min(len(c.rest), atOnce)])
		if n > 0 {
			c.rest = c.rest[n:]
		}
		switch {
		case err == nil && n > 0, errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			if !c.blocked {
				c.blocked = true
				c.waiting.Begin()
			}
			return false
		case err == nil:
			c.failure = io.ErrUnexpectedEOF
			return true
		default:
			c.failure = os.NewSyscallError("write", err)
			return true
		}
	}
	return true
}
