package chaos

import (
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// link is a TCP relay between one process and a server of the control plane, which can simulate network failures.
// Connections survive a stall: bytes that are sent meanwhile arrive afterwards. A cut breaks them.
type link struct {
	row      *row
	target   string
	listener net.Listener

	mu       sync.Mutex
	conns    map[net.Conn]bool
	stalled  chan struct{} // closed when the stall ends; nil: no stall
	refusing bool          // new connections are refused
}

func (r *row) newLink(port int) *link {
	r.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	l := &link{row: r, target: "127.0.0.1:" + strconv.Itoa(port), listener: listener, conns: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { l.relay(near) })
		}
	})
	r.t.Cleanup(func() {
		listener.Close()
		l.restore()
		l.cut()
		running.Wait()
	})
	return l
}

func (l *link) url() string { return "nats://" + l.listener.Addr().String() }

// relay copies in both directions until one side is closed.
func (l *link) relay(near net.Conn) {
	defer near.Close()
	far, err := net.DialTimeout("tcp", l.target, time.Second)
	if err != nil || !l.register(near, far) {
		return
	}
	defer far.Close()
	var both sync.WaitGroup
	for _, direction := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			l.copy(direction[0], direction[1])
			near.Close()
			far.Close()
		})
	}
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, near)
	delete(l.conns, far)
}

// register registers a pair of connections. It returns false while the link is down.
func (l *link) register(near, far net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusing {
		far.Close()
		return false
	}
	l.conns[near], l.conns[far] = true, true
	return true
}

func (l *link) copy(from io.Reader, to io.Writer) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if stalled := l.currentStall(); stalled != nil {
			<-stalled
		}
		if _, failed := to.Write(buf[:n]); failed != nil || err != nil {
			return
		}
	}
}

func (l *link) currentStall() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stalled
}

// stall stops the transfer of bytes. Connections stay open.
func (l *link) stall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stalled == nil {
		l.stalled = make(chan struct{})
	}
}

// cut breaks all connections and refuses new ones.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusing = true
	for c := range l.conns {
		_ = c.Close() // it may be closed already
	}
}

// restore ends a stall or a cut.
func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusing = false
	if l.stalled != nil {
		close(l.stalled)
		l.stalled = nil
	}
}
