package kafka

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/labtest"
	"lockstep/pkg/drivers/internal/legacy"
)

var lab = labtest.Broker{Name: "Kafka", Parts: "kafka kafka3", Tests: "pkg/drivers/kafka"}

// at returns options for the brokers of a variable. more is JSON that is merged into them.
func at(t testing.TB, name, more string) json.RawMessage {
	t.Helper()
	return labtest.Options(t, map[string]any{
		"brokers": strings.Split(lab.Variable(t, name), ","), "sessionTimeout": "10s", "heartbeat": "100ms",
	}, more)
}

// both runs a test with each client on the single broker.
func both(t *testing.T, test func(t *testing.T, client string)) {
	for _, client := range []string{kafkaGo, franz} {
		t.Run(client, func(t *testing.T) { test(t, client) })
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
	aside func(ctx context.Context, network, address string) (net.Conn, error)) *rig {
	t.Helper()
	r := &rig{t: t, topology: labtest.Topology(nil)}
	env := labtest.Env(r.event)
	env.DialManagement = aside
	r.session = legacy.Of(labtest.Open(t, driver{}, options, env)).(*session)
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

// heard records the callbacks of a publisher or consumer.
type heard struct {
	mu       sync.Mutex
	tokens   []uint64
	errs     []error
	bodies   []string
	streams  []uint32
	broken   error
	handling func()
}

func (n *heard) confirm(tokens []uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, token := range tokens {
		n.tokens, n.errs = append(n.tokens, token), append(n.errs, err)
	}
}

func (n *heard) closed(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken = err
}

func (n *heard) take(batch []drivers.Delivery) error {
	if n.handling != nil {
		n.handling()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range batch {
		n.bodies, n.streams = append(n.bodies, string(d.Body)), append(n.streams, d.Stream)
	}
	return nil
}

// settled returns the errors of all confirms so far.
func (n *heard) settled() []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]error(nil), n.errs...)
}

func (n *heard) received() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.bodies...)
}

func (r *rig) publisher(mode drivers.Mode) (legacy.Publisher, *heard) {
	r.t.Helper()
	n := &heard{}
	p, err := r.session.Publisher(r.context(), legacy.PublisherSpec{Topology: r.topology, Mode: mode,
		MaxInFlight: 1000, Batch: 25, Keyed: true,
		Connection: legacy.Exclusive, OnConfirms: n.confirm, OnClosed: n.closed})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = p.Close() })
	return p, n
}

// send publishes bodies with the keys 0, 1, 2 …
func (r *rig) send(p legacy.Publisher, bodies ...string) {
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

func (r *rig) consumer(change func(*legacy.ConsumerSpec), handling func()) (legacy.Consumer, *heard) {
	r.t.Helper()
	n := &heard{handling: handling}
	spec := legacy.ConsumerSpec{Topology: r.topology, Prefetch: 100, Batch: 10, Ack: drivers.AckEach,
		OnClosed: n.closed}
	if change != nil {
		change(&spec)
	}
	c, err := r.session.Consumer(r.context(), spec, n.take)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c, n
}

// numbers returns n bodies "0", "1", ….
func numbers(from, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.Repeat("x", 10) + " " + time.Duration(from+i).String()
	}
	return all
}
