package eventstore

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// rig is a session with a topology. Both are removed at the end of the test.
type rig struct {
	t        testing.TB
	ctx      context.Context
	session  *session
	topology drivers.Topology
	dials    atomic.Int64
	stalled  atomic.Bool // nothing passes any more
}

func newRig(t testing.TB, options json.RawMessage, change func(*drivers.Topology)) *rig {
	t.Helper()
	r := &rig{t: t, ctx: labtest.Context(t)}
	r.topology = labtest.Topology(func(t *drivers.Topology) {
		t.Persistent = true
		if change != nil {
			change(t)
		}
	})
	r.session = labtest.Open(t, driver{}, options, r.env()).(*session)
	r.setup()
	return r
}

func (r *rig) setup() {
	r.t.Helper()
	if err := r.session.Setup(r.ctx, r.topology); err != nil {
		r.t.Fatal(err)
	}
}

// env dials directly, and forwards like an agent with a simulated network. While r.stalled is set, nothing arrives.
func (r *rig) env() drivers.Env {
	env := labtest.Env(nil)
	env.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		r.dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	env.Forward = func(ctx context.Context, address string) (string, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		r.t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				near, err := l.Accept()
				if err != nil {
					return
				}
				go r.relay(env.Dial, near, address)
			}
		}()
		return l.Addr().String(), nil
	}
	return env
}

func (r *rig) relay(dial func(context.Context, string, string) (net.Conn, error), near net.Conn, address string) {
	defer near.Close()
	far, err := dial(context.Background(), "tcp", address)
	if err != nil {
		return
	}
	defer far.Close()
	go func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := far.Read(buffer)
		for r.stalled.Load() {
			time.Sleep(5 * time.Millisecond)
		}
		if _, failed := near.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// callbacks records the callbacks of publishers and consumers.
type callbacks struct {
	mu        sync.Mutex
	confirmed int
	errors    []error
	got       []drivers.Delivery
	react     func()
}

func (n *callbacks) onConfirms(tokens []uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range tokens {
		n.confirmed++
		if err != nil {
			n.errors = append(n.errors, err)
		}
	}
}

func (n *callbacks) handle(batch []drivers.Delivery) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range batch {
		d.Body = append([]byte(nil), d.Body...)
		n.got = append(n.got, d)
	}
	if n.react != nil {
		n.react()
	}
}

func (n *callbacks) confirms() (all, failed int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.confirmed, len(n.errors)
}

func (n *callbacks) received() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.got)
}

// connect makes a connection, which is closed with the session.
func (r *rig) connect(node drivers.Node) *conn {
	r.t.Helper()
	c, err := r.session.Connect(r.ctx, drivers.ConnSpec{Node: node})
	if err != nil {
		r.t.Fatal(err)
	}
	return c.(*conn)
}

// publisher connects a publisher over a connection of its own.
func (r *rig) publisher(mode drivers.Mode, change func(*drivers.PublisherSpec)) (drivers.Publisher, *callbacks) {
	r.t.Helper()
	return r.publisherOn(r.connect(drivers.AnyNode), mode, change)
}

func (r *rig) publisherOn(on *conn, mode drivers.Mode,
	change func(*drivers.PublisherSpec)) (drivers.Publisher, *callbacks) {
	r.t.Helper()
	n := &callbacks{}
	spec := drivers.PublisherSpec{Topology: r.topology, Mode: mode, MaxInFlight: 1000, Batch: 10, Persistent: true,
		OnConfirms: n.onConfirms}
	if change != nil {
		change(&spec)
	}
	p, err := on.Publisher(r.ctx, spec)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = p.Close() })
	return p, n
}

// consumer connects a consumer over a connection of its own. With AckEach, it acknowledges each batch.
func (r *rig) consumer(n *callbacks, change func(*drivers.ConsumerSpec)) drivers.Consumer {
	r.t.Helper()
	return r.consumerOn(r.connect(drivers.AnyNode), n, change)
}

func (r *rig) consumerOn(on *conn, n *callbacks, change func(*drivers.ConsumerSpec)) drivers.Consumer {
	r.t.Helper()
	spec := drivers.ConsumerSpec{Topology: r.topology, Prefetch: 100, Batch: 1, Ack: drivers.AckEach}
	if change != nil {
		change(&spec)
	}
	var c drivers.Consumer
	ready := make(chan struct{})
	c, err := on.Consumer(r.ctx, spec, func(batch []drivers.Delivery) {
		<-ready
		n.handle(batch)
		if spec.Ack == drivers.AckEach {
			c.Ack(len(batch))
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	close(ready)
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// send publishes n messages of a size.
func (r *rig) send(p drivers.Publisher, n, size int) {
	r.t.Helper()
	for i := range n {
		if err := p.Publish(r.ctx, drivers.Message{Token: uint64(i), Body: make([]byte, size)}); err != nil {
			r.t.Fatal(err)
		}
	}
}
