package mongodb

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
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

// moreToCome is the flag of a request that wants no answer.
const moreToCome = 1 << 1

// silent gives the URL of a way to the stand-in that keeps its answers to writes with w: 0, as MongoDB would not have made them.
func silent(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(variable(t, "LOCKSTEP_MONGODB_URL"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { pass(ctx, near, u.Host) })
		}
	})
	return "mongodb://" + l.Addr().String() + "/"
}

// pass hands requests on, one at a time, and those answers that are wanted back.
func pass(ctx context.Context, near net.Conn, address string) {
	defer near.Close()
	far, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { _ = near.Close(); _ = far.Close() })()
	for {
		request, err := message(near)
		if err != nil {
			return
		}
		if _, err := far.Write(request); err != nil {
			return
		}
		answer, err := message(far)
		if err != nil {
			return
		}
		if binary.LittleEndian.Uint32(request[16:])&moreToCome != 0 {
			continue
		}
		if _, err := near.Write(answer); err != nil {
			return
		}
	}
}

// message reads one message of the protocol.
func message(from io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint32(head))
	if n < 20 || n > 64<<20 {
		return nil, errors.New("not a message of MongoDB's protocol")
	}
	whole := append(make([]byte, 0, n), head...)[:n]
	_, err := io.ReadFull(from, whole[4:])
	return whole, err
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
