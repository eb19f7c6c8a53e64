package relay

import (
	"bytes"
	"errors"
	"net"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// cluster is the URL of the first node of the lab's cluster: nobody kills that one while these tests run.
func cluster(t *testing.T) *url.URL {
	t.Helper()
	value := os.Getenv("LOCKSTEP_RABBITMQ3_URLS")
	if value == "" && os.Getenv("LOCKSTEP_LAB") == "required" {
		t.Fatal("LOCKSTEP_RABBITMQ3_URLS is not set although LOCKSTEP_LAB is \"required\"")
	}
	if value == "" {
		t.Skip(`needs a real RabbitMQ: run "go run ./test/lab run rabbitmq3 -- go test ./test/relay"`)
	}
	first, _, _ := strings.Cut(value, ",")
	u, err := url.Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// rig is a relay before a real broker; at the end of the test nothing of it is left.
type rig struct {
	t *testing.T
	*Relay
	url string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	target := cluster(t)
	before := runtime.NumGoroutine()
	r, err := Start(target.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	})
	through := *target
	through.Host = r.Addr()
	return &rig{t: t, Relay: r, url: through.String()}
}

func (r *rig) connect() *amqp.Connection {
	r.t.Helper()
	conn, err := amqp.Dial(r.url)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (r *rig) channel(conn *amqp.Connection) *amqp.Channel {
	r.t.Helper()
	ch, err := conn.Channel()
	if err != nil {
		r.t.Fatal(err)
	}
	return ch
}

// queue declares one that goes away by itself.
func (r *rig) queue(ch *amqp.Channel) string {
	r.t.Helper()
	q, err := ch.QueueDeclare("", false, false, false, false, amqp.Table{"x-expires": 60_000})
	if err != nil {
		r.t.Fatal(err)
	}
	return q.Name
}

func (r *rig) publish(ch *amqp.Channel, to string, body []byte) {
	r.t.Helper()
	if err := ch.PublishWithContext(r.t.Context(), "", to, false, false, amqp.Publishing{Body: body}); err != nil {
		r.t.Fatal(err)
	}
}

// get takes a message that has been confirmed, or sent over a connection that was closed since: it has to be there.
func (r *rig) get(ch *amqp.Channel, from string) amqp.Delivery {
	r.t.Helper()
	d, ok, err := ch.Get(from, true)
	if err != nil || !ok {
		r.t.Fatalf("take a message from %s: there %v, error %v", from, ok, err)
	}
	return d
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// The whole point: as many client connections as there are messages, a handful at the broker; and closing a connection
// means that the broker has the message.
func TestRelayPoolsConnections(t *testing.T) {
	r := newRig(t)
	ch := r.channel(r.connect())
	queue := r.queue(ch)
	const n = 200
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for range n / 4 {
				conn, err := amqp.Dial(r.url)
				if err != nil {
					t.Errorf("worker %d: %v", worker, err)
					return
				}
				one, err := conn.Channel()
				if err == nil {
					err = one.PublishWithContext(t.Context(), "", queue, false, false, amqp.Publishing{Body: []byte("x")})
				}
				if err = errors.Join(err, conn.Close()); err != nil {
					t.Errorf("worker %d: %v", worker, err)
					return
				}
			}
		})
	}
	wg.Wait()
	q, err := ch.QueueDeclarePassive(queue, false, false, false, false, amqp.Table{"x-expires": 60_000})
	if err != nil || q.Messages != n {
		t.Errorf("%d messages are in the queue, want %d (%v)", q.Messages, n, err)
	}
	if s := r.Stats(); s.Clients != n+1 || s.Upstreams != 1 || s.Channels != n+1 {
		t.Errorf("%+v, want %d clients with a channel each over one connection", s, n+1)
	}
}

// More channels than one connection takes need another; a channel that was given back is used again.
func TestRelayGrows(t *testing.T) {
	r := newRig(t)
	conn := r.connect()
	var last *amqp.Channel
	for range channelsPerUpstream + 1 {
		last = r.channel(conn)
	}
	queue := r.queue(last)
	r.publish(last, queue, []byte("over the second"))
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	if d := r.get(r.channel(conn), queue); string(d.Body) != "over the second" {
		t.Errorf("got %q", d.Body)
	}
	if s := r.Stats(); s.Upstreams != 2 {
		t.Errorf("%d connections to the broker for %d channels at a time, want 2", s.Upstreams, channelsPerUpstream+1)
	}
}

// What one client left on a channel must not reach the next: confirms counted on, a consumer, unacknowledged messages.
func TestRelayLeavesChannelsClean(t *testing.T) {
	r := newRig(t)
	keeper := r.channel(r.connect())
	queue := r.queue(keeper)

	raw, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	first, err := amqp.Open(raw, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "guest", Password: "guest"}}, Vhost: "/"})
	if err != nil {
		t.Fatal(err)
	}
	ch := r.channel(first)
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		confirm, err := ch.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{Body: []byte("again")})
		if err != nil || !confirm.Wait() {
			t.Fatalf("publish with confirm: %v", err)
		}
		<-deliveries
	}
	_ = raw.Close() // as a process dies

	state := func() (q amqp.Queue) {
		q, err := keeper.QueueDeclarePassive(queue, false, false, false, false, amqp.Table{"x-expires": 60_000})
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	eventually(t, "the broker has the messages back", func() bool { return state().Messages == 3 })
	if n := state().Consumers; n != 0 {
		t.Errorf("%d consumers of a client that is gone", n)
	}
	next := r.channel(r.connect())
	if err := next.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirm, err := next.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{Body: []byte("new")})
	if err != nil {
		t.Fatal(err)
	}
	if !confirm.Wait() || confirm.DeliveryTag != 1 {
		t.Errorf("the first confirm on a reused channel is number %d", confirm.DeliveryTag)
	}
	if n := r.Stats().Upstreams; n != 1 {
		t.Errorf("%d connections to the broker: the channel was not reused", n)
	}
}

// A client's mistake ends its own channel and nothing else.
func TestRelayKeepsErrorsApart(t *testing.T) {
	r := newRig(t)
	conn := r.connect()
	other, faulty := r.channel(r.connect()), r.channel(conn)
	queue := r.queue(other)
	ends := faulty.NotifyClose(make(chan *amqp.Error, 1))
	if err := faulty.PublishWithContext(t.Context(), "there is no such exchange", "", false, false, amqp.Publishing{}); err != nil {
		t.Fatal(err)
	}
	select {
	case why := <-ends:
		if why == nil || why.Code != amqp.NotFound {
			t.Errorf("the channel ended with %v, want not found", why)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the client does not learn of its mistake")
	}
	r.publish(r.channel(conn), queue, []byte("same connection"))
	r.publish(other, queue, []byte("other client"))
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := other.Confirm(false); err != nil {
		t.Error(err)
	}
	eventually(t, "both messages are there", func() bool {
		q, err := other.QueueDeclarePassive(queue, false, false, false, false, amqp.Table{"x-expires": 60_000})
		return err == nil && q.Messages == 2
	})
	if n := r.Stats().Upstreams; n != 1 {
		t.Errorf("%d connections to the broker: the mistake ended one", n)
	}
}

// Bodies of several frames pass whole, and mandatory messages come back.
func TestRelayPassesBodies(t *testing.T) {
	r := newRig(t)
	ch := r.channel(r.connect())
	queue := r.queue(ch)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, frameMost - 8, frameMost - 7, 3 * frameMost} {
		body := bytes.Repeat([]byte{0xCE, 1, 0}, size/3+1)[:size]
		confirm, err := ch.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{Body: body})
		if err != nil || !confirm.Wait() {
			t.Fatalf("publish %d bytes: %v", size, err)
		}
		if d := r.get(ch, queue); !bytes.Equal(d.Body, body) {
			t.Errorf("%d bytes came back as %d others", size, len(d.Body))
		}
	}
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	if err := ch.PublishWithContext(t.Context(), "", "nowhere-"+queue, true, false, amqp.Publishing{Body: []byte("back")}); err != nil {
		t.Fatal(err)
	}
	select {
	case back := <-returns:
		if string(back.Body) != "back" {
			t.Errorf("%q came back", back.Body)
		}
	case <-time.After(10 * time.Second):
		t.Error("an unroutable message did not come back")
	}
}
