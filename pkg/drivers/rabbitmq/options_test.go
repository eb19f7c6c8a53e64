package rabbitmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// No error of Open contains a password, from any place in a URL.
func TestErrorsHideSecrets(t *testing.T) {
	for _, options := range []string{
		`{"url": "amqp://user:hunter2@127.0.0.1:1/"}`,
		`{"url": "amqp://user:hunter2/@127.0.0.1:1/"}`,
		`{"url": "http://user:hunter2@127.0.0.1:1/"}`,
		`{"url": "amqp://user:hunter2 @127.0.0.1:1/"}`,
		`{"url": "amqp://127.0.0.1:1/", "management": "user:hunter2@127.0.0.1"}`,
		`{"urls": ["amqp://127.0.0.1:1/", "amqp://user:hunter2@127.0.0.1:1/other"]}`,
		`{"url": "amqp://127.0.0.1:1/", "prometheus": ["user:hunter2@127.0.0.1"]}`,
	} {
		_, err := driver{}.Open(t.Context(), schematest.Fill(t, driver{}, options), drivers.Env{Dial: (&net.Dialer{}).DialContext})
		if err == nil {
			t.Fatalf("Open succeeds with %s", options)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the password is in the error: %v", err)
		}
	}
}

// Options that AMQP cannot express are rejected before anything is connected.
func TestOptionsThatAMQPCannotExpress(t *testing.T) {
	long := strings.Repeat("é", 128)
	for given, want := range map[string]string{
		`{"message": {"contentType": "` + long + `"}}`:          "message.contentType: 256 bytes: give at most 255",
		`{"message": {"contentType": "` + long[:254] + `"}}`:    "",
		`{"message": {"headers": {"` + long + `": 1}}}`:         "message.headers: a name has 256 bytes",
		`{"message": {"headers": {"` + long[:254] + `": 1}}}`:   "",
		`{"message": {"headers": {"n": 1e400}}}`:                `message.headers: table field "n"`,
		`{"message": {"headers": {"n": 1e300}}}`:                "",
		`{"consumer": {"arguments": {"` + long + `": 1}}}`:      "consumer.arguments: a name has 256 bytes",
		`{"consumer": {"arguments": {"n": -1e400}}}`:            `consumer.arguments: table field "n"`,
		`{"consumer": {"arguments": {"n": true, "s": "text"}}}`: "",
	} {
		_, err := kit.Decode[options]("rabbitmq", json.RawMessage(`{"url": "amqp://h", `+given[1:]))
		if (want == "") != (err == nil) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%.60s: %v, want %q", given, err, want)
		}
	}
}

// Without the argument, a server uses the default type of the vhost or node.
func TestQueueArgumentsNameTheType(t *testing.T) {
	for given, want := range map[string]string{`{}`: classic, `{"queue": {"type": "stream"}}`: stream} {
		o, err := kit.Decode[options]("rabbitmq", schematest.Fill(t, driver{}, `{"url": "amqp://h", `+given[1:]))
		if err != nil {
			t.Fatal(err)
		}
		if got := o.queueArguments()["x-queue-type"]; got != want {
			t.Errorf("%s: x-queue-type %v, want %s", given, got, want)
		}
	}
}

// Exhausted ports are the client's fault. The error must still show it.
func TestPortExhaustionStaysVisible(t *testing.T) {
	_, err := driver{}.Open(t.Context(), schematest.Fill(t, driver{}, `{"url": "amqp://192.0.2.1:5672/"}`), drivers.Env{
		Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)}
		},
	})
	if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("errors.Is does not find EADDRNOTAVAIL in: %v", err)
	}
}

// A broker that accepts connections and does not respond ends with the cell's deadline.
func TestSilentBrokerEndsAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				_, _ = io.Copy(io.Discard, far)
			}()
			return near, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		begun := time.Now()
		_, err := driver{}.Open(ctx, schematest.Fill(t, driver{}, `{"url": "amqp://silent:5672/"}`), drivers.Env{Dial: dial})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "silent:5672") {
			t.Errorf("want the deadline and the address, got: %v", err)
		}
		if took := time.Since(begun); took != 200*time.Millisecond {
			t.Errorf("Open took %v with a deadline of 200 ms", took)
		}
	})
}

func TestDeclare(t *testing.T) {
	one := drivers.Use{Mode: drivers.ConfirmEach, Ack: drivers.AckEach, Prefetch: 1, Queues: 1, Subscriptions: 1,
		Publishers: 1, Consumers: 1}
	with := func(change func(*drivers.Use)) drivers.Use {
		u := one
		change(&u)
		return u
	}
	const url = `"url": "amqp://h/"`
	cases := []struct {
		name, options string
		use           drivers.Use
		rejected      string // part of a reason; "": none
		check         func(drivers.Declaration) bool
	}{
		{"no url", `{}`, one, "give url", nil},
		{"both urls", `{` + url + `, "urls": ["amqp://h/"]}`, one, "not both", nil},
		{"transient is not kept", `{` + url + `}`, one, "", func(d drivers.Declaration) bool {
			return !d.Guarantees.ConfirmedKept && d.Guarantees.SentKept &&
				strings.HasPrefix(d.Label, "classic, transient messages, confirm: in memory")
		}},
		{"a transient queue", `{` + url + `, "queue": {"durable": false}}`,
			with(func(u *drivers.Use) { u.Persistent = true }), "", func(d drivers.Declaration) bool {
				return !d.Guarantees.ConfirmedKept && strings.HasPrefix(d.Label, "classic transient, confirm: in memory")
			}},
		{"persistent is kept", `{` + url + `}`, with(func(u *drivers.Use) { u.Persistent = true }), "",
			func(d drivers.Declaration) bool {
				return d.Guarantees.ConfirmedKept &&
					d.Label == "classic durable, confirm: written to disk of one node, or acknowledged by a consumer"
			}},
		{"automatic acknowledgements keep nothing", `{` + url + `}`,
			with(func(u *drivers.Use) { u.Persistent, u.Ack = true, drivers.AckAutomatic }), "",
			func(d drivers.Declaration) bool { return !d.Guarantees.ConfirmedKept && !d.Guarantees.SentKept }},
		{"the protocol of streams is named", `{` + url + `, "queue": {"type": "stream"}}`, one, "",
			func(d drivers.Declaration) bool {
				return d.Label == "stream over AMQP 0.9.1, confirm: written by the majority"
			}},
		{"sent messages of a stream are not kept", `{"urls": ["amqp://h/", "amqp://i/", "amqp://j/"], "queue": {"type": "stream"}}`,
			one, "", func(d drivers.Declaration) bool { return !d.Guarantees.SentKept && d.Guarantees.ConfirmedKept }},
		{"a stream of a cluster behind one url", `{` + url + `, "queue": {"type": "stream"}}`, one, "",
			func(d drivers.Declaration) bool { return !d.Guarantees.SentKept && d.Guarantees.NoDuplicates }},
		{"a quorum queue of a cluster behind one url", `{` + url + `, "queue": {"type": "quorum"}}`, one, "",
			func(d drivers.Declaration) bool { return !d.Guarantees.SentKept && !d.Guarantees.NoDuplicates }},
		{"mirrors in a cluster behind one url",
			`{` + url + `, "management": "http://h", "policy": {"ha-mode": "all"}}`, one, "",
			func(d drivers.Declaration) bool { return d.Guarantees.SentKept && !d.Guarantees.NoDuplicates }},
		{"a queue of one node", `{` + url + `}`, one, "",
			func(d drivers.Declaration) bool { return d.Guarantees.SentKept && d.Guarantees.NoDuplicates }},
		{"a queue that drops keeps nothing", `{` + url + `, "queue": {"maxLength": 5}}`,
			with(func(u *drivers.Use) { u.Persistent = true }), "",
			func(d drivers.Declaration) bool { return !d.Guarantees.ConfirmedKept && !d.Guarantees.SentKept }},
		{"a queue that refuses keeps what it confirmed",
			`{` + url + `, "queue": {"maxLength": 5, "overflow": "reject-publish"}}`,
			with(func(u *drivers.Use) { u.Persistent = true }), "",
			func(d drivers.Declaration) bool { return d.Guarantees.ConfirmedKept && !d.Guarantees.SentKept }},
		{"stream has no automatic ack", `{` + url + `, "queue": {"type": "stream"}}`, one, "",
			func(d drivers.Declaration) bool {
				return !slices.Contains(d.Capabilities.Acks, drivers.AckAutomatic) && !d.Capabilities.UnlimitedPrefetch
			}},
		{"two consumers of one stream", `{` + url + `, "queue": {"type": "stream"}}`,
			with(func(u *drivers.Use) { u.Consumers = 2 }), "every consumer of a stream", nil},
		{"node out of range", `{"urls": ["amqp://h/", "amqp://i/"]}`, with(func(u *drivers.Use) { u.QueueNode = "2" }),
			"node 2", nil},
		{"leader without management", `{"urls": ["amqp://h/", "amqp://i/"]}`,
			with(func(u *drivers.Use) { u.PublisherNode = "leader" }), "management", nil},
		{"policy without management", `{` + url + `, "policy": {"ha-mode": "all"}}`, one, "management", nil},
		{"quorum not durable", `{` + url + `, "queue": {"type": "quorum", "durable": false}}`, one, "always durable",
			nil},
		{"mirrors are named",
			`{` + url + `, "management": "http://h", "policy": {"ha-mode": "exactly", "ha-params": 2}}`, one, "",
			func(d drivers.Declaration) bool { return strings.Contains(d.Label, "mirrored (ha-mode exactly 2)") }},
		{"mirrors of a quorum queue",
			`{` + url + `, "management": "http://h", "policy": {"ha-mode": "all"}, "queue": {"type": "quorum"}}`, one,
			"mirrors classic queues only", nil},
		{"bindings come and go", `{` + url + `}`, one, "",
			func(d drivers.Declaration) bool { return d.Capabilities.Churn }},
		{"bindings of a fanout do not", `{` + url + `, "exchange": {"type": "fanout"}}`, one, "",
			func(d drivers.Declaration) bool { return !d.Capabilities.Churn }},
		{"messages that expire are not kept", `{` + url + `, "message": {"expiration": "30s"}}`,
			with(func(u *drivers.Use) { u.Persistent = true }), "",
			func(d drivers.Declaration) bool { return !d.Guarantees.ConfirmedKept && !d.Guarantees.SentKept }},
		{"messages of a stream do not expire",
			`{` + url + `, "queue": {"type": "stream"}, "message": {"expiration": "30s"}}`, one, "x-max-age", nil},
		{"an exclusive consumer", `{` + url + `, "consumer": {"exclusive": true}}`, one, "", nil},
		{"two exclusive consumers", `{` + url + `, "consumer": {"exclusive": true}}`,
			with(func(u *drivers.Use) { u.Consumers = 2 }), "an exclusive consumer", nil},
		{"exclusive consumer of a quorum queue",
			`{` + url + `, "queue": {"type": "quorum"}, "consumer": {"exclusive": true}}`, one, "ignores consumer.exclusive", nil},
		{"offset by hand", `{` + url + `, "consumer": {"arguments": {"x-stream-offset": 5}}}`, one, "x-stream-offset", nil},
		{"type by hand", `{` + url + `, "queue": {"arguments": {"x-queue-type": "quorum"}}}`, one, "give queue.type", nil},
		{"header of a binding", `{` + url + `, "exchange": {"type": "headers"}, "message": {"headers": {"k": 1}}}`, one,
			`"k"`, nil},
		{"finding a leader declares a queue", `{` + url + `, "management": "http://h/"}`,
			with(func(u *drivers.Use) { u.Existing, u.PublisherNode = true, "leader" }), "declares a queue", nil},
		{"default exchange does not fan out", `{` + url + `, "exchange": {"type": "default"}}`, one, "",
			func(d drivers.Declaration) bool {
				return !d.Capabilities.Bindings && !d.Capabilities.Subscriptions
			}},
		{"no fault isolates the broker", `{` + url + `}`, one, "",
			func(d drivers.Declaration) bool { return d.RedeliverAfter == 0 }},
		{"isolated", `{` + url + `, "heartbeat": "20s"}`, with(func(u *drivers.Use) { u.Isolated = true }), "",
			func(d drivers.Declaration) bool { return d.RedeliverAfter == 40*time.Second }},
		{"isolated, the server's heartbeat", `{"url": "amqp://h?heartbeat=30", "heartbeat": "20s"}`,
			with(func(u *drivers.Use) { u.Isolated = true }), "",
			func(d drivers.Declaration) bool { return d.RedeliverAfter == 2*time.Minute }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := declare(schematest.Fill(t, driver{}, c.options), c.use)
			reasons := strings.Join(d.Rejections, "; ")
			if (c.rejected == "") != (reasons == "") || !strings.Contains(reasons, c.rejected) {
				t.Errorf("rejected: %q, want %q", reasons, c.rejected)
			}
			if c.check != nil && !c.check(d) {
				t.Errorf("declaration: %+v", d)
			}
		})
	}
}
