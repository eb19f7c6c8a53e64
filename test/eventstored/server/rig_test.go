package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/google/uuid"
)

// rig is a server with the official client, which checks that the protocol is implemented correctly.
type rig struct {
	t      *testing.T
	ctx    context.Context
	server *Server
	db     *esdb.Client
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	db := connect(t, l.Addr().String())
	t.Cleanup(func() {
		cancel()
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &rig{t, ctx, s, db}
}

func connect(t *testing.T, address string) *esdb.Client {
	t.Helper()
	config, err := esdb.ParseConnectionString("esdb://" + address + "?tls=false")
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = esdb.NoopLogging()
	db, err := esdb.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// events returns n numbered events.
func events(n int) []esdb.EventData {
	var all []esdb.EventData
	for i := range n {
		all = append(all, esdb.EventData{EventID: uuid.New(), EventType: "test", Data: fmt.Append(nil, i),
			Metadata: []byte("meta")})
	}
	return all
}

func (r *rig) append(stream string, n int) {
	r.t.Helper()
	_, err := r.db.AppendToStream(r.ctx, stream, esdb.AppendToStreamOptions{}, events(n)...)
	r.must(err)
}

// tryAppend returns the result of an append with an expected revision.
func (r *rig) tryAppend(stream string, expect esdb.ExpectedRevision, all ...esdb.EventData) (uint64, error) {
	w, err := r.db.AppendToStream(r.ctx, stream, esdb.AppendToStreamOptions{ExpectedRevision: expect}, all...)
	if err != nil {
		return 0, err
	}
	return w.NextExpectedVersion, nil
}

// read returns the data of a stream's events, or the kind of error.
func (r *rig) read(stream string, o esdb.ReadStreamOptions, most uint64) string {
	r.t.Helper()
	reading, err := r.db.ReadStream(r.ctx, stream, o, most)
	r.must(err)
	defer reading.Close()
	var all []string
	for {
		e, err := reading.Recv()
		if errors.Is(err, io.EOF) {
			return strings.Join(all, " ")
		}
		if err != nil {
			return code(err)
		}
		all = append(all, string(e.Event.Data))
	}
}

// code returns the name of a client error.
func code(err error) string {
	if err == nil {
		return "none"
	}
	var e *esdb.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	names := map[esdb.ErrorCode]string{
		esdb.ErrorCodeResourceNotFound: "not found", esdb.ErrorCodeStreamDeleted: "deleted",
		esdb.ErrorCodeWrongExpectedVersion:  "wrong version",
		esdb.ErrorCodeResourceAlreadyExists: "exists", esdb.ErrorCodeUnsupportedFeature: "unsupported",
		esdb.ErrorCodeNotLeader: "not leader",
	}
	if name, known := names[e.Code()]; known {
		return name
	}
	return e.Error()
}

func (r *rig) want(what, got, want string) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// create creates a group. change may modify its settings.
func (r *rig) create(stream, group string, from esdb.StreamPosition,
	change func(*esdb.PersistentSubscriptionSettings)) {
	r.t.Helper()
	set := esdb.SubscriptionSettingsDefault()
	if change != nil {
		change(&set)
	}
	r.must(r.db.CreatePersistentSubscription(r.ctx, stream, group,
		esdb.PersistentStreamSubscriptionOptions{Settings: &set, StartFrom: from}))
}

// reader is a client's connection to a group. It passes events through a channel.
type reader struct {
	r   *rig
	sub *esdb.PersistentSubscription
	got chan *esdb.PersistentSubscriptionEvent
}

func (r *rig) join(stream, group string, buffer uint32) *reader {
	r.t.Helper()
	sub, err := r.db.SubscribeToPersistentSubscription(r.ctx, stream, group,
		esdb.SubscribeToPersistentSubscriptionOptions{BufferSize: buffer})
	r.must(err)
	m := &reader{r, sub, make(chan *esdb.PersistentSubscriptionEvent, 1000)}
	go func() {
		for {
			e := sub.Recv()
			m.got <- e
			if e.SubscriptionDropped != nil {
				return
			}
		}
	}()
	r.t.Cleanup(func() { _ = sub.Close() })
	return m
}

// next waits for an event.
func (m *reader) next() *esdb.EventAppeared {
	m.r.t.Helper()
	select {
	case e := <-m.got:
		if e.EventAppeared == nil {
			m.r.t.Fatalf("dropped: %v", e.SubscriptionDropped.Error)
		}
		return e.EventAppeared
	case <-time.After(time.Minute):
		m.r.t.Fatal("waited in vain for an event")
		return nil
	}
}

// take waits for n events and returns their names, with the number of earlier deliveries if there were any.
func (m *reader) take(n int) (names string, all []*esdb.ResolvedEvent) {
	m.r.t.Helper()
	var text []string
	for range n {
		e := m.next()
		name := string(e.Event.Event.Data)
		if e.RetryCount > 0 {
			name += fmt.Sprintf("(%d)", e.RetryCount)
		}
		text = append(text, name)
		all = append(all, e.Event)
	}
	return strings.Join(text, " "), all
}

// nothing fails if an event arrives within the period.
func (m *reader) nothing(while time.Duration) {
	m.r.t.Helper()
	select {
	case e := <-m.got:
		m.r.t.Errorf("%+v came although nothing should", e)
	case <-time.After(while):
	}
}

func (r *rig) info(stream, group string) *esdb.PersistentSubscriptionInfo {
	r.t.Helper()
	i, err := r.db.GetPersistentSubscriptionInfo(r.ctx, stream, group, esdb.GetPersistentSubscriptionOptions{})
	r.must(err)
	return i
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain for: %s", what)
		}
	}
}
