// Package labtest is shared by the tests of drivers: it finds the brokers of test/lab, makes options for them, has the
// lab control broker processes, and opens sessions that end with their test.
package labtest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/pkg/drivers"
)

// Broker describes what a driver's tests need of the lab.
type Broker struct {
	Name  string // for people: "RabbitMQ"
	Parts string // of the lab: "rabbitmq rabbitmq3"
	Tests string // the package: "pkg/drivers/rabbitmq"
}

// Variable reads an environment variable that the lab sets. Without it the test is skipped; if every variable is
// required (LOCKSTEP_LAB=required), the test fails.
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

// Wait limits the wait for an event that must happen. It is long enough for a busy machine.
const Wait = 2 * time.Minute

// IsLong reports whether LOCKSTEP_LONG is set: only then may a test require durations of which the machine's load is
// a part.
func IsLong() bool { return os.Getenv("LOCKSTEP_LONG") != "" }

// Long skips the test unless LOCKSTEP_LONG is set: "make test-long" runs it, "make test" does not.
func Long(t testing.TB) {
	t.Helper()
	if !IsLong() {
		t.Skip("part of \"make test-long\": set LOCKSTEP_LONG=1")
	}
}

// Options are JSON of these values, over which more, a JSON object, is laid.
func Options(t testing.TB, values map[string]any, more string) json.RawMessage {
	t.Helper()
	if err := json.Unmarshal([]byte(more), &values); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Control has the lab kill, start, restart, pause or resume one of its processes.
func Control(t testing.TB, action, process string) {
	t.Helper()
	address := os.Getenv("LOCKSTEP_LAB_CONTROL")
	if address == "" {
		t.Fatalf("%s %s: there is no lab: run the test with \"go run ./test/lab run\"", action, process)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // drivertest looks for goroutines
	response, err := client.Post(address+"/"+action+"?name="+url.QueryEscape(process), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", action, process, text)
	}
}

// Restart is a drivertest.Harness.Restart by the lab; without a lab, or with "" for the process, it is nil.
func Restart(process string) func(*testing.T) {
	if process == "" || os.Getenv("LOCKSTEP_LAB_CONTROL") == "" {
		return nil
	}
	return func(t *testing.T) { Control(t, "restart", process) }
}

// Context ends with the test, or after Wait.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Wait)
	t.Cleanup(cancel)
	return ctx
}

var topologies atomic.Int64

// Topology has a name of its own and one of everything; change, if any, alters it.
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

// Env dials as is, logs nothing and reports events to event, which may be nil.
func Env(event func(kind drivers.EventKind, detail string)) drivers.Env {
	if event == nil {
		event = func(drivers.EventKind, string) {}
	}
	return drivers.Env{Dial: new(net.Dialer).DialContext, Log: slog.New(slog.DiscardHandler), Event: event,
		Access: drivers.FullAccess()}
}

// Open opens a session that is closed at the end of the test.
func Open(t testing.TB, d drivers.Driver, options json.RawMessage, env drivers.Env) drivers.Session {
	t.Helper()
	s, err := d.Open(Context(t), options, env)
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

// SetUp declares a topology that is removed at the end of the test.
func SetUp(t testing.TB, s drivers.Session, topology *drivers.Topology) {
	t.Helper()
	TearDown(t, s, topology)
	if err := s.Setup(Context(t), *topology); err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until ok, for at most Wait.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Wait); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}
