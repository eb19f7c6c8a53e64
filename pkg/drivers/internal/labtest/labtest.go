// Package labtest has helpers for the tests of drivers. It finds the brokers of test/lab, builds options, controls
// broker processes, and opens sessions that end with their test.
package labtest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// Broker describes the parts of the lab that a driver's tests need.
type Broker struct {
	Name  string // display name: "RabbitMQ"
	Parts string // parts of the lab: "rabbitmq rabbitmq3"
	Tests string // package of the tests: "pkg/drivers/rabbitmq"
}

// Variable returns an environment variable that the lab sets. If it is missing, the test is skipped, or fails if
// LOCKSTEP_LAB is "required".
func (b Broker) Variable(t testing.TB, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" && os.Getenv("LOCKSTEP_LAB") == "required" {
		t.Fatalf("%s is not set although LOCKSTEP_LAB is \"required\"", name)
	}
	if value == "" {
		t.Skipf("needs %s: set %s, or run \"go run ./test/lab run %s -- go test ./%s\"", b.Name, name, b.Parts, b.Tests)
	}
	return value
}

// Wait is the maximum wait for an event that must happen. It is long enough for a busy machine.
const Wait = 2 * time.Minute

// IsLong reports whether LOCKSTEP_LONG is set. Without it, a test must not check durations that depend on the machine's
// load.
func IsLong() bool { return os.Getenv("LOCKSTEP_LONG") != "" }

// Long skips the test unless LOCKSTEP_LONG is set. "make test-long" sets it, "make test" does not.
func Long(t testing.TB) {
	t.Helper()
	if !IsLong() {
		t.Skip("part of \"make test-long\": set LOCKSTEP_LONG=1")
	}
}

// Options merges the JSON object more into values, and returns the result as JSON. null removes a value.
func Options(t testing.TB, values map[string]any, more string) json.RawMessage {
	t.Helper()
	if err := json.Unmarshal([]byte(more), &values); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(values, func(_ string, value any) bool { return value == nil })
	text, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Control makes the lab run an action on one of its processes: kill, start, restart, pause or resume.
func Control(t testing.TB, action, process string) {
	t.Helper()
	address := os.Getenv("LOCKSTEP_LAB_CONTROL")
	if address == "" {
		t.Fatalf("%s %s: there is no lab: run the test with \"go run ./test/lab run\"", action, process)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // drivertest finds leaked goroutines
	response, err := client.Post(address+"/"+action+"?name="+url.QueryEscape(process), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", action, process, text)
	}
}

// Restart returns a drivertest.Harness.Restart that uses the lab. It returns nil if there is no lab, or if process is
// "".
func Restart(process string) func(*testing.T) {
	if process == "" || os.Getenv("LOCKSTEP_LAB_CONTROL") == "" {
		return nil
	}
	return func(t *testing.T) { Control(t, "restart", process) }
}

// Context returns a context that ends with the test, or after Wait.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Wait)
	t.Cleanup(cancel)
	return ctx
}

var topologies atomic.Int64

// Topology returns a topology with a unique name and one of everything. change may modify it, and may be nil.
func Topology(change func(*drivers.Topology)) drivers.Topology {
	topology := drivers.Topology{
		Name:   "test-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-" + strconv.FormatInt(topologies.Add(1), 10),
		Queues: 1, Subscriptions: 1, Bindings: 1, QueueNode: drivers.AnyNode, Publishers: 1, Consumers: 1,
	}
	if change != nil {
		change(&topology)
	}
	return topology
}

// Env returns an Env that dials directly, logs nothing, and passes events to event, which may be nil.
func Env(event func(kind drivers.EventKind, detail string)) drivers.Env {
	if event == nil {
		event = func(drivers.EventKind, string) {}
	}
	return drivers.Env{Dial: new(net.Dialer).DialContext, Log: slog.New(slog.DiscardHandler), Event: event,
		Retried: func(int64) {}, Access: drivers.FullAccess()}
}

// Open opens a session. Its options are completed by the schema. It is closed at the end of the test.
func Open(t testing.TB, d drivers.Driver, options json.RawMessage, env drivers.Env) drivers.Session {
	t.Helper()
	s, err := d.Open(Context(t), schematest.Fill(t, d, options), env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TearDown removes a topology at the end of the test, before the session is closed.
func TearDown(t testing.TB, s drivers.Session, topology *drivers.Topology) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Wait)
		defer cancel()
		if err := s.Teardown(ctx, *topology); err != nil {
			t.Error(err)
		}
	})
}

// SetUp declares a topology. It is removed at the end of the test.
func SetUp(t testing.TB, s drivers.Session, topology *drivers.Topology) {
	t.Helper()
	TearDown(t, s, topology)
	if err := s.Setup(Context(t), *topology); err != nil {
		t.Fatal(err)
	}
}

// FreeAddress returns an unused address of 127.0.0.1 for a server in another process. Its port is below the range for
// outgoing connections, so that none of these takes it before the server starts.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(12000))))
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().String()
	}
	t.Fatal("no port between 20000 and 32000 is free")
	return ""
}

// Listening waits until a server accepts connections.
func Listening(t testing.TB, address string) {
	t.Helper()
	Eventually(t, "a server that accepts connections at "+address, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// Eventually waits until ok returns true. The test fails after Wait.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Wait); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}
