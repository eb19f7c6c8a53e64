package mongodb

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/pkg/drivers"
)

// variable reads what leads to the stand-in. Without one the test is skipped, or fails where the lab promised it.
func variable(t testing.TB, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" && os.Getenv("LOCKSTEP_LAB") == "required" {
		t.Fatalf("%s is not set although LOCKSTEP_LAB is \"required\"", name)
	}
	if value == "" {
		t.Skipf("needs FerretDB, which stands in for MongoDB: set %s, or run \"go run ./test/lab run mongodb -- go test ./pkg/drivers/mongodb\"", name)
	}
	return value
}

// standIn are options for FerretDB behind the proxy that makes its claims atomic; more is JSON that is laid over them.
func standIn(t testing.TB, more string) json.RawMessage {
	return merge(t, map[string]any{"url": variable(t, "LOCKSTEP_MONGODB_URL"), "visibility": "2s", "pollInterval": "5ms"}, more)
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

// disturb asks the lab to do something to one of its processes.
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
	notices  chan string
}

var rigs atomic.Int64

func newRig(t testing.TB, options json.RawMessage, change func(*drivers.Topology)) *rig {
	t.Helper()
	r := &rig{t: t, notices: make(chan string, 100)}
	r.topology = drivers.Topology{
		Name:   "test-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-" + strconv.FormatInt(rigs.Add(1), 10),
		Queues: 1, Subscriptions: 1, Bindings: 1, QueueNode: drivers.AnyNode,
	}
	if change != nil {
		change(&r.topology)
	}
	opened, err := driver{}.Open(r.context(), options, drivers.Env{
		Dial:  (&net.Dialer{}).DialContext,
		Log:   slog.New(slog.DiscardHandler),
		Event: func(kind drivers.EventKind, detail string) { r.notices <- string(kind) + ": " + detail },
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
	if err := r.session.Setup(r.context(), r.topology); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	r.t.Cleanup(cancel)
	return ctx
}
