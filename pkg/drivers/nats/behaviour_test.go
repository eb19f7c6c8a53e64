package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// adminOf returns the connection for declarations.
func adminOf(t *testing.T, s *session) *client.Conn {
	t.Helper()
	js, err := s.management(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return js.Conn()
}

func open(t *testing.T, o json.RawMessage, dials *[]string) *session {
	t.Helper()
	var mu sync.Mutex
	s, err := driver{}.Open(t.Context(), schematest.Fill(t, driver{}, o), drivers.Env{
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials != nil {
				mu.Lock()
				*dials = append(*dials, address)
				mu.Unlock()
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		},
		Log: slog.New(slog.DiscardHandler), Event: func(drivers.EventKind, string) {}, Dir: t.TempDir(),
		Retried: func(int64) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*session)
}

func plain(name string) drivers.Topology {
	return drivers.Topology{Name: name, Queues: 1, Subscriptions: 1, Bindings: 1, Publishers: 1, Consumers: 1}
}

// confirms records a publisher's confirms.
type confirms struct {
	mu   sync.Mutex
	errs []error
}

// dial makes a connection. It is closed with the session.
func dial(t *testing.T, s drivers.Session, spec drivers.ConnSpec) *conn {
	t.Helper()
	c, err := s.Connect(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*conn)
}

// connect connects a publisher over a connection of its own.
func connect(t *testing.T, s drivers.Session, spec drivers.PublisherSpec) (drivers.Publisher, *confirms) {
	t.Helper()
	return connectOn(t, dial(t, s, drivers.ConnSpec{}), spec)
}

func connectOn(t *testing.T, on *conn, spec drivers.PublisherSpec) (drivers.Publisher, *confirms) {
	t.Helper()
	c := &confirms{}
	spec.OnConfirms = func(tokens []uint64, err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for range tokens {
			c.errs = append(c.errs, err)
		}
	}
	p, err := on.Publisher(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p, c
}

// A full stream rejects messages: deleting a confirmed message would break the guarantee.
func TestFullStreamRejects(t *testing.T) {
	s := open(t, []byte(`{"embedded": true, "name": "full", "maxMessages": 10}`), nil)
	top := plain("full")
	if err := s.Setup(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	p, c := connect(t, s, drivers.PublisherSpec{Topology: top, Mode: drivers.ConfirmWindow, MaxInFlight: 100})
	for i := range 15 {
		if err := p.Publish(t.Context(), drivers.Message{Token: uint64(i), Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	_ = p.Close()
	for i, err := range c.errs {
		if rejected := errors.Is(err, drivers.ErrRejected); rejected != (i >= 10) {
			t.Errorf("confirm %d of a stream for 10 messages: %v", i, err)
		}
	}
	if len(c.errs) != 15 {
		t.Errorf("%d confirms of 15 messages", len(c.errs))
	}
}

// consuming is a consumer that passes bodies to a channel. It acknowledges every messages, and at the end.
type consuming struct {
	drivers.Consumer
	on    *conn
	got   chan string
	every int
	held  int // not acknowledged yet
	once  sync.Once
}

func (c *consuming) Close() error {
	c.once.Do(func() {
		c.Stop()
		c.Ack(c.held)
	})
	return c.Consumer.Close()
}

// consume connects a consumer over a connection of its own.
func consume(t *testing.T, s drivers.Session, spec drivers.ConsumerSpec, every int) *consuming {
	t.Helper()
	c := &consuming{on: dial(t, s, drivers.ConnSpec{}), got: make(chan string, 1000), every: every}
	ready := make(chan struct{})
	var err error
	c.Consumer, err = c.on.Consumer(t.Context(), spec, func(batch []drivers.Delivery) {
		<-ready
		for _, d := range batch {
			c.got <- string(d.Body)
		}
		for c.held += len(batch); c.held >= c.every; c.held -= c.every {
			c.Ack(c.every)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	close(ready)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// One acknowledgement includes all earlier messages, if the consumer is alone and rejects nothing.
func TestAcknowledgementsIncludeEarlierMessages(t *testing.T) {
	s := open(t, []byte(`{"embedded": true, "name": "all"}`), nil)
	for name, c := range map[string]struct {
		edit        func(*drivers.ConsumerSpec)
		every, want int
	}{
		"every":    {func(*drivers.ConsumerSpec) {}, 10, 10},
		"interval": {func(c *drivers.ConsumerSpec) { c.Ack = drivers.AckInterval }, 1000, 1},
		"each":     {func(c *drivers.ConsumerSpec) { c.Ack = drivers.AckEach }, 1, 100},
		"rejects":  {func(c *drivers.ConsumerSpec) { c.Nack = true }, 10, 100},
		"several":  {func(c *drivers.ConsumerSpec) { c.Topology.Consumers = 2 }, 10, 100},
	} {
		top := plain("all-" + name)
		if err := s.Setup(t.Context(), top); err != nil {
			t.Fatal(err)
		}
		acks, err := adminOf(t, s).SubscribeSync("$JS.ACK." + streamName(top, 0) + ".>")
		if err != nil {
			t.Fatal(err)
		}
		if err := adminOf(t, s).Flush(); err != nil {
			t.Fatal(err)
		}
		p, _ := connect(t, s, drivers.PublisherSpec{Topology: top, Mode: drivers.ConfirmWindow, MaxInFlight: 100})
		for i := range 100 {
			if err := p.Publish(t.Context(), drivers.Message{Token: uint64(i), Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		_ = p.Close()
		spec := drivers.ConsumerSpec{Topology: top, Prefetch: 200, Batch: 1, Ack: drivers.AckEvery}
		c.edit(&spec)
		consumer := consume(t, s, spec, c.every)
		for range 100 {
			<-consumer.got
		}
		_ = consumer.Close()
		if err := adminOf(t, s).Flush(); err != nil {
			t.Fatal(err)
		}
		if n, _, _ := acks.Pending(); n != c.want {
			t.Errorf("%s: %d acknowledgements of 100 messages, want %d", name, n, c.want)
		}
		labtest.Eventually(t, name+": an empty stream", func() bool {
			info, err := adminOf(t, s).JetStream()
			if err != nil {
				t.Fatal(err)
			}
			state, err := info.StreamInfo(streamName(top, 0))
			return err == nil && state.State.Msgs == 0
		})
	}
}

// After a connection broke, its unacknowledged messages come before new ones. Otherwise the acknowledgement of a new
// message would include them, and they would be lost.
func TestUnacknowledgedMessagesComeFirst(t *testing.T) {
	s := open(t, []byte(`{"embedded": true, "name": "first", "ackWait": "60m"}`), nil)
	top := plain("first")
	if err := s.Setup(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	p, _ := connect(t, s, drivers.PublisherSpec{Topology: top, Mode: drivers.ConfirmEach})
	publish := func(from, to int) {
		for i := from; i < to; i++ {
			if err := p.Publish(t.Context(), drivers.Message{Body: fmt.Appendf(nil, "%d", i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	spec := drivers.ConsumerSpec{Topology: top, Prefetch: 100, Batch: 1, Ack: drivers.AckEvery}
	broken := consume(t, s, spec, 5)
	publish(0, 8)
	for range 8 {
		<-broken.got
	}
	becomes(t, s, drivers.MetricUnacked, 3) // the server has processed the acknowledgements
	broken.on.nc.Close()
	publish(8, 9)
	for range 2 { // a consumer that was created again can break, too
		again := consume(t, s, spec, 5)
		for i := 5; i < 9; i++ {
			if body := <-again.got; body != fmt.Sprint(i) {
				t.Fatalf("message %s comes after the connection broke, want %d", body, i)
			}
		}
		again.on.nc.Close()
	}
}

// becomes waits until a metric of the server has a value.
func becomes(t *testing.T, s *session, name string, value float64) {
	t.Helper()
	labtest.Eventually(t, fmt.Sprintf("%s of %v", name, value), func() bool {
		metrics, err := s.Probe(t.Context())
		return err == nil && slices.ContainsFunc(metrics, func(m drivers.Metric) bool {
			return m.Name == name && m.Value == value
		})
	})
}

// With limits retention, a stream keeps acknowledged messages, and removes the oldest when it is full. A work queue has
// no fan-out, and needs acknowledgements.
func TestRetentionOfStreams(t *testing.T) {
	s := open(t, []byte(`{"embedded": true, "name": "limits", "retention": "limits", "maxMessages": 10}`), nil)
	top := plain("limits")
	if err := s.Setup(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	p, c := connect(t, s, drivers.PublisherSpec{Topology: top, Mode: drivers.ConfirmEach})
	consumer := consume(t, s, drivers.ConsumerSpec{Topology: top, Prefetch: 100, Batch: 1, Ack: drivers.AckEach}, 1)
	for i := range 15 {
		if err := p.Publish(t.Context(), drivers.Message{Token: uint64(i), Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		<-consumer.got
	}
	if i := slices.IndexFunc(c.errs, func(err error) bool { return err != nil }); i >= 0 {
		t.Errorf("confirm %d of a stream that discards old messages: %v", i, c.errs[i])
	}
	becomes(t, s, drivers.MetricQueueDepth, 0)
	js, err := adminOf(t, s).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := js.StreamInfo(streamName(top, 0)); err != nil || info.State.Msgs != 10 {
		t.Errorf("the stream has %+v, %v; want 10 messages", info, err)
	}

	for options, want := range map[string]struct {
		label     string
		kept      bool
		fanOut    bool
		automatic bool
	}{
		`{"embedded": true}`: {"memory storage, 1 replica, confirm: in memory of one server", true, true, true},
		`{"embedded": true, "retention": "limits"}`: {
			"memory storage, 1 replica, limits retention, confirm: in memory of one server", true, true, true},
		`{"embedded": true, "retention": "limits", "maxBytes": 1}`: {
			"memory storage, 1 replica, limits retention, confirm: in memory of one server", false, true, true},
		`{"embedded": true, "retention": "limits", "maxBytes": 1, "discard": "new"}`: {
			"memory storage, 1 replica, limits retention, confirm: in memory of one server", true, true, true},
		`{"embedded": true, "retention": "workqueue", "maxBytes": 1}`: {
			"memory storage, 1 replica, work queue, confirm: in memory of one server", true, false, false},
	} {
		d := declare(schematest.Fill(t, driver{}, options), drivers.Use{Mode: drivers.ConfirmEach, Ack: drivers.AckEach, Consumers: 1})
		if d.Label != want.label || d.Guarantees.ConfirmedKept != want.kept ||
			d.Capabilities.Subscriptions != want.fanOut ||
			slices.Contains(d.Capabilities.Acks, drivers.AckAutomatic) != want.automatic {
			t.Errorf("%s: %q, %+v, %+v", options, d.Label, d.Guarantees, d.Capabilities)
		}
	}
}

// withheld is a connection whose received data waits for open.
type withheld struct {
	net.Conn
	open *atomic.Pointer[chan struct{}]
}

func (w withheld) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if gate := w.open.Load(); gate != nil {
		<-*gate
	}
	return n, err
}

// A consumer acknowledges and requests a whole prefetch without waiting for an answer, as it must to receive as many
// messages per round trip.
func TestPrefetchIsFilled(t *testing.T) {
	const prefetch = 100
	s := open(t, []byte(`{"embedded": true, "name": "filled"}`), nil)
	top := plain("filled")
	if err := s.Setup(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	p, _ := connect(t, s, drivers.PublisherSpec{Topology: top, Mode: drivers.ConfirmWindow, MaxInFlight: 3 * prefetch})
	for range 3 * prefetch {
		if err := p.Publish(t.Context(), drivers.Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	_ = p.Close()
	var open atomic.Pointer[chan struct{}]
	env := labtest.Env(nil)
	env.Dir = t.TempDir()
	env.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return withheld{conn, &open}, err
	}
	far := labtest.Open(t, driver{}, []byte(`{"embedded": true, "name": "filled"}`), env)
	release, handled := make(chan struct{}), make(chan struct{}, 3*prefetch)
	var c drivers.Consumer
	c, err := dial(t, far, drivers.ConnSpec{}).Consumer(t.Context(), drivers.ConsumerSpec{Topology: top,
		Prefetch: prefetch, Batch: 1, Ack: drivers.AckEach}, func([]drivers.Delivery) {
		<-release
		c.Ack(1)
		handled <- struct{}{}
	})
	if err != nil {
		t.Fatal(err)
	}
	js, err := adminOf(t, s).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	delivered := func(n uint64) func() bool {
		return func() bool {
			info, err := js.ConsumerInfo(streamName(top, 0), durableName(0))
			return err == nil && info.Delivered.Consumer == n && info.NumAckPending == prefetch
		}
	}
	labtest.Eventually(t, "the first prefetch of messages", delivered(prefetch))
	labtest.Eventually(t, "the first prefetch of messages at the client", func() bool {
		return len(c.(*consumer).inbox) >= prefetch-1
	})
	gate := make(chan struct{})
	open.Store(&gate)
	close(release)
	for range prefetch {
		<-handled
	}
	labtest.Eventually(t, "the next prefetch, while no answer arrives", delivered(2*prefetch))
	open.Store(nil)
	close(gate)
	for range 2 * prefetch {
		<-handled
	}
	_ = c.Close()
}

// Several bindings are one filter.
func TestBindingsAreOneFilter(t *testing.T) {
	s := open(t, []byte(`{"embedded": true, "name": "filter"}`), nil)
	top := plain("filter")
	top.Bindings = 50
	if err := s.Setup(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	js, err := adminOf(t, s).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	info, err := js.ConsumerInfo(streamName(top, 0), durableName(0))
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Config.FilterSubjects) > 0 || info.Config.FilterSubject != streamName(top, 0)+".*" {
		t.Errorf("the consumer filters by %q and %q", info.Config.FilterSubject, info.Config.FilterSubjects)
	}
}

// A message that no stream accepts is published again twice, and then left to the engine. With resilience "none" it is
// rejected at once. Confirms do not stay pending.
func TestMessageWithoutStream(t *testing.T) {
	for resilience, want := range map[string]struct {
		err     error
		retries int64
	}{"vendor": {drivers.ErrClosed, 2}, "none": {drivers.ErrRejected, 0}} {
		for _, mode := range []drivers.Mode{drivers.ConfirmEach, drivers.ConfirmWindow} {
			t.Run(resilience+" "+string(mode), func(t *testing.T) {
				t.Parallel()
				var retries atomic.Int64
				err := publishWithoutStream(t, resilience, mode, func(*session, string) { retries.Add(1) })
				if !errors.Is(err, want.err) {
					t.Errorf("the confirm of a message to no stream: %v; want %v", err, want.err)
				}
				if n := retries.Load(); n != want.retries {
					t.Errorf("%d retries, want %d", n, want.retries)
				}
			})
		}
	}
}

// A message is stored if its stream has a leader again when it is repeated.
func TestMessageIsRepeatedUntilThereIsALeader(t *testing.T) {
	for _, mode := range []drivers.Mode{drivers.ConfirmEach, drivers.ConfirmWindow} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			bodies := make(chan string, 10)
			err := publishWithoutStream(t, "vendor", mode, func(s *session, subject string) { // it is led from now on
				_, err := adminOf(t, s).Subscribe(subject, func(m *client.Msg) {
					bodies <- string(m.Data)
					_ = m.Respond([]byte(`{"stream":"elects","seq":1}`))
				})
				if err := errors.Join(err, adminOf(t, s).Flush()); err != nil {
					t.Error(err)
				}
			})
			if err != nil {
				t.Errorf("the confirm of a message that was repeated: %v", err)
			}
			if n := len(bodies); n != 1 || <-bodies != "x" {
				t.Errorf("the message was repeated %d times, or not as it was", n)
			}
		})
	}
}

// publishWithoutStream publishes the message x to a stream that is gone, and returns the error of its confirm. It calls
// retried at each retry.
func publishWithoutStream(t *testing.T, resilience string, mode drivers.Mode, retried func(s *session, subject string)) error {
	t.Helper()
	name := "gone-" + resilience + "-" + string(mode)
	s := open(t, fmt.Appendf(nil, `{"embedded": true, "name": %q, "resilience": %q}`, name, resilience), nil)
	top := plain(name)
	s.env.Retried = func(int64) { retried(s, subject(top, 0, 0)) }
	if err := s.Setup(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	p, c := connect(t, s, drivers.PublisherSpec{Topology: top, Mode: mode, MaxInFlight: 10})
	if err := s.Teardown(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(t.Context(), drivers.Message{Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, "the confirm", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.errs) > 0
	})
	_ = p.Close()
	if len(c.errs) > 1 {
		t.Errorf("%d confirms of one message", len(c.errs))
	}
	return c.errs[0]
}

// TestWorkForAConfirmIsNotWaitedFor proves that the engine's work for a confirm does not count as waiting if Publish
// itself waits for the confirm.
func TestWorkForAConfirmIsNotWaitedFor(t *testing.T) {
	const messages, work = 10, 20 * time.Millisecond
	s := open(t, []byte(`{"embedded": true, "name": "work"}`), nil)
	top := plain("work")
	if err := s.Setup(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	var w drivers.Waiting
	p, err := dial(t, s, drivers.ConnSpec{}).Publisher(t.Context(), drivers.PublisherSpec{Topology: top,
		Mode: drivers.ConfirmEach, Waiting: &w, OnConfirms: func([]uint64, error) { time.Sleep(work) }})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	began := time.Now()
	for i := range messages {
		if err := p.Publish(t.Context(), drivers.Message{Token: uint64(i), Body: []byte("body")}); err != nil {
			t.Fatal(err)
		}
	}
	if took, waited := time.Since(began), time.Duration(w.Nanos()); waited == 0 || waited > took-messages*work {
		t.Errorf("waited for %v of %v, in which OnConfirms took %v", waited, took, messages*work)
	}
}

// The watchdog measures from the publishing of a message, not from the last confirm.
func TestWatchdogIgnoresIdleTime(t *testing.T) {
	c := &confirmer{slots: newSlots("inbox.", 1), patience: time.Hour, conn: &conn{}}
	c.watchdog = time.AfterFunc(time.Hour, func() {})
	defer c.watchdog.Stop()
	c.check() // idle
	c.slots.take(1, "", nil)
	c.check() // the message was published since then
	if c.conn.Err() != nil {
		t.Errorf("the connection is given up just after a message was published: %v", c.conn.Err())
	}
}

// The watchdog breaks the connection at most a quarter of the timeout late.
func TestWatchdogIsPunctual(t *testing.T) {
	for _, at := range []time.Duration{30 * time.Minute, 44 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			c := &confirmer{slots: newSlots("inbox.", 1), patience: time.Hour, conn: &conn{raw: near}}
			c.watchdog = time.AfterFunc(time.Hour, c.check)
			c.watchdog.Reset(c.patience / checks)
			time.Sleep(at + time.Second)
			c.slots.take(1, "", nil)
			begun := time.Now()
			_, _ = far.Read(make([]byte, 1)) // until the connection is broken
			if took := time.Since(begun); took < c.patience || took > c.patience*5/4 {
				t.Errorf("the connection ends %v after a message, with a timeout of %v", took, c.patience)
			}
		})
	}
}

// If the leader of a stream is lost, it does not respond, although the connection is up. Without the timeout, a
// publisher would wait for ever.
func TestConfirmTimeout(t *testing.T) {
	s := open(t, []byte(`{"embedded": true, "name": "mute", "confirmTimeout": "50ms"}`), nil)
	top := plain("mute")
	if err := s.Setup(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	p, c := connect(t, s, drivers.PublisherSpec{Topology: top, Mode: drivers.ConfirmEach})
	if err := s.Teardown(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	sink, err := adminOf(t, s).SubscribeSync(subject(top, 0, 0)) // receives messages without responding
	if err != nil {
		t.Fatal(err)
	}
	if err := adminOf(t, s).Flush(); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(t.Context(), drivers.Message{Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if len(c.errs) != 1 || !errors.Is(c.errs[0], drivers.ErrClosed) {
		t.Errorf("confirms of a message that nobody answers: %v; want one that is closed", c.errs)
	}
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "no confirm for 50ms") {
		t.Errorf("the connection ended with %v", err)
	}
	labtest.Eventually(t, "the message that was sent", func() bool { n, _, _ := sink.Pending(); return n == 1 })
}

// After the last stream of an account was deleted, the server removes its folders while the next stream is created.
// Here a file is at the place of the folder: creations fail until the server has removed the file.
func TestStreamIsCreatedAgainWhenItsStoreFails(t *testing.T) {
	var notices []string
	s, err := driver{}.Open(t.Context(), schematest.Fill(t, driver{}, `{"embedded": true, "name": "again", "storage": "file"}`), drivers.Env{
		Dial: new(net.Dialer).DialContext, Log: slog.New(slog.DiscardHandler), Dir: t.TempDir(),
		Event: func(_ drivers.EventKind, detail string) { notices = append(notices, detail) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	top := plain("again")
	streams := filepath.Join(s.(*session).server.dir, "jetstream", "$G", "streams")
	if err := os.MkdirAll(streams, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(streams, streamName(top, 0)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Setup(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	if len(notices) == 0 {
		t.Error("the driver reports no failed creation")
	}
	for _, notice := range notices {
		if !strings.Contains(notice, "create stream again_q0 again: ") {
			t.Errorf("the driver reports %q", notice)
		}
	}
}

// The stream of a cell without consumers is limited, so that it does not exhaust the memory.
func TestUnconsumedStreamIsBounded(t *testing.T) {
	s := open(t, []byte(`{"embedded": true, "name": "bounded"}`), nil)
	top := plain("bounded")
	top.Consumers = 0
	if c := s.streamConfig(top, 0); c.MaxBytes != unconsumedBytes || c.Discard.String() != "DiscardOld" {
		t.Errorf("a stream without consumers: %d bytes, %s", c.MaxBytes, c.Discard)
	}
	if d := declare(schematest.Fill(t, driver{}, `{"embedded": true}`), drivers.Use{Mode: drivers.ConfirmEach}); d.Guarantees.ConfirmedKept {
		t.Error("a stream that forgets its oldest messages guarantees to keep all")
	}
}

// Agents of one process use the same server if it has the same name. The last one removes it, also if its folder was
// removed before.
func TestEmbeddedIsSharedByName(t *testing.T) {
	a := open(t, []byte(`{"embedded": true, "name": "one"}`), nil)
	b := open(t, []byte(`{"embedded": true, "name": "one"}`), nil)
	other := open(t, []byte(`{"embedded": true, "name": "two"}`), nil)
	if a.endpoints[0].Address != b.endpoints[0].Address || a.endpoints[0].Address == other.endpoints[0].Address {
		t.Fatalf("servers %v %v %v: want the first two to be one", a.endpoints, b.endpoints, other.endpoints)
	}
	top := plain("shared")
	top.Persistent = true
	if err := a.Setup(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Dir(b.server.dir)); err != nil { // the folder of a's agent
		t.Fatal(err)
	}
	if err := b.Teardown(t.Context(), top); err != nil {
		t.Errorf("Teardown after the first agent removed its folder: %v", err)
	}
	address := b.endpoints[0].Address
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Error("the server still listens after its last user closed")
	}
}

// Agents in different processes have different embedded servers, and get an error with that reason.
func TestEmbeddedIsNotForFleets(t *testing.T) {
	top := plain("apart")
	if err := open(t, []byte(`{"embedded": true, "name": "here"}`), nil).Setup(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	there := open(t, []byte(`{"embedded": true, "name": "there"}`), nil) // as in another process
	on := dial(t, there, drivers.ConnSpec{})
	_, publishing := on.Publisher(t.Context(), drivers.PublisherSpec{Topology: top, Mode: drivers.FireAndForget})
	consume := func(ack drivers.Ack) error {
		_, err := on.Consumer(t.Context(), drivers.ConsumerSpec{Topology: top, Batch: 1, Ack: ack}, nil)
		return err
	}
	for _, err := range []error{publishing, consume(drivers.AckEach), consume(drivers.AckAutomatic)} {
		if err == nil || !strings.Contains(err.Error(), "give urls for a fleet of several") {
			t.Errorf("an agent of another process is told: %v", err)
		}
	}
}

// checkPlaces checks on three servers that a queue's leader and a client are on the configured nodes.
func checkPlaces(t *testing.T, urls []string, servers []*server.Server) {
	list, err := json.Marshal(urls)
	if err != nil {
		t.Fatal(err)
	}
	for i, node := range []drivers.Node{"0", "1", "2"} {
		var dials []string
		s := open(t, with(`"replicas": 3, "urls": `+string(list)), &dials)
		top := plain(fmt.Sprintf("placed-%d", i))
		top.QueueNode = node
		if err := s.Setup(t.Context(), top); err != nil {
			t.Fatal(err)
		}
		for _, srv := range servers {
			if leads := srv.JetStreamIsStreamLeader("$G",
				streamName(top, 0)); leads != (srv.Name() == fmt.Sprintf("n%d", i)) {
				t.Errorf("queue on node %d: server %s leads: %t", i, srv.Name(), leads)
			}
		}
		for node, want := range map[drivers.Node]bool{drivers.LeaderNode: true, drivers.FollowerNode: false} {
			dials = nil
			connectOn(t, dial(t, s, drivers.ConnSpec{Topology: top, Node: node}),
				drivers.PublisherSpec{Topology: top, Mode: drivers.ConfirmEach})
			if last := dials[len(dials)-1]; (last == strings.TrimPrefix(urls[i], "nats://")) != want {
				t.Errorf("publisher at the %s of a queue on node %d dials %s", node, i, last)
			}
		}
		if err := s.Teardown(t.Context(), top); err != nil {
			t.Error(err)
		}
	}
}

// The leader of a stream is not requested for each connection: the latency of connection-per-message would include it.
func TestLeaderIsRequestedOnce(t *testing.T) {
	s := open(t, []byte(`{"embedded": true, "name": "lead"}`), nil)
	spec := drivers.ConnSpec{Topology: plain("lead"), Node: drivers.LeaderNode}
	if err := s.Setup(t.Context(), spec.Topology); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		before := adminOf(t, s).Stats().OutMsgs
		dial(t, s, spec)
		if requests := adminOf(t, s).Stats().OutMsgs - before; (requests > 0) != (i == 0) {
			t.Errorf("connection %d: %d requests", i, requests)
		}
	}
}

// checkSpread checks on three servers that spread leaders and clients differ by at most one.
func checkSpread(t *testing.T, urls []string, servers []*server.Server) {
	list, err := json.Marshal(urls)
	if err != nil {
		t.Fatal(err)
	}
	var dials []string
	s := open(t, with(`"replicas": 3, "urls": `+string(list)), &dials)
	top := plain("spread")
	top.Queues, top.QueueNode = 5, drivers.SpreadNode
	if err := s.Setup(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	leaders, publishers, consumers := map[string]int{}, map[string]int{}, map[string]int{}
	for q := range top.Queues {
		for _, srv := range servers {
			if srv.JetStreamIsStreamLeader("$G", streamName(top, q)) {
				leaders[srv.Name()]++
			}
		}
		for _, counts := range []map[string]int{publishers, consumers} {
			dials = nil
			on := dial(t, s, drivers.ConnSpec{Topology: top, Node: drivers.SpreadNode, Ordinal: q})
			if last := dials[len(dials)-1]; last != on.Node() {
				t.Errorf("the connection to %s dials %s", on.Node(), last)
			}
			counts[on.Node()]++
		}
	}
	reported, err := s.Leaders(t.Context(), top)
	if err != nil {
		t.Fatal(err)
	}
	for what, nodes := range map[string]map[string]int{"leaders": leaders, "publishers": publishers,
		"consumers": consumers, "reported leaders": reported} {
		if counts := slices.Sorted(maps.Values(nodes)); !slices.Equal(counts, []int{1, 2, 2}) {
			t.Errorf("%s are on %v, want 1, 2 and 2", what, nodes)
		}
	}
}

// checkSpreadSetup checks that streams with fewer replicas than servers, and a server that is down, do not prevent the
// set-up of spread leaders.
func checkSpreadSetup(t *testing.T, urls []string) {
	for name, c := range map[string]struct {
		replicas int
		urls     []string
	}{"two-replicas": {2, urls}, "down": {3, []string{urls[0], "nats://127.0.0.1:1", urls[2]}}} {
		list, err := json.Marshal(c.urls)
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, with(fmt.Sprintf(`"replicas": 3, "urls": %s`, list)), nil)
		s.options.Replicas = c.replicas // the schema rejects 2
		top := plain("spread-" + name)
		top.Queues, top.QueueNode = 3, drivers.SpreadNode
		if err := s.Setup(t.Context(), top); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Teardown(t.Context(), top); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An authentication error names the address and does not contain the password.
func TestWrongPassword(t *testing.T) {
	o := serverOptions(t, "locked")
	o.Username, o.Password = "user", "right"
	srv := start(t, o)
	began := time.Now()
	_, err := driver{}.Open(t.Context(), schematest.Fill(t, driver{}, fmt.Sprintf(`{"url": "nats://user:wr0ng@%s"}`, srv.Addr())),
		drivers.Env{Dial: new(net.Dialer).DialContext})
	if err == nil || !strings.Contains(err.Error(), srv.Addr().String()) ||
		!strings.Contains(err.Error(), "Authorization") {
		t.Errorf("a wrong password gives %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("the error tells the password: %v", err)
	}
	if took := time.Since(began); labtest.IsLong() && took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// Connections have the library's own limits for silent servers, unless the options set others.
func TestPingsAreThoseOfTheLibrary(t *testing.T) {
	for given, want := range map[string]time.Duration{
		`{"url": "a"}`:                        client.DefaultPingInterval,
		`{"url": "a", "pingInterval": "10s"}`: 10 * time.Second,
	} {
		o, err := kit.Decode[options]("nats", schematest.Fill(t, driver{}, given))
		if err != nil {
			t.Fatal(err)
		}
		got := client.GetDefaultOptions()
		for _, set := range o.clientOptions() {
			if err := set(&got); err != nil {
				t.Fatal(err)
			}
		}
		if got.PingInterval != want || got.MaxPingsOut != client.DefaultMaxPingOut {
			t.Errorf("%s: pings every %v, %d outstanding; want %v and %d", given, got.PingInterval, got.MaxPingsOut, want,
				client.DefaultMaxPingOut)
		}
	}
}

// What repetitions change: a message that is repeated needs its body, and may come after later ones.
func TestDeclareRepetitions(t *testing.T) {
	for _, c := range []struct {
		options         string
		mode            drivers.Mode
		copies, ordered bool
	}{
		{`{"urls": ["a", "b", "c"]}`, drivers.ConfirmWindow, false, false},
		{`{"urls": ["a", "b", "c"]}`, drivers.ConfirmBatch, false, false},
		{`{"url": "a", "replicas": 3}`, drivers.ConfirmWindow, false, false},
		{`{"urls": ["a", "b", "c"]}`, drivers.ConfirmEach, false, true},
		{`{"urls": ["a", "b", "c"]}`, drivers.FireAndForget, true, true},
		{`{"urls": ["a", "b", "c"], "resilience": "none"}`, drivers.ConfirmWindow, true, true},
		{`{"url": "a"}`, drivers.ConfirmWindow, false, false}, // maybe the address of a cluster
		{`{"embedded": true}`, drivers.ConfirmWindow, false, true},
	} {
		d := declare(schematest.Fill(t, driver{}, c.options), drivers.Use{Mode: c.mode, Ack: drivers.AckEach, Consumers: 1})
		if d.Capabilities.CopiesBody != c.copies || d.Guarantees.Ordered != c.ordered {
			t.Errorf("%s in mode %s: copies %t, ordered %t", c.options, c.mode, d.Capabilities.CopiesBody, d.Guarantees.Ordered)
		}
	}
}

func TestDeclareTellsWhatCannotWork(t *testing.T) {
	for options, use := range map[string]drivers.Use{
		`{}`:                                       {},
		`{"url": "a", "embedded": true}`:           {},
		`{"embedded": true, "replicas": 3}`:        {},
		`{"url": "a", "sync": "always"}`:           {},
		`{"url": "a"}`:                             {QueueNode: "1"},
		`{"urls": ["a", "b"]}`:                     {QueueNode: "1"},
		`{"urls": ["a", "b"], "storage": "file"}`:  {ConsumerNode: drivers.FollowerNode},
		`{"urls": ["a", "b", "c"], "replicas": 3}`: {QueueNode: drivers.LeaderNode},
	} {
		if d := declare(schematest.Fill(t, driver{}, options), use); len(d.Rejections) == 0 {
			t.Errorf("options %s with %+v are declared to work", options, use)
		}
	}
}
