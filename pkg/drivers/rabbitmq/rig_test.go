package rabbitmq

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

var lab = labtest.Broker{Name: "RabbitMQ", Parts: "rabbitmq rabbitmq3 rabbitmq4 rabbitmq43", Tests: "pkg/drivers/rabbitmq"}

// single returns options for the broker with one node. more is JSON that is merged into them.
func single(t testing.TB, more string) json.RawMessage { return partOptions(t, "RABBITMQ", more) }

// partOptions returns options for the single broker of a part of the lab: RABBITMQ, RABBITMQ4 or RABBITMQ43.
func partOptions(t testing.TB, part, more string) json.RawMessage {
	return labtest.Options(t, map[string]any{
		"url":        lab.Variable(t, "LOCKSTEP_"+part+"_URL"),
		"management": lab.Variable(t, "LOCKSTEP_"+part+"_MANAGEMENT"),
		"prometheus": []string{lab.Variable(t, "LOCKSTEP_"+part+"_PROMETHEUS")},
	}, more)
}

// cluster returns options for the cluster of three.
func cluster(t testing.TB, more string) json.RawMessage {
	return labtest.Options(t, map[string]any{
		"urls":       strings.Split(lab.Variable(t, "LOCKSTEP_RABBITMQ3_URLS"), ","),
		"management": lab.Variable(t, "LOCKSTEP_RABBITMQ3_MANAGEMENT"),
		"prometheus": strings.Split(lab.Variable(t, "LOCKSTEP_RABBITMQ3_PROMETHEUS"), ","),
	}, more)
}

// rig is a session with a topology. Both are removed at the end of the test.
type rig struct {
	t        testing.TB
	session  *session
	topology drivers.Topology
	events   chan event
}

// event is what a session reported.
type event struct {
	kind   drivers.EventKind
	detail string
}

func newRig(t testing.TB, options json.RawMessage, change func(*drivers.Topology)) *rig {
	t.Helper()
	r := &rig{t: t, topology: labtest.Topology(change), events: make(chan event, 100)}
	r.session = labtest.Open(t, driver{}, options, labtest.Env(func(kind drivers.EventKind, detail string) {
		r.events <- event{kind, detail}
	})).(*session)
	labtest.SetUp(t, r.session, &r.topology)
	return r
}

func (r *rig) context() context.Context { return labtest.Context(r.t) }

// connect makes a connection.
func (r *rig) connect(role drivers.Role, node drivers.Node, ordinal int) *conn {
	r.t.Helper()
	c, err := r.session.Connect(r.context(), drivers.ConnSpec{Role: role, Topology: r.topology, Node: node,
		Ordinal: ordinal})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c.(*conn)
}

// publisher connects a publisher, on a connection of its own, that records its callbacks.
func (r *rig) publisher(mode drivers.Mode, change func(*drivers.PublisherSpec)) (*publisher, *notes) {
	r.t.Helper()
	n := &notes{}
	spec := drivers.PublisherSpec{
		Topology: r.topology, Mode: mode, MaxInFlight: 1000, OnConfirms: n.confirm, OnReturn: n.giveBack,
	}
	if change != nil {
		change(&spec)
	}
	p, err := r.connect(drivers.PublisherRole, drivers.AnyNode, 0).Publisher(r.context(), spec)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = p.Close() })
	return p.(*publisher), n
}

// consumer connects a consumer, on a connection of its own, that counts and acknowledges bodies.
func (r *rig) consumer() (*consumer, *notes) {
	r.t.Helper()
	n := &notes{}
	return r.consume(100, 10, func(k drivers.Consumer, batch []drivers.Delivery) {
		n.take(batch)
		k.Ack(len(batch))
	}), n
}

// consume connects a consumer, on a connection of its own, with another handler.
func (r *rig) consume(prefetch, batch int, handle func(drivers.Consumer, []drivers.Delivery)) *consumer {
	r.t.Helper()
	var k drivers.Consumer
	connected := make(chan struct{})
	k, err := r.connect(drivers.ConsumerRole, drivers.AnyNode, 0).Consumer(r.context(),
		drivers.ConsumerSpec{Topology: r.topology, Prefetch: prefetch, Batch: batch, Ack: drivers.AckEach, Nack: true},
		func(batch []drivers.Delivery) {
			<-connected
			handle(k, batch)
		})
	if err != nil {
		r.t.Fatal(err)
	}
	close(connected)
	r.t.Cleanup(func() { _ = k.Close() })
	return k.(*consumer)
}

// notes records the callbacks of publishers and consumers.
type notes struct {
	mu       sync.Mutex
	order    []string // "return 3", "confirm 3"
	errors   []error
	received int
}

func (n *notes) confirm(tokens []uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, token := range tokens {
		n.order = append(n.order, "confirm "+string(rune('0'+token)))
		if err != nil {
			n.errors = append(n.errors, err)
		}
	}
}

func (n *notes) giveBack(body []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.order = append(n.order, "return "+string(body))
}

func (n *notes) take(batch []drivers.Delivery) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.received += len(batch)
}

func (n *notes) counts() (callbacks, received int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.order), n.received
}
