package artemis

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

var lab = labtest.Broker{Name: "Artemis", Parts: "artemis artemis-pair", Tests: "pkg/drivers/artemis"}

// single returns options for the single broker. more is JSON that is merged into them.
func single(t testing.TB, more string) json.RawMessage {
	return labtest.Options(t, map[string]any{"url": lab.Variable(t, "LOCKSTEP_ARTEMIS_URL")}, more)
}

// pair returns options for the primary and its backup.
func pair(t testing.TB, more string) json.RawMessage {
	urls := strings.Split(lab.Variable(t, "LOCKSTEP_ARTEMIS_PAIR_URLS"), ",")
	return labtest.Options(t, map[string]any{"urls": urls, "ha": "replication"}, more)
}

// rig is a session with a topology. Both are removed at the end of the test.
type rig struct {
	t        testing.TB
	session  *session
	topology drivers.Topology
	events   chan string
	mu       sync.Mutex
	dials    map[string]int // connection attempts by address
	stall    chan struct{}  // for new connections; closed: nothing passes any more
}

// dial opens connections that can be stalled.
func (r *rig) dial(ctx context.Context, network, address string) (net.Conn, error) {
	r.mu.Lock()
	r.dials[address]++
	r.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &stallable{Conn: conn, stall: r.stall, closed: make(chan struct{})}, nil
}

// stallable is a connection that blocks when it is stalled, until it is closed. Reads also end at their deadline.
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
	for {
		n, err := s.Conn.Read(p)
		select {
		case <-s.stall:
			if err == nil {
				continue
			}
		default:
		}
		return n, err
	}
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

func newRig(t testing.TB, options json.RawMessage) *rig {
	t.Helper()
	r := &rig{t: t, topology: labtest.Topology(func(t *drivers.Topology) { t.Persistent = true }),
		events: make(chan string, 100),
		dials:  map[string]int{}}
	env := labtest.Env(func(_ drivers.EventKind, detail string) { r.events <- detail })
	env.Dial = r.dial
	r.session = labtest.Open(t, driver{}, options, env).(*session)
	labtest.SetUp(t, r.session, &r.topology)
	return r
}

// dialled returns the number of connection attempts to an address.
func (r *rig) dialled(address string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dials[address]
}

func (r *rig) context() context.Context { return labtest.Context(r.t) }

// connect makes a connection.
func (r *rig) connect(role drivers.Role) drivers.Conn {
	r.t.Helper()
	c, err := r.session.Connect(r.context(), drivers.ConnSpec{Role: role, Topology: r.topology, Node: drivers.AnyNode})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// publisher connects a publisher that records its confirms, over its own connection.
func (r *rig) publisher(mode drivers.Mode) (drivers.Publisher, *diary) {
	r.t.Helper()
	n := &diary{}
	p, err := r.connect(drivers.PublisherRole).Publisher(r.context(), drivers.PublisherSpec{
		Topology: r.topology, Mode: mode, MaxInFlight: 1000, Persistent: true, OnConfirms: n.confirm,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = p.Close() })
	return p, n
}

// consumer connects a consumer that records its deliveries and accepts them, over its own connection. Its handler waits
// for gate, if gate is not nil.
func (r *rig) consumer(prefetch int, gate chan struct{}) (drivers.Consumer, *diary) {
	r.t.Helper()
	n := &diary{}
	var c drivers.Consumer
	ready := make(chan struct{})
	c, err := r.connect(drivers.ConsumerRole).Consumer(r.context(), drivers.ConsumerSpec{
		Topology: r.topology, Prefetch: prefetch, Batch: 10, Ack: drivers.AckEach,
	}, func(batch []drivers.Delivery) {
		<-ready
		n.enter()
		if gate != nil {
			<-gate
		}
		n.take(batch)
		c.Ack(len(batch))
	})
	if err != nil {
		r.t.Fatal(err)
	}
	close(ready)
	r.t.Cleanup(func() { _ = c.Close() })
	return c, n
}

// diary records the callbacks of publishers and consumers.
type diary struct {
	mu        sync.Mutex
	confirmed int
	errors    []error
	called    int
	received  int
}

func (n *diary) confirm(tokens []uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range tokens {
		if err != nil {
			n.errors = append(n.errors, err)
		} else {
			n.confirmed++
		}
	}
}

func (n *diary) enter() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.called++
}

func (n *diary) take(batch []drivers.Delivery) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.received += len(batch)
}

// look reads a value of the diary under its lock.
func look[T any](n *diary, at func(*diary) T) T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return at(n)
}
