package artemis

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/pkg/drivers"
)

// rig is a session with a topology, both gone at the end of the test.
type rig struct {
	t        testing.TB
	session  *session
	topology drivers.Topology
	events   chan string
	stall    chan struct{} // of connections made from now on: closed, nothing passes any more
}

// dial makes connections that can be stalled.
func (r *rig) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &stallable{Conn: conn, stall: r.stall, closed: make(chan struct{})}, nil
}

// stallable is a connection that blocks once it is stalled, until it is closed.
type stallable struct {
	net.Conn
	stall  chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (s *stallable) wait() error {
	select {
	case <-s.stall:
		<-s.closed
		return net.ErrClosed
	default:
		return nil
	}
}

func (s *stallable) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if stalled := s.wait(); stalled != nil {
		return 0, stalled
	}
	return n, err
}

func (s *stallable) Write(p []byte) (int, error) {
	if err := s.wait(); err != nil {
		return 0, err
	}
	return s.Conn.Write(p)
}

func (s *stallable) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

var rigs atomic.Int64

func newRig(t testing.TB, options json.RawMessage) *rig {
	t.Helper()
	r := &rig{t: t, events: make(chan string, 100)}
	r.topology = drivers.Topology{
		Name:   fmt.Sprintf("test-%d-%d", time.Now().UnixNano(), rigs.Add(1)),
		Queues: 1, Subscriptions: 1, Bindings: 1, QueueNode: drivers.AnyNode, Persistent: true,
	}
	ctx := r.context()
	opened, err := driver{}.Open(ctx, options, drivers.Env{
		Dial:  r.dial,
		Log:   slog.New(slog.DiscardHandler),
		Event: func(kind drivers.EventKind, detail string) { r.events <- detail },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.session = opened.(*session)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := r.session.Teardown(ctx, r.topology); err != nil {
			t.Error(err)
		}
		if err := r.session.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.session.Setup(ctx, r.topology); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	r.t.Cleanup(cancel)
	return ctx
}

// publisher connects one that notes what it hears.
func (r *rig) publisher(mode drivers.Mode) (drivers.Publisher, *diary) {
	r.t.Helper()
	n := &diary{}
	p, err := r.session.Publisher(r.context(), drivers.PublisherSpec{
		Topology: r.topology, Mode: mode, Window: 1000, Persistent: true, Node: drivers.AnyNode, Connection: drivers.Exclusive,
		OnConfirm: n.confirm, OnClosed: n.close,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = p.Close() })
	return p, n
}

// consumer connects one that notes what it hears, and whose handler waits for gate if there is one.
func (r *rig) consumer(prefetch int, gate chan struct{}) (drivers.Consumer, *diary) {
	r.t.Helper()
	n := &diary{}
	c, err := r.session.Consumer(r.context(), drivers.ConsumerSpec{
		Topology: r.topology, Prefetch: prefetch, Batch: 10, Ack: drivers.AckEach, Node: drivers.AnyNode, Connection: drivers.Exclusive,
		OnClosed: n.close,
	}, func(batch []drivers.Delivery) error {
		n.enter()
		if gate != nil {
			<-gate
		}
		return n.take(batch)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c, n
}

// diary is what publishers and consumers heard.
type diary struct {
	mu        sync.Mutex
	confirmed int
	errors    []error
	closed    []error
	called    int
	received  int
}

func (n *diary) confirm(_ uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.errors = append(n.errors, err)
	} else {
		n.confirmed++
	}
}

func (n *diary) close(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = append(n.closed, err)
}

func (n *diary) enter() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.called++
}

func (n *diary) take(batch []drivers.Delivery) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.received += len(batch)
	return nil
}

// look reads the notes.
func look[T any](n *diary, at func(*diary) T) T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return at(n)
}

// eventually waits for what a broker does in its own time.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}
