package sqs

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
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
		t.Skipf("needs ElasticMQ, which stands in for SQS: set %s, or run \"go run ./test/lab run elasticmq -- go test ./pkg/drivers/sqs\"", name)
	}
	return value
}

// standIn are options for ElasticMQ; more is JSON that is laid over them.
func standIn(t testing.TB, more string) json.RawMessage {
	t.Helper()
	o := map[string]any{
		"endpoint": variable(t, "LOCKSTEP_SQS_ENDPOINT"), "region": "elasticmq", "accessKey": "x", "secret": "x", "visibility": "2s",
	}
	if err := json.Unmarshal([]byte(more), &o); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return text
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
