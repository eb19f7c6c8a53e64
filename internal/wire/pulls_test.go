package wire

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The tests below state how the embedded server handles pulls of another account: pulls that expire, and consumers of
// the same name (issues 2686, 6149 and 6547 of nats-server). Lockstep makes no such pulls: see
// docs/decisions/control-plane.md.

// pulls is the configuration of two accounts. The second one has no JetStream and may pull from consumers of the first.
const pulls = `jetstream {store_dir: %q}
accounts {
  A {
    jetstream: enabled, users: [{user: a, password: a}]
    exports: [{service: "$JS.API.CONSUMER.MSG.NEXT.>", response_type: stream}, {service: "$JS.ACK.>"}]
  }
  B {
    users: [{user: b, password: b}]
    imports: [{service: {account: A, subject: "$JS.API.CONSUMER.MSG.NEXT.>"}}, {service: {account: A, subject: "$JS.ACK.>"}}]
  }
}`

// twoAccounts starts a server with streams of these names, each with a consumer c. The client is of the other account.
func twoAccounts(t *testing.T, streams ...string) (js jetstream.JetStream, client *nats.Conn) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "nats.conf")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(file, fmt.Appendf(nil, pulls, dir), 0o600))
	opts, err := server.ProcessConfigFile(file)
	must(err)
	opts.DontListen, opts.NoSigs, opts.NoLog = true, true, true
	ns, err := server.NewServer(opts)
	must(err)
	ns.Start()
	if !ns.ReadyForConnections(hang) {
		t.Fatal("the server does not start")
	}
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	connect := func(user string) *nats.Conn {
		nc, err := nats.Connect("", nats.InProcessServer(ns), nats.UserInfo(user, user))
		must(err)
		t.Cleanup(nc.Close)
		return nc
	}
	js, err = jetstream.New(connect("a"))
	must(err)
	for _, name := range streams {
		s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name},
			Storage: jetstream.MemoryStorage})
		must(err)
		_, err = s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
		must(err)
	}
	return js, connect("b")
}

// pull requests one message of a stream's consumer.
func pull(ctx context.Context, nc *nats.Conn, stream string, expires time.Duration) (*nats.Msg, error) {
	return nc.RequestWithContext(ctx, "$JS.API.CONSUMER.MSG.NEXT."+stream+".c",
		fmt.Appendf(nil, `{"batch":1,"expires":%d}`, expires))
}

// TestExpiredPullsTakeNoMessage proves that a pull that has expired gets a status, and no message that comes later.
func TestExpiredPullsTakeNoMessage(t *testing.T) {
	js, client := twoAccounts(t, "S")
	for n := range 3 {
		for range 3 {
			m, err := pull(t.Context(), client, "S", 50*time.Millisecond)
			if err != nil || m.Header.Get("Status") != "408" {
				t.Fatalf("a pull without a message: %+v, %v; want the status 408", m, err)
			}
		}
		if _, err := js.Publish(t.Context(), "S", fmt.Append(nil, n)); err != nil {
			t.Fatal(err)
		}
		m, err := pull(t.Context(), client, "S", hang)
		if err != nil || string(m.Data) != fmt.Sprint(n) {
			t.Fatalf("after pulls that have expired: %+v, %v; want the message %d", m, err, n)
		}
		if _, err := client.RequestWithContext(t.Context(), m.Reply, []byte("+ACK")); err != nil {
			t.Fatal(err)
		}
	}
	c, err := js.Consumer(t.Context(), "S", "c")
	if err != nil {
		t.Fatal(err)
	}
	if i := c.CachedInfo(); i.Delivered.Consumer != 3 || i.NumAckPending != 0 || i.NumWaiting != 0 {
		t.Errorf("%d deliveries of 3 messages, %d without an acknowledgement, %d pulls wait", i.Delivered.Consumer,
			i.NumAckPending, i.NumWaiting)
	}
}

// TestEqualConsumerNames proves that pulls and acknowledgements of consumers with the same name do not affect the
// consumer of another stream.
func TestEqualConsumerNames(t *testing.T) {
	js, client := twoAccounts(t, "S", "T")
	for _, stream := range []string{"S", "T"} {
		if _, err := js.Publish(t.Context(), stream, []byte("of "+stream)); err != nil {
			t.Fatal(err)
		}
	}
	replies := map[string]string{}
	for _, stream := range []string{"T", "S"} {
		m, err := pull(t.Context(), client, stream, hang)
		if err != nil || string(m.Data) != "of "+stream {
			t.Fatalf("a pull of stream %s: %+v, %v", stream, m, err)
		}
		replies[stream] = m.Reply
	}
	if _, err := client.RequestWithContext(t.Context(), replies["S"], []byte("+ACK")); err != nil {
		t.Fatal(err)
	}
	for stream, pending := range map[string]int{"S": 0, "T": 1} {
		c, err := js.Consumer(t.Context(), stream, "c")
		if err != nil {
			t.Fatal(err)
		}
		if i := c.CachedInfo(); i.NumAckPending != pending || i.Delivered.Consumer != 1 {
			t.Errorf("stream %s after an acknowledgement of S: %d deliveries, %d without an acknowledgement; want 1, %d",
				stream, i.Delivered.Consumer, i.NumAckPending, pending)
		}
	}
}
