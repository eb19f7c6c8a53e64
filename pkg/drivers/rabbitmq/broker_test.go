package rabbitmq

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// The error of a wrong password names the address and the broker's reason, and contains no password.
func TestWrongPassword(t *testing.T) {
	right, err := url.Parse(lab.Variable(t, "LOCKSTEP_RABBITMQ_URL"))
	if err != nil {
		t.Fatal(err)
	}
	right.User = url.UserPassword(right.User.Username(), "wr0ng")
	_, err = driver{}.Open(t.Context(), schematest.Fill(t, driver{}, fmt.Sprintf(`{"url": %q}`, right)), labtest.Env(nil))
	if err == nil || !strings.Contains(err.Error(), right.Host) || !strings.Contains(err.Error(), "not allowed") ||
		strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("a wrong password gives: %v", err)
	}
}

// OnReturn is called before OnConfirms. Otherwise a returned message would count as delivered.
func TestReturnComesBeforeConfirm(t *testing.T) {
	r := newRig(t, single(t, `{}`), nil)
	p, callbacks := r.publisher(drivers.ConfirmWindow,
		func(s *drivers.PublisherSpec) { s.Mandatory, s.Queue = true, 7 })
	const n = 500
	for i := range n {
		token := uint64(i)
		if err := p.Publish(t.Context(), drivers.Message{Token: token,
			Body: []byte(string(rune('0' + i)))}); err != nil {
			t.Fatal(err)
		}
	}
	labtest.Eventually(t, "a return and a confirm for each message",
		func() bool { h, _ := callbacks.counts(); return h == 2*n })
	for i := range n {
		id := string(rune('0' + i))
		returned, confirmed := slices.Index(callbacks.order, "return "+id), slices.Index(callbacks.order, "confirm "+id)
		if returned < 0 || confirmed < returned {
			t.Fatalf("message %d: return at %d, confirm at %d of what was callbacks", i, returned, confirmed)
		}
	}
	if len(callbacks.errors) > 0 {
		t.Errorf("an unroutable message is confirmed by RabbitMQ; got %v", callbacks.errors[0])
	}
}

// Messages that a full queue rejects are rejected, not lost.
func TestFullQueueRejects(t *testing.T) {
	r := newRig(t, single(t, `{"queue": {"maxLength": 10, "overflow": "reject-publish"}}`), nil)
	p, callbacks := r.publisher(drivers.ConfirmWindow, nil)
	const n = 200
	for i := range n {
		if err := p.Publish(t.Context(), drivers.Message{Token: uint64(i), Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	labtest.Eventually(t, "every confirm", func() bool { h, _ := callbacks.counts(); return h == n })
	if len(callbacks.errors) == 0 || len(callbacks.errors) > n-10 {
		t.Errorf("%d of %d messages to a queue of 10 were rejected", len(callbacks.errors), n)
	}
	for _, err := range callbacks.errors {
		if !errors.Is(err, drivers.ErrRejected) {
			t.Fatalf("a refused message has the error %v", err)
		}
	}
}

// Messages have the properties of the options, besides the headers of their binding.
func TestMessageProperties(t *testing.T) {
	r := newRig(t, single(t, `{"exchange": {"type": "headers"}, "message": {"priority": 7, "expiration": "10m",
		"contentType": "text/plain", "headers": {"kind": "order", "weight": 3}}}`), nil)
	p, callbacks := r.publisher(drivers.ConfirmWindow, func(s *drivers.PublisherSpec) { s.Persistent = true })
	if err := p.Publish(t.Context(), drivers.Message{Body: []byte("body")}); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, "the confirm", func() bool { n, _ := callbacks.counts(); return n == 1 })
	var got amqp.Delivery
	err := r.session.administer(r.context(), anywhere, func(ch *amqp.Channel) (err error) {
		got, _, err = ch.Get(r.session.options.queueName(r.topology, 0, 0), true)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	headers := amqp.Table{"kind": "order", "weight": int64(3), "q": int64(0), "k": int64(0)}
	if got.Priority != 7 || got.Expiration != "600000" || got.ContentType != "text/plain" ||
		got.DeliveryMode != amqp.Persistent || !maps.Equal(got.Headers, headers) {
		t.Errorf("message has priority %d, expiration %q, content type %q, delivery mode %d and headers %v", got.Priority,
			got.Expiration, got.ContentType, got.DeliveryMode, got.Headers)
	}
	d, err := r.session.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"priority":7,"expiration":"10m0s","contentType":"text/plain","headers":{"kind":"order","weight":3}}`
	if d.Settings["message"] != want || d.Settings["consumer"] != "" {
		t.Errorf("the settings are %v; want message: %s", d.Settings, want)
	}
}

// The broker rejects a second consumer of a queue with an exclusive one.
func TestExclusiveConsumer(t *testing.T) {
	r := newRig(t, single(t, `{"consumer": {"exclusive": true}}`), nil)
	first, _ := r.consumer()
	second := func() error {
		_, err := first.conn.Consumer(r.context(), first.spec, func([]drivers.Delivery) {})
		return err
	}
	if err := second(); err == nil || !strings.Contains(err.Error(), "exclusive") {
		t.Errorf("the second consumer of the queue: %v; want an error about exclusive use", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := second(); err != nil {
		t.Errorf("a consumer after the first one was closed: %v", err)
	}
}

// A consumer with a higher priority receives all messages, as long as it accepts more.
func TestPriorityOfConsumers(t *testing.T) {
	r := newRig(t, single(t, `{}`), nil)
	_, low := r.consumer()
	r.session.options.Consumer.Arguments = map[string]any{"x-priority": json.Number("10")}
	_, high := r.consumer()
	p, _ := r.publisher(drivers.ConfirmWindow, nil)
	const n = 50
	for range n {
		if err := p.Publish(t.Context(), drivers.Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	labtest.Eventually(t, "all messages", func() bool {
		_, a := low.counts()
		_, b := high.counts()
		return a+b == n
	})
	if _, received := low.counts(); received > 0 {
		t.Errorf("the consumer with the lower priority received %d of %d messages", received, n)
	}
}

// Closing a connection just after an unconfirmed message does not lose it.
func TestConnectionPerMessageLosesNothing(t *testing.T) {
	r := newRig(t, single(t, `{}`), nil)
	_, got := r.consumer()
	const n = 100
	for range n {
		p, _ := r.publisher(drivers.ConnectionPerMessage, nil) // over a connection of its own
		if err := p.Publish(t.Context(), drivers.Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Close(), p.conn.Close()); err != nil {
			t.Fatal(err)
		}
	}
	labtest.Eventually(t, "every message", func() bool { _, received := got.counts(); return received == n })
}

// A thousand bindings take only a part of a cell's preparation, and each routes to its queue once.
func TestThousandBindings(t *testing.T) {
	for _, kind := range []string{"direct", "topic", "headers"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			r := newRig(t, single(t, `{"exchange": {"type": "`+kind+`"}}`),
				func(t *drivers.Topology) { t.Bindings = 1000 })
			t.Logf("declared in %v", time.Since(begun))
			_, got := r.consumer()
			p, callbacks := r.publisher(drivers.ConfirmWindow, func(s *drivers.PublisherSpec) { s.Mandatory = true })
			for key := range uint32(1000) {
				if err := p.Publish(t.Context(), drivers.Message{Token: uint64(key), Key: key,
					Body: []byte("x")}); err != nil {
					t.Fatal(err)
				}
			}
			labtest.Eventually(t, "a message by each binding",
				func() bool { _, received := got.counts(); return received == 1000 })
			if h, _ := callbacks.counts(); h > 1000 {
				t.Errorf("%d messages came back as unroutable", h-1000)
			}
		})
	}
}

// The quorum queues of RabbitMQ 4.0 drop a rejected message at its 21st delivery, which is marked as the last one.
// Those of RabbitMQ 3.10 have no limit, and those of 4.3 do not count rejections. An argument turns the limit off.
func TestDeliveryLimitOfEachRelease(t *testing.T) {
	for _, c := range []struct {
		part, arguments string
		limit           int64 // 0: none
	}{
		{"RABBITMQ", "{}", 0}, {"RABBITMQ4", "{}", 21}, {"RABBITMQ4", `{"x-delivery-limit": -1}`, 0},
		{"RABBITMQ43", "{}", 0}, {"RABBITMQ", `{"x-delivery-limit": 0}`, 1}, {"RABBITMQ4", `{"x-delivery-limit": 0}`, 1},
		{"RABBITMQ43", `{"x-delivery-limit": 0}`, 0},
	} {
		t.Run(c.part+" "+c.arguments, func(t *testing.T) {
			r := newRig(t, labtest.Options(t, map[string]any{"url": lab.Variable(t, "LOCKSTEP_"+c.part+"_URL")},
				`{"queue": {"type": "quorum", "arguments": `+c.arguments+`}}`), nil)
			p, callbacks := r.publisher(drivers.ConfirmEach, nil)
			for _, body := range []string{"rejected", "accepted"} { // the second shows that nothing else comes
				if err := p.Publish(t.Context(), drivers.Message{Body: []byte(body)}); err != nil {
					t.Fatal(err)
				}
			}
			labtest.Eventually(t, "the confirms", func() bool { n, _ := callbacks.counts(); return n == 2 })
			const enough = 30
			var deliveries, last atomic.Int64 // of the first message
			accepted := make(chan struct{})
			r.consume(1, 1, func(k drivers.Consumer, batch []drivers.Delivery) {
				if string(batch[0].Body) == "accepted" {
					close(accepted)
					k.Ack(1)
					return
				}
				n := deliveries.Add(1)
				if batch[0].Last {
					last.Store(n)
				}
				if n < enough {
					k.Nack(1)
				} else {
					k.Ack(1)
				}
			})
			labtest.Eventually(t, "the message that is accepted", func() bool {
				select {
				case <-accepted:
					return c.limit > 0 || deliveries.Load() == enough
				default:
					return false
				}
			})
			want := cmp.Or(c.limit, enough)
			if n := deliveries.Load(); n != want || last.Load() != c.limit {
				t.Errorf("%d deliveries, of which number %d was the last; want %d and %d", n, last.Load(), want, c.limit)
			}
		})
	}
}

// Queues are classic also in a vhost whose default type is quorum.
func TestClassicQueueInAVhostOfQuorumQueues(t *testing.T) {
	admin := newRig(t, partOptions(t, "RABBITMQ4", `{}`), nil).session
	vhost := labtest.Topology(nil).Name
	at := strings.TrimSuffix(lab.Variable(t, "LOCKSTEP_RABBITMQ4_URL"), "/") + "/" + vhost
	if err := admin.api.call(t.Context(), http.MethodPut, nil, map[string]any{"default_queue_type": quorum}, nil,
		"vhosts", vhost); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.api.call(context.Background(), http.MethodDelete, nil, nil, nil, "vhosts", vhost); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t, partOptions(t, "RABBITMQ4", fmt.Sprintf(`{"url": %q}`, at)), nil)
	var queue struct{ Type string }
	name := r.session.options.queueName(r.topology, 0, 0)
	if err := r.session.api.get(r.context(), nil, &queue, "queues", vhost, name); err != nil {
		t.Fatal(err)
	}
	if queue.Type != classic {
		t.Errorf("the queue is of type %s, want classic", queue.Type)
	}
}

// The error of an existing queue or exchange that is missing names the option to check.
func TestMissingExistingObjects(t *testing.T) {
	r := newRig(t, single(t, `{}`), nil)
	missing := r.topology
	missing.Existing = "missing"
	err := r.session.Verify(r.context(), missing)
	if err == nil || !strings.Contains(err.Error(), "check topology.existing and the vhost") {
		t.Errorf("a missing queue: %v", err)
	}
	missing.Existing = r.session.options.queueName(r.topology, 0, 0)
	r.session.options.Exchange.Existing = "missing"
	err = r.session.Verify(r.context(), missing)
	if err == nil || !strings.Contains(err.Error(), "check exchange.existing and the vhost") {
		t.Errorf("a missing exchange: %v", err)
	}
}

// The delivery limit is the one of the release, unless the options set one.
func TestDeliveryLimit(t *testing.T) {
	for _, c := range []struct {
		name, options  string
		release, minor int
		want           int64
	}{
		{"release 3", `{"queue": {"type": "quorum"}}`, 3, 0, unlimited},
		{"release 4", `{"queue": {"type": "quorum"}}`, 4, 0, 20},
		{"unknown release", `{"queue": {"type": "quorum"}}`, 0, 0, unlimited},
		{"classic", `{}`, 4, 0, unlimited},
		{"stream", `{"queue": {"type": "stream"}}`, 4, 0, unlimited},
		{"named", `{"queue": {"type": "quorum", "arguments": {"x-delivery-limit": 7}}}`, 4, 0, 7},
		{"off", `{"queue": {"type": "quorum", "arguments": {"x-delivery-limit": -1}}}`, 4, 0, unlimited},
		{"by policy", `{"queue": {"type": "quorum"}, "policy": {"delivery-limit": 7}}`, 3, 0, 7},
		{"by both", `{"queue": {"type": "quorum", "arguments": {"x-delivery-limit": 9}}, "policy": {"delivery-limit": 7}}`,
			4, 0, 7},
		{"none", `{"queue": {"type": "quorum", "arguments": {"x-delivery-limit": 0}}}`, 4, 2, 0},
		{"none, of failures", `{"queue": {"type": "quorum", "arguments": {"x-delivery-limit": 0}}}`, 4, 3, unlimited},
	} {
		o, err := kit.Decode[options]("rabbitmq", schematest.Fill(t, driver{}, labtest.Options(t,
			map[string]any{"url": "amqp://h", "management": "http://h"}, c.options)))
		if err != nil {
			t.Fatal(err)
		}
		if got := o.deliveryLimit(c.release, c.minor); got != c.want {
			t.Errorf("%s: the limit is %v, want %v", c.name, got, c.want)
		}
	}
}

// Time in which the broker accepts nothing is recorded as the broker's.
func TestMemoryAlarmBlocks(t *testing.T) {
	control := lab.Variable(t, "LOCKSTEP_RABBITMQ_CTL")
	set := func(watermark string) {
		if text, err := exec.Command(control, "set_vm_memory_high_watermark", "absolute",
			watermark).CombinedOutput(); err != nil {
			t.Fatalf("set memory watermark: %v\n%s", err, text)
		}
	}
	r := newRig(t, single(t, `{}`), nil)
	p, _ := r.publisher(drivers.FireAndForget, nil)
	if err := p.Publish(t.Context(), drivers.Message{Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set("1GB") })
	set("1MB")
	await := func(want drivers.EventKind) (detail string) {
		t.Helper()
		// RabbitMQ notifies a connection that it is blocked only when it publishes next.
		_ = p.Publish(t.Context(), drivers.Message{Body: []byte("x")})
		select {
		case got := <-r.events:
			if got.kind != want {
				t.Fatalf("event %q, want %q", got, want)
			}
			return got.detail
		case <-time.After(labtest.Wait):
			t.Fatalf("no event %q", want)
			return ""
		}
	}
	blocked := await(drivers.EventBlocked)
	if why := await(drivers.EventNotice); !strings.Contains(why, blocked) || !strings.Contains(why, "memory") {
		t.Errorf("the reason of the block of %s is told as %q", blocked, why)
	}
	set("1GB")
	if unblocked := await(drivers.EventUnblocked); unblocked != blocked || blocked != p.conn.address {
		t.Errorf("blocked %q, unblocked %q: a block ends only with its own detail, the address %s", blocked, unblocked,
			p.conn.address)
	}
}

// nodeOf returns the broker's node for the connection of a publisher or consumer.
func nodeOf(t *testing.T, r *rig, c *conn) string {
	t.Helper()
	var overview struct {
		Listeners []struct {
			Node string `json:"node"`
			Port int    `json:"port"`
		} `json:"listeners"`
	}
	if err := r.session.api.get(t.Context(), nil, &overview, "overview"); err != nil {
		t.Fatal(err)
	}
	for _, listener := range overview.Listeners {
		if listener.Port == c.amqp.RemoteAddr().(*net.TCPAddr).Port {
			return listener.Node
		}
	}
	t.Fatalf("no node listens at %s", c.amqp.RemoteAddr())
	return ""
}

// Queues and connections are on the configured nodes. Cells about traffic between nodes depend on it.
func TestPlacement(t *testing.T) {
	kinds := map[string]string{
		"classic":  `{}`,
		"quorum":   `{"queue": {"type": "quorum"}}`,
		"stream":   `{"queue": {"type": "stream"}}`,
		"mirrored": `{"policy": {"ha-mode": "all"}}`,
	}
	for kind, options := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, cluster(t, options), func(t *drivers.Topology) { t.QueueNode = "2" })
			queue := r.session.options.queueName(r.topology, 0, 0)
			leader, _, err := r.session.findQueue(t.Context(), queue)
			if err != nil {
				t.Fatal(err)
			}
			if got := nodeOf(t, r, r.connect(drivers.PublisherRole, "2", 0)); got != leader {
				t.Errorf("the queue was to be on node 2, %s; it is on %s", got, leader)
			}
			if got := nodeOf(t, r, r.connect(drivers.PublisherRole, "leader", 0)); got != leader {
				t.Errorf("publisher at the leader is at %s, the leader at %s", got, leader)
			}
			if kind == "classic" {
				return
			}
			if got := nodeOf(t, r, r.connect(drivers.ConsumerRole, "follower", 0)); got == leader {
				t.Errorf("consumer at a follower is at the leader, %s", got)
			}
		})
	}
}

// A mirrored queue is measured only after its mirrors exist.
func TestPolicyMirrors(t *testing.T) {
	r := newRig(t, cluster(t, `{"policy": {"ha-mode": "all", "ha-sync-mode": "automatic"}}`), nil)
	_, followers, err := r.session.findQueue(t.Context(), r.session.options.queueName(r.topology, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if len(followers) != 2 {
		t.Errorf("mirrors are on %v, want two", followers)
	}
	if err := r.session.Teardown(t.Context(), r.topology); err != nil {
		t.Fatal(err)
	}
	err = r.session.api.call(t.Context(), http.MethodGet, nil, nil, nil, "policies", "/", r.topology.Name)
	if !errors.Is(err, errNotThere) {
		t.Errorf("the policy is left behind after Teardown: %v", err)
	}
}

// A stream's consumer that replaces another one continues after the last acknowledged message.
func TestStreamGoesOn(t *testing.T) {
	r := newRig(t, single(t, `{"queue": {"type": "stream"}}`), nil)
	p, callbacks := r.publisher(drivers.ConfirmWindow, nil)
	send := func(n int) {
		for range n {
			if err := p.Publish(t.Context(), drivers.Message{Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(50)
	got := &notes{}
	first := r.consume(100, 10, func(k drivers.Consumer, batch []drivers.Delivery) {
		_, before := got.counts()
		if n := min(20-before, len(batch)); n > 0 {
			k.Ack(n)
		}
		got.take(batch)
	})
	labtest.Eventually(t, "the first 50", func() bool { _, received := got.counts(); return received == 50 })
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	send(30)
	labtest.Eventually(t, "all confirms", func() bool { h, _ := callbacks.counts(); return h == 80 })
	_, rest := r.consumer()
	labtest.Eventually(t, "the other 60", func() bool { _, received := rest.counts(); return received >= 60 })
	time.Sleep(100 * time.Millisecond)
	if _, received := rest.counts(); received != 60 {
		t.Errorf("the second consumer received %d messages, 60 were left", received)
	}
}

// A publisher or consumer whose channel ends does not break its connection.
func TestChannelEndsAlone(t *testing.T) {
	r := newRig(t, single(t, `{}`), nil)
	p, _ := r.publisher(drivers.FireAndForget, nil)
	c, _ := r.consumer()
	if err := r.session.Teardown(t.Context(), r.topology); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(t.Context(), drivers.Message{Body: []byte("to no exchange")}); err != nil {
		t.Fatal(err)
	}
	for what, part := range map[string]drivers.Ended{"publisher": p, "consumer": c} {
		select {
		case <-part.Done():
		case <-time.After(labtest.Wait):
			t.Fatalf("the %s does not end", what)
		}
		if !errors.Is(part.Err(), drivers.ErrClosed) {
			t.Errorf("the %s ends with %v", what, part.Err())
		}
	}
	if err := r.session.Setup(t.Context(), r.topology); err != nil {
		t.Fatal(err)
	}
	again, err := p.conn.Publisher(t.Context(), p.spec)
	if err != nil {
		t.Fatalf("another publisher on the connection: %v", err)
	}
	if err := errors.Join(again.Close(), p.conn.Err(), c.conn.Err()); err != nil {
		t.Error(err)
	}
}

func TestDescribe(t *testing.T) {
	r := newRig(t, cluster(t, `{"queue": {"type": "quorum", "maxLength": 5}}`), nil)
	d, err := r.session.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d.Product != "RabbitMQ" || d.Version == "" || len(d.Members) != 3 {
		t.Errorf("a cluster of three RabbitMQ nodes says of itself: %+v", d)
	}
	if d.Settings["memory_limit"] == "" || !strings.Contains(d.Settings["queue_arguments"], `"x-max-length":5`) {
		t.Errorf("settings lack what matters: %v", d.Settings)
	}
	if text := fmt.Sprint(d); strings.Contains(text, "guest") {
		t.Errorf("the description holds credentials: %s", text)
	}
}

// Each release accepts queues of each type that are placed: by the driver if the same server is listed twice, otherwise
// by the server.
func TestPlacementOfEachRelease(t *testing.T) {
	for _, part := range []string{"RABBITMQ", "RABBITMQ4", "RABBITMQ43"} {
		url := lab.Variable(t, "LOCKSTEP_"+part+"_URL")
		for _, kind := range []string{classic, quorum, stream} {
			for _, address := range []map[string]any{{"urls": []string{url, url}}, {"url": url}} {
				r := newRig(t, labtest.Options(t, address, fmt.Sprintf(`{"queue": {"type": %q}}`, kind)),
					func(t *drivers.Topology) { t.Queues, t.QueueNode = 3, drivers.SpreadNode })
				r.connect(drivers.PublisherRole, drivers.SpreadNode, 1)
			}
		}
	}
}

// Behind one address, the server spreads the leaders of queues.
func TestSpreadBehindOneAddress(t *testing.T) {
	for _, kind := range []string{classic, quorum, stream} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, labtest.Options(t, map[string]any{"url": lab.Variable(t, "LOCKSTEP_RABBITMQ3_BALANCED"),
				"management": lab.Variable(t, "LOCKSTEP_RABBITMQ3_MANAGEMENT")}, fmt.Sprintf(`{"queue": {"type": %q}}`, kind)),
				func(t *drivers.Topology) { t.Queues, t.QueueNode = 5, drivers.SpreadNode })
			leaders, err := r.session.Leaders(r.context(), r.topology)
			if err != nil {
				t.Fatal(err)
			}
			if counts := slices.Sorted(maps.Values(leaders)); !slices.Equal(counts, []int{1, 2, 2}) {
				t.Errorf("leaders are on %v, want 1, 2 and 2", leaders)
			}
		})
	}
}

// With spread, the user's argument places queues, also a single one. With a chosen node, the driver does.
func TestLocatorOfTheUser(t *testing.T) {
	for node, want := range map[drivers.Node]string{drivers.SpreadNode: "balanced", drivers.AnyNode: "balanced",
		"1": "client-local"} {
		r := newRig(t, cluster(t, `{"queue": {"type": "quorum", "arguments": {"x-queue-leader-locator": "balanced"}}}`),
			func(t *drivers.Topology) { t.QueueNode = node })
		var queue struct {
			Arguments map[string]any `json:"arguments"`
		}
		if err := r.session.api.get(r.context(), nil, &queue, "queues", "/",
			r.session.options.queueName(r.topology, 0, 0)); err != nil {
			t.Fatal(err)
		}
		if got := queue.Arguments["x-queue-leader-locator"]; got != want {
			t.Errorf("node %s: the locator is %v, want %s", node, got, want)
		}
	}
}

// Spread leaders of queues and connections differ by at most one between nodes.
func TestSpread(t *testing.T) {
	for kind, options := range map[string]string{"classic": `{}`, "quorum": `{"queue": {"type": "quorum"}}`,
		"stream": `{"queue": {"type": "stream"}}`} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, cluster(t, options), func(t *drivers.Topology) {
				t.Queues, t.QueueNode = 5, drivers.SpreadNode
			})
			leaders, publishers, consumers := map[string]int{}, map[string]int{}, map[string]int{}
			at := map[string]int{}
			for q := range r.topology.Queues {
				leader, _, err := r.session.findQueue(t.Context(), r.session.options.queueName(r.topology, 0, q))
				if err != nil {
					t.Fatal(err)
				}
				leaders[leader]++
				p := r.connect(drivers.PublisherRole, drivers.SpreadNode, q)
				publishers[nodeOf(t, r, p)]++
				at[p.Node()]++
				consumers[nodeOf(t, r, r.connect(drivers.ConsumerRole, drivers.SpreadNode, q))]++
			}
			reported, err := r.session.Leaders(r.context(), r.topology)
			if err != nil {
				t.Fatal(err)
			}
			for what, nodes := range map[string]map[string]int{"leaders": leaders, "publishers": publishers,
				"consumers": consumers, "reported leaders": reported, "reported nodes of publishers": at} {
				counts := slices.Sorted(maps.Values(nodes))
				if !slices.Equal(counts, []int{1, 2, 2}) {
					t.Errorf("%s are on %v, want 1, 2 and 2", what, nodes)
				}
			}
		})
	}
}

// failingWrites is a connection whose writes fail when fails is set. Reads wait, so that nothing else reports the
// break.
type failingWrites struct {
	net.Conn
	fails *atomic.Bool
}

func (f failingWrites) Write(p []byte) (int, error) {
	if f.fails.Load() {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
	}
	return f.Conn.Write(p)
}

// The library returns the error of a write before it marks the connection as closed. Each such error wraps ErrClosed.
func TestFailedWriteIsAClosedLink(t *testing.T) {
	r := newRig(t, single(t, `{}`), nil)
	var fails atomic.Bool
	dial := r.session.env.Dial
	r.session.env.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return failingWrites{conn, &fails}, err
	}
	for range 20 {
		fails.Store(false)
		p, _ := r.publisher(drivers.FireAndForget, nil)
		fails.Store(true)
		if err := p.Publish(t.Context(), drivers.Message{Body: []byte("x")}); !errors.Is(err, drivers.ErrClosed) {
			t.Fatalf("Publish over a broken connection gives %v", err)
		}
	}
}

// TestExistingExchange publishes through an existing exchange, with the name of the queue as the routing key.
func TestExistingExchange(t *testing.T) {
	r := newRig(t, single(t, `{}`), nil)
	existing, exchange := r.topology, r.topology.Name
	existing.Existing = r.session.options.queueName(r.topology, 0, 0)
	err := r.session.administer(r.context(), anywhere, func(ch *amqp.Channel) error {
		return ch.QueueBind(existing.Existing, existing.Existing, exchange, false, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	open := func(exchange string) *session {
		return labtest.Open(t, driver{}, single(t, `{"exchange": {"existing": "`+exchange+`"}}`), labtest.Env(nil)).(*session)
	}
	if err := open(exchange+"-missing").Verify(t.Context(), existing); err == nil ||
		!strings.Contains(err.Error(), exchange+"-missing") {
		t.Errorf("a missing exchange: %v", err)
	}
	own := &rig{t: t, session: open(exchange), topology: existing}
	if err := own.session.Verify(t.Context(), existing); err != nil {
		t.Fatal(err)
	}
	in, got := own.consumer()
	p, _ := own.publisher(drivers.ConfirmWindow, nil)
	if err := p.Publish(t.Context(), drivers.Message{Body: []byte("body")}); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, "the message", func() bool { _, n := got.counts(); return n == 1 })
	if p.exchange != exchange || in.Err() != nil {
		t.Errorf("published to exchange %q; consumer: %v", p.exchange, in.Err())
	}
}
