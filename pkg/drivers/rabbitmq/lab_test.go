package rabbitmq

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/pkg/drivers"
)

// variable reads what leads to a real broker. Without one the test is skipped, or fails where the lab promised it.
func variable(t testing.TB, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" && os.Getenv("LOCKSTEP_LAB") == "required" {
		t.Fatalf("%s is not set although LOCKSTEP_LAB is \"required\"", name)
	}
	if value == "" {
		t.Skipf("needs a real RabbitMQ: set %s, or run \"go run ./test/lab run rabbitmq rabbitmq3 -- go test ./pkg/drivers/rabbitmq\"", name)
	}
	return value
}

// single are options for the broker of one node; more is JSON that is laid over them.
func single(t testing.TB, more string) json.RawMessage {
	return merge(t, map[string]any{
		"url":        variable(t, "LOCKSTEP_RABBITMQ_URL"),
		"management": variable(t, "LOCKSTEP_RABBITMQ_MANAGEMENT"),
		"prometheus": []string{variable(t, "LOCKSTEP_RABBITMQ_PROMETHEUS")},
	}, more)
}

// cluster are options for the cluster of three.
func cluster(t testing.TB, more string) json.RawMessage {
	return merge(t, map[string]any{
		"urls":       strings.Split(variable(t, "LOCKSTEP_RABBITMQ3_URLS"), ","),
		"management": variable(t, "LOCKSTEP_RABBITMQ3_MANAGEMENT"),
		"prometheus": strings.Split(variable(t, "LOCKSTEP_RABBITMQ3_PROMETHEUS"), ","),
	}, more)
}

func merge(t testing.TB, o map[string]any, more string) json.RawMessage {
	t.Helper()
	if err := json.Unmarshal([]byte(more), &o); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// disturb asks the lab to do something to one of its brokers.
func disturb(t testing.TB, what, name string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // drivertest counts goroutines
	response, err := client.Post(variable(t, "LOCKSTEP_LAB_CONTROL")+"/"+what+"?name="+name, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", what, name, text)
	}
}

// rig is a session with a topology, both gone at the end of the test.
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

var rigs atomic.Int64

func newRig(t testing.TB, options json.RawMessage, change func(*drivers.Topology)) *rig {
	t.Helper()
	r := &rig{t: t, events: make(chan event, 100)}
	r.topology = drivers.Topology{
		Name:   "test-" + time.Now().Format("150405-000000") + "-" + string(rune('a'+rigs.Add(1)%26)),
		Queues: 1, Subscriptions: 1, Bindings: 1, QueueNode: drivers.AnyNode,
	}
	if change != nil {
		change(&r.topology)
	}
	ctx := r.context()
	opened, err := driver{}.Open(ctx, options, drivers.Env{
		Dial:  (&net.Dialer{}).DialContext,
		Log:   slog.New(slog.DiscardHandler),
		Event: func(kind drivers.EventKind, detail string) { r.events <- event{kind, detail} },
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
func (r *rig) publisher(mode drivers.Mode, change func(*drivers.PublisherSpec)) (*publisher, *notes) {
	r.t.Helper()
	n := &notes{}
	spec := drivers.PublisherSpec{
		Topology: r.topology, Mode: mode, Window: 1000, Node: drivers.AnyNode, Connection: drivers.Exclusive,
		OnConfirm: n.confirm, OnReturn: n.giveBack,
	}
	if change != nil {
		change(&spec)
	}
	p, err := r.session.Publisher(r.context(), spec)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = p.Close() })
	return p.(*publisher), n
}

// consumer connects one that counts bodies.
func (r *rig) consumer(change func(*drivers.ConsumerSpec)) (*consumer, *notes) {
	r.t.Helper()
	n := &notes{}
	spec := drivers.ConsumerSpec{
		Topology: r.topology, Prefetch: 100, Batch: 10, Ack: drivers.AckEach, Node: drivers.AnyNode, Connection: drivers.Exclusive,
	}
	if change != nil {
		change(&spec)
	}
	c, err := r.session.Consumer(r.context(), spec, n.take)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c.(*consumer), n
}

// notes are what publishers and consumers heard.
type notes struct {
	mu       sync.Mutex
	order    []string // "return 3", "confirm 3"
	errors   []error
	received int
}

func (n *notes) confirm(token uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.order = append(n.order, "confirm "+string(rune('0'+token)))
	if err != nil {
		n.errors = append(n.errors, err)
	}
}

func (n *notes) giveBack(body []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.order = append(n.order, "return "+string(body))
}

func (n *notes) take(batch []drivers.Delivery) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.received += len(batch)
	return nil
}

func (n *notes) counts() (heard, received int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.order), n.received
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
