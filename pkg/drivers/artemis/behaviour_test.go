package artemis

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// A broker that accepts connections but does not respond delays the session once. Later connections do not try it
// first.
func TestSilentBrokerIsPassedBy(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	url := lab.Variable(t, "LOCKSTEP_ARTEMIS_URL")
	r := newRig(t, labtest.Options(t, map[string]any{
		"urls": []string{"amqp://" + silent.Addr().String(), url}, "connectTimeout": "10s",
	}, `{}`))
	select {
	case event := <-r.events:
		if !strings.Contains(event, silent.Addr().String()) ||
			!strings.Contains(event, strings.TrimPrefix(url, "amqp://")) {
			t.Errorf("the event does not say from where to where: %s", event)
		}
	default:
		t.Error("nothing is said of the failover")
	}
	first, answering := r.dialled(silent.Addr().String()), r.dialled(strings.TrimPrefix(url, "amqp://"))
	if first == 0 {
		t.Error("the silent broker was not tried")
	}
	p, n := r.publisher(drivers.ConfirmEach)
	if again := r.dialled(silent.Addr().String()) - first; again > 0 {
		t.Errorf("the next connection tried the silent broker again, %d times", again)
	}
	if r.dialled(strings.TrimPrefix(url, "amqp://")) == answering {
		t.Error("the publisher made no connection to the broker that answers")
	}
	if err := p.Publish(r.context(), drivers.Message{Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if confirmed := look(n, func(n *diary) int { return n.confirmed }); confirmed != 1 {
		t.Errorf("%d confirms, want 1: %v", confirmed, n.errors)
	}
}

// If the server does not replicate as the label states, an event reports it at the start of the run, and the
// description contains it.
func TestReplicationThatIsNone(t *testing.T) {
	r := newRig(t, single(t, `{"ha": "replication"}`))
	const want = "replication: not honoured by this server"
	select {
	case event := <-r.events:
		if !strings.HasPrefix(event, want) {
			t.Errorf("the event says %q, want %q", event, want)
		}
	default:
		t.Error("nothing is said of a pair that is none")
	}
	d, err := r.session.Describe(r.context())
	if err != nil || !strings.HasPrefix(d.Settings["ha"], want) {
		t.Errorf("the broker is described by %v, %v", d.Settings, err)
	}
}

// A full address that rejects messages is no broken link: each message is rejected with the broker's reason.
func TestFullAddressRejects(t *testing.T) {
	r := newRig(t, single(t, `{}`))
	settings := operation("broker", "addAddressSettings", r.topology.Name+".#",
		`{"addressFullMessagePolicy": "FAIL", "maxSizeBytes": 50000, "pageSizeBytes": 10000}`)
	if err := r.session.read(r.context(), settings, new(any)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if answers, err := r.session.manage(r.context(),
			operation("broker", "removeAddressSettings", r.topology.Name+".#")); err != nil || !answers[0].ok {
			t.Errorf("remove the settings: %v %v", answers, err)
		}
	}()
	p, n := r.publisher(drivers.ConfirmEach)
	refused := func() int { return look(n, func(n *diary) int { return len(n.errors) }) }
	for i := 0; refused() == 0 && i < 200; i++ {
		if err := p.Publish(r.context(), drivers.Message{Body: make([]byte, 1000)}); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if refused() == 0 {
		t.Fatal("an address of 50 kB takes 200 kB")
	}
	if err := n.errors[0]; !errors.Is(err, drivers.ErrRejected) || !strings.Contains(err.Error(), "full") {
		t.Errorf("the confirm of a refused message is %v", err)
	}
	if err := p.Err(); err != nil {
		t.Errorf("the link is said to be broken: %v", err)
	}
}

// If another client removes a consumer's queue, its link is broken, although its connection is not.
func TestRemovedUnderConsumer(t *testing.T) {
	r := newRig(t, single(t, `{}`))
	c, _ := r.consumer(10, nil)
	if err := r.session.Teardown(r.context(), r.topology); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, "the end of the link", func() bool { return c.Err() != nil })
	if !errors.Is(c.Err(), drivers.ErrClosed) {
		t.Errorf("the end of the link is %v", c.Err())
	}
}

// An idle publisher and consumer end with their connection. Their reason is its reason, and none after Close.
func TestIdleLinksEndWithTheirConnection(t *testing.T) {
	r := newRig(t, single(t, `{}`))
	for name, end := range map[string]func(drivers.Conn){
		"Cut":   drivers.Conn.Cut,
		"Close": func(c drivers.Conn) { _ = c.Close() },
	} {
		out, in := r.connect(drivers.PublisherRole), r.connect(drivers.ConsumerRole)
		p, err := out.Publisher(r.context(), drivers.PublisherSpec{Topology: r.topology, Mode: drivers.FireAndForget})
		if err != nil {
			t.Fatal(err)
		}
		c, err := in.Consumer(r.context(), drivers.ConsumerSpec{Topology: r.topology, Prefetch: 1, Batch: 1,
			Ack: drivers.AckEach}, func([]drivers.Delivery) {})
		if err != nil {
			t.Fatal(err)
		}
		end(out)
		end(in)
		for part, x := range map[string]drivers.Ended{"publisher": p, "consumer": c} {
			select {
			case <-x.Done():
			case <-time.After(labtest.Wait):
				t.Fatalf("%s: the %s does not end", name, part)
			}
			if err := x.Err(); (err != nil) != (name == "Cut") || err != nil && !errors.Is(err, drivers.ErrClosed) {
				t.Errorf("%s: the %s ends with %v", name, part, err)
			}
		}
		if err := errors.Join(p.Close(), c.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The idle timeout also ends a connection whose write is blocked.
func TestIdleTimeoutEndsABlockedWrite(t *testing.T) {
	r := newRig(t, single(t, `{"idleTimeout": "5s"}`))
	r.stall = make(chan struct{})
	c := r.connect(drivers.PublisherRole)
	p, err := c.Publisher(r.context(), drivers.PublisherSpec{Topology: r.topology, Mode: drivers.FireAndForget})
	if err != nil {
		t.Fatal(err)
	}
	close(r.stall)
	blocked := make(chan error)
	go func() { blocked <- p.Publish(r.context(), drivers.Message{Body: []byte("x")}) }()
	select {
	case <-c.Done():
	case <-time.After(labtest.Wait):
		t.Error("the connection to a broker that neither reads nor writes does not end")
		c.Cut()
	}
	if err := <-blocked; !errors.Is(err, drivers.ErrClosed) {
		t.Errorf("the blocked message fails with %v", err)
	}
	if err := c.Err(); err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection ended with %v, want a timeout", err)
	}
}

// A broker that no longer accepts acknowledgements blocks a consumer only for a limited time.
func TestStalledAcknowledgement(t *testing.T) {
	r := newRig(t, single(t, `{}`))
	p, sent := r.publisher(drivers.ConfirmWindow)
	for range 20 {
		if err := p.Publish(r.context(), drivers.Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	labtest.Eventually(t, "20 confirms", func() bool {
		return look(sent,
			func(n *diary) int { return n.confirmed }) == 20
	})
	r.stall = make(chan struct{})
	gate := make(chan struct{})
	c, got := r.consumer(20, gate)
	labtest.Eventually(t, "a message", func() bool { return look(got, func(n *diary) int { return n.called }) > 0 })
	close(r.stall)
	close(gate)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = c.Close()
	}()
	select {
	case <-closed:
	case <-time.After(labtest.Wait):
		t.Fatal("a consumer that cannot acknowledge does not close")
	}
}

// The metrics are those of this task's queues, exact to the message.
func TestProbeCounts(t *testing.T) {
	r := newRig(t, single(t, `{}`))
	p, n := r.publisher(drivers.ConfirmWindow)
	for range 25 {
		if err := p.Publish(r.context(), drivers.Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	labtest.Eventually(t, "25 confirms", func() bool {
		return look(n,
			func(n *diary) int { return n.confirmed }) == 25
	})
	gate := make(chan struct{})
	_, got := r.consumer(10, gate)
	want := map[string]float64{drivers.MetricQueues: 1, drivers.MetricQueueDepth: 25,
		drivers.MetricUnacked: 10}
	seen := map[string]float64{}
	matches := func() bool {
		clear(seen)
		metrics, err := r.session.Probe(r.context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range metrics {
			seen[f.Name] = f.Value
		}
		for name, value := range want {
			if seen[name] != value {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(labtest.Wait); !matches(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the broker says %v, want %v", seen, want)
		}
	}
	for _, name := range []string{drivers.MetricConnections, drivers.MetricConsumers,
		drivers.MetricMemoryQueues} {
		if seen[name] <= 0 {
			t.Errorf("%s is %v with a publisher, a consumer and 25 messages", name, seen[name])
		}
	}
	close(gate)
	labtest.Eventually(t, "all messages", func() bool {
		return look(got,
			func(n *diary) int { return n.received }) == 25
	})
	want = map[string]float64{drivers.MetricQueueDepth: 0, drivers.MetricUnacked: 0}
	labtest.Eventually(t, "an empty queue", matches)
}

// A publisher that is given up while it connects does not break the connection, which others use. In modes in which
// Publish waits for the confirm, the engine's work for it does not count as waiting.
func TestPublishersOfOneConnection(t *testing.T) {
	const messages, work = 10, 20 * time.Millisecond
	r := newRig(t, single(t, `{}`))
	on := r.connect(drivers.PublisherRole)
	var w drivers.Waiting
	spec := drivers.PublisherSpec{Topology: r.topology, Mode: drivers.ConfirmEach, Persistent: true, Waiting: &w,
		OnConfirms: func([]uint64, error) { time.Sleep(work) }}
	p, err := on.Publisher(r.context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ended, cancel := context.WithCancel(r.context())
	cancel()
	if _, err := on.Publisher(ended, spec); !errors.Is(err, context.Canceled) {
		t.Errorf("a publisher whose context has ended: %v", err)
	}
	began := time.Now()
	for i := range messages {
		if err := p.Publish(r.context(), drivers.Message{Token: uint64(i), Body: []byte("body")}); err != nil {
			t.Fatal(err)
		}
	}
	if took, waited := time.Since(began), time.Duration(w.Nanos()); waited == 0 || waited > took-messages*work {
		t.Errorf("waited for %v of %v, in which OnConfirms took %v", waited, took, messages*work)
	}
	if err := on.Err(); err != nil {
		t.Errorf("the connection broke: %v", err)
	}
}
