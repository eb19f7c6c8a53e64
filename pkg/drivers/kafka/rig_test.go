package kafka

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

var lab = labtest.Broker{Name: "Kafka", Parts: "kafka kafka3 kafka-next", Tests: "pkg/drivers/kafka"}

// at returns options for the brokers of a variable. more is JSON that is merged into them.
func at(t testing.TB, name, more string) json.RawMessage {
	t.Helper()
	return labtest.Options(t, map[string]any{
		"brokers": strings.Split(lab.Variable(t, name), ","), "sessionTimeout": "10s", "heartbeat": "100ms",
	}, more)
}

// both runs a test with both clients at the same time.
func both(t *testing.T, test func(t *testing.T, client string)) {
	for _, client := range []string{kafkaGo, franz} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			test(t, client)
		})
	}
}

// rig is a session with a topology. Both are removed at the end of the test.
type rig struct {
	t        testing.TB
	session  *session
	topology drivers.Topology

	mu     sync.Mutex
	events []string
}

func open(t testing.TB, options json.RawMessage) *rig {
	t.Helper()
	return openBy(t, options, nil)
}

// openBy is open with another dialer for everything that is not measured.
func openBy(t testing.TB, options json.RawMessage,
	dial func(ctx context.Context, network, address string) (net.Conn, error)) *rig {
	t.Helper()
	r := &rig{t: t, topology: labtest.Topology(nil)}
	env := labtest.Env(r.event)
	env.DialManagement = dial
	r.session = labtest.Open(t, driver{}, options, env).(*session)
	labtest.TearDown(t, r.session, &r.topology)
	return r
}

func setUp(t testing.TB, options json.RawMessage) *rig {
	t.Helper()
	r := open(t, options)
	if err := r.session.Setup(r.context(), r.topology); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) event(kind drivers.EventKind, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, string(kind)+": "+detail)
}

// count returns the number of events of a kind.
func (r *rig) count(kind drivers.EventKind) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if strings.HasPrefix(e, string(kind)) {
			n++
		}
	}
	return n
}

func (r *rig) context() context.Context { return labtest.Context(r.t) }

// callbacks is a publisher or consumer that records its callbacks.
type callbacks struct {
	drivers.Ended
	consumer   drivers.Consumer
	seldom     bool // the consumer acknowledges only at its end
	unanswered int

	mu      sync.Mutex
	tokens  []uint64
	errs    []error
	bodies  []string
	streams []uint32
}

func (n *callbacks) confirm(tokens []uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, token := range tokens {
		n.tokens, n.errs = append(n.tokens, token), append(n.errs, err)
	}
}

func (n *callbacks) take(batch []drivers.Delivery) {
	n.mu.Lock()
	for _, d := range batch {
		n.bodies, n.streams = append(n.bodies, string(d.Body)), append(n.streams, d.Stream)
	}
	n.mu.Unlock()
	if n.seldom {
		n.unanswered += len(batch)
	} else {
		n.consumer.Ack(len(batch))
	}
}

// close ends the consumer as the engine does.
func (n *callbacks) close() {
	n.consumer.Stop()
	if n.unanswered > 0 {
		n.consumer.Ack(n.unanswered)
		n.unanswered = 0
	}
	_ = n.consumer.Close()
}

// settled returns the errors of all confirms so far.
func (n *callbacks) settled() []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]error(nil), n.errs...)
}

func (n *callbacks) received() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.bodies...)
}

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

// publisher connects a publisher, on a connection of its own, whose keys select partitions.
func (r *rig) publisher(mode drivers.Mode) (drivers.Publisher, *callbacks) {
	r.t.Helper()
	return r.publisherOn(r.connect(drivers.PublisherRole),
		drivers.PublisherSpec{Mode: mode, MaxInFlight: 1000, Batch: 25, Keyed: true})
}

func (r *rig) publisherOn(c drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher, *callbacks) {
	r.t.Helper()
	n := &callbacks{}
	spec.Topology, spec.OnConfirms = r.topology, n.confirm
	p, err := c.Publisher(r.context(), spec)
	if err != nil {
		r.t.Fatal(err)
	}
	n.Ended = p
	r.t.Cleanup(func() { _ = p.Close() })
	return p, n
}

// send publishes bodies with the keys 0, 1, 2 …
func (r *rig) send(p drivers.Publisher, bodies ...string) {
	r.t.Helper()
	for i, body := range bodies {
		if err := p.Publish(r.context(), drivers.Message{Token: uint64(i), Key: uint32(i),
			Body: []byte(body)}); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := p.Flush(r.context()); err != nil {
		r.t.Fatal(err)
	}
}

// consumer connects a consumer on a connection of its own.
func (r *rig) consumer(prefetch int, seldom bool) *callbacks {
	r.t.Helper()
	n := &callbacks{seldom: seldom}
	if err := r.consume(n, prefetch); err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *rig) consume(n *callbacks, prefetch int) error {
	return r.consumeOn(r.connect(drivers.ConsumerRole), n, drivers.ConsumerSpec{Prefetch: prefetch})
}

func (r *rig) consumeOn(c drivers.Conn, n *callbacks, spec drivers.ConsumerSpec) (err error) {
	spec.Topology, spec.Batch, spec.Ack = r.topology, 10, drivers.AckEach
	connected := make(chan struct{})
	n.consumer, err = c.Consumer(r.context(), spec, func(batch []drivers.Delivery) {
		<-connected
		n.take(batch)
	})
	if err != nil {
		return err
	}
	n.Ended = n.consumer
	close(connected)
	r.t.Cleanup(n.close)
	return nil
}

// numbers returns n bodies "0", "1", ….
func numbers(from, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.Repeat("x", 10) + " " + time.Duration(from+i).String()
	}
	return all
}
