package eventstore

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
	"example.org/lockstep/lockstep/test/eventstored/server"
)

// The library does not reconnect after a broken connection, every confirm arrives, and nothing hangs. The library
// deadlocks or panics if it is used wrongly.
func TestStandInKilledUnderAWindow(t *testing.T) {
	for range 8 {
		address := labtest.FreeAddress(t)
		kill := standIn(t, address)
		r := newRig(t, reached(t, address, `{}`), nil)
		p, n := r.publisher(drivers.ConfirmWindow, nil)
		in := &callbacks{}
		c := r.consumer(in, nil)
		accepted := make(chan int, 1)
		go func() {
			for i := 0; ; i++ {
				if err := p.Publish(r.ctx, drivers.Message{Token: uint64(i), Body: make([]byte, 100)}); err != nil {
					accepted <- i
					return
				}
			}
		}()
		labtest.Eventually(t, "some confirms", func() bool { all, _ := n.confirms(); return all > 200 })
		before := r.dials.Load()
		kill()
		labtest.Eventually(t, "both ends to hear of it", func() bool { return p.Err() != nil && c.Err() != nil })
		start := time.Now()
		if err := errors.Join(p.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); labtest.IsLong() && took > 3*time.Second {
			t.Errorf("closing what is broken takes %v", took)
		}
		all, failed := n.confirms()
		if want := <-accepted; all != want {
			t.Errorf("%d confirms of %d messages", all, want)
		}
		if failed == 0 {
			t.Error("the server was killed under a window and no confirm failed")
		}
		for _, err := range n.errors {
			if !errors.Is(err, drivers.ErrClosed) {
				t.Fatalf("a confirm over a broken connection: %v", err)
			}
		}
		if again := r.dials.Load() - before; again > 0 {
			t.Errorf("%d connections were made after the break, and nobody asked for them", again)
		}
		if err := r.session.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A restarted server is used again. Its memory is empty, so the task's streams are declared again.
func TestStandInComesBack(t *testing.T) {
	address := labtest.FreeAddress(t)
	kill := standIn(t, address)
	r := newRig(t, reached(t, address, `{}`), nil)
	p, _ := r.publisher(drivers.ConfirmEach, nil)
	in := &callbacks{}
	c := r.consumer(in, nil)
	r.send(p, 3, 10)
	kill()
	labtest.Eventually(t, "an idle publisher and consumer to hear of it",
		func() bool { return p.Err() != nil && c.Err() != nil })
	_, _ = p.Close(), c.Close()
	if err := r.session.Setup(r.ctx, r.topology); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("Setup without a server: %v", err)
	}
	kill = standIn(t, address)
	defer kill()
	r.setup()
	r.consumer(in, nil)
	p, _ = r.publisher(drivers.ConfirmEach, nil)
	before := in.received()
	r.send(p, 3, 10)
	labtest.Eventually(t, "messages after the restart", func() bool { return in.received() == before+3 })
}

// TestStandInRefusesALargeAppend covers an append that is rejected at its last message. If a client is still sending
// then, its library only reports the end of the stream, without the reason.
func TestStandInRefusesALargeAppend(t *testing.T) {
	_, address := inProcess(t, server.Options{MaxAppendSize: 9500})
	r := newRig(t, reached(t, address, `{}`), nil)
	for _, mode := range []drivers.Mode{drivers.ConfirmEach, drivers.ConfirmBatch} {
		p, n := r.publisher(mode, nil)
		r.send(p, 10, 1000) // a batch of ten is too large, a single message is not
		if mode != drivers.ConfirmBatch {
			r.send(p, 1, 9600)
		}
		if err := p.Flush(r.ctx); err != nil {
			t.Fatal(err)
		}
		want, refused := 11, 1
		if mode == drivers.ConfirmBatch {
			want, refused = 10, 10
		}
		labtest.Eventually(t, "confirms", func() bool { all, _ := n.confirms(); return all == want })
		if _, failed := n.confirms(); failed != refused {
			t.Errorf("%s: %d confirms failed, want %d", mode, failed, refused)
		}
		for _, err := range n.errors {
			if !errors.Is(err, drivers.ErrRejected) {
				t.Errorf("%s: %v, want ErrRejected", mode, err)
			}
		}
		if err := p.Err(); err != nil {
			t.Errorf("%s: a refusal broke the connection: %v", mode, err)
		}
	}
}

// An append that timed out on the server may have been written: it counts as a broken connection, not as rejected.
func TestAppendInDoubt(t *testing.T) {
	for _, code := range []codes.Code{codes.Aborted, codes.Internal, codes.Unknown} {
		_, address := inProcess(t, server.Options{
			Fail: func() error { return status.Error(code, "Operation timed out: Commit phase timeout.") }})
		r := newRig(t, reached(t, address, `{}`), nil)
		p, n := r.publisher(drivers.ConfirmWindow, nil)
		r.send(p, 1, 10)
		labtest.Eventually(t, "the confirm", func() bool { all, _ := n.confirms(); return all == 1 })
		n.mu.Lock()
		if len(n.errors) != 1 || errors.Is(n.errors[0], drivers.ErrRejected) ||
			!errors.Is(n.errors[0], drivers.ErrClosed) {
			t.Errorf("%s: confirmed with %v, want ErrClosed", code, n.errors)
		}
		n.mu.Unlock()
		labtest.Eventually(t, "the publisher to hear that its connection is of no use", func() bool { return p.Err() != nil })
	}
}

// An append takes the messages that are queued, up to appendBatch and to the size that a server accepts.
func TestAppendsTakeSeveralMessages(t *testing.T) {
	for _, c := range []struct{ batch, messages, size, want int }{
		{1, 21, 10, 21}, {10, 21, 10, 3}, {10, 9, 300 << 10, 4},
	} {
		var appends atomic.Int64
		received, proceed := make(chan struct{}), make(chan struct{})
		_, address := inProcess(t, server.Options{Fail: func() error {
			if appends.Add(1) == 1 {
				close(received)
				<-proceed
			}
			return nil
		}})
		r := newRig(t, reached(t, address, fmt.Sprintf(`{"concurrency": 1, "appendBatch": %d}`, c.batch)), nil)
		p, n := r.publisher(drivers.ConfirmWindow, nil)
		r.send(p, 1, c.size)
		<-received
		r.send(p, c.messages-1, c.size)
		close(proceed)
		labtest.Eventually(t, "confirms", func() bool { all, _ := n.confirms(); return all == c.messages })
		if _, failed := n.confirms(); failed > 0 || appends.Load() != int64(c.want) {
			t.Errorf("%d messages of %d bytes, up to %d per append: %d appends, want %d; errors: %v", c.messages, c.size,
				c.batch, appends.Load(), c.want, n.errors)
		}
	}
}

// A server without the requests that the driver needs is refused with its version.
func TestOldServerIsRefused(t *testing.T) {
	_, address := inProcess(t, server.Options{Version: "22.10.3"})
	_, err := driver{}.Open(labtest.Context(t), schematest.Fill(t, driver{}, reached(t, address, `{}`)), (&rig{t: t}).env())
	if err == nil || !strings.Contains(err.Error(), "22.10.3") || !strings.Contains(err.Error(), address) {
		t.Errorf("a server that is too old: %v", err)
	}
}

func TestStandInThatDoesNotAnswer(t *testing.T) {
	_, address := inProcess(t, server.Options{})
	r := newRig(t, reached(t, address, `{"confirmTimeout": "2s"}`), nil)
	p, n := r.publisher(drivers.ConfirmWindow, nil)
	r.stalled.Store(true)
	defer r.stalled.Store(false)
	r.send(p, 1, 10)
	labtest.Eventually(t, "a confirm that says so", func() bool { _, failed := n.confirms(); return failed == 1 })
	if !errors.Is(n.errors[0], drivers.ErrClosed) {
		t.Errorf("no answer in time: %v, want ErrClosed", n.errors[0])
	}
	labtest.Eventually(t, "the end of the connection", func() bool { return p.Err() != nil })
	start := time.Now()
	_ = p.Close()
	if took := time.Since(start); labtest.IsLong() && took > 3*time.Second {
		t.Errorf("Close takes %v", took)
	}
}

func TestStandInTimesOutAndParks(t *testing.T) {
	_, address := inProcess(t, server.Options{Tick: 10 * time.Millisecond})
	r := newRig(t, reached(t, address, `{"messageTimeout": "100ms", "maxRetryCount": 2}`), nil)
	p, _ := r.publisher(drivers.ConfirmEach, nil)
	r.send(p, 1, 10)
	in := &callbacks{}
	// If acknowledgements are repeatedly late, the server delivers the event twice more and then parks it.
	r.consumer(in, func(s *drivers.ConsumerSpec) { s.Ack = drivers.AckInterval })
	labtest.Eventually(t, "the message three times", func() bool { return in.received() == 3 })
	time.Sleep(250 * time.Millisecond)
	if n := in.received(); n != 3 {
		t.Errorf("it is delivered %d times, want 3", n)
	}
	for i, d := range in.got {
		if want := []drivers.Tristate{drivers.No, drivers.Yes, drivers.Yes}[i]; d.Redelivered != want {
			t.Errorf("delivery %d says redelivered %v, want %v", i, d.Redelivered, want)
		}
	}
}

// The delivery after which a rejection parks an event is marked as the last one.
func TestStandInParksRejected(t *testing.T) {
	_, address := inProcess(t, server.Options{})
	for _, retries := range []int{0, 2} {
		r := newRig(t, reached(t, address, fmt.Sprintf(`{"maxRetryCount": %d}`, retries)), nil)
		p, _ := r.publisher(drivers.ConfirmEach, nil)
		r.send(p, 1, 10)
		in := &callbacks{}
		var c drivers.Consumer
		ready := make(chan struct{})
		in.react = func() {
			<-ready
			c.Nack(1)
		}
		c = r.consumer(in, func(s *drivers.ConsumerSpec) { s.Ack, s.Nack = drivers.AckEvery, true })
		close(ready)
		labtest.Eventually(t, "all deliveries", func() bool { return in.received() == retries+1 })
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for i, d := range in.got {
			if want := i == retries; d.Last != want {
				t.Errorf("maxRetryCount %d: delivery %d is the last: %t, want %t", retries, i, d.Last, want)
			}
		}
	}
}

// Consumers beyond the capacity of a connection get an error in time.
func TestStandInConnectionIsFull(t *testing.T) {
	_, address := inProcess(t, server.Options{})
	r := newRig(t, reached(t, address, `{}`), nil)
	on := r.connect(drivers.AnyNode)
	for range callsPerConnection {
		r.consumerOn(on, &callbacks{}, nil)
	}
	spec := drivers.ConsumerSpec{Topology: r.topology, Prefetch: 1, Batch: 1, Ack: drivers.AckEach}
	ctx, cancel := contextFor(r, 300*time.Millisecond)
	defer cancel()
	_, err := on.Consumer(ctx, spec, (&callbacks{}).handle)
	if err == nil || !strings.Contains(err.Error(), "100 calls") {
		t.Errorf("consumer 101 of a connection: %v", err)
	}
	r.consumer(&callbacks{}, nil)
}

// A consumer that closes after all acknowledgements leaves nothing pending, also if the last acknowledgements exceed
// the buffer of the connection.
func TestStandInTakesTheLastAcknowledgements(t *testing.T) {
	_, address := inProcess(t, server.Options{})
	r := newRig(t, reached(t, address, `{}`), nil)
	p, n := r.publisher(drivers.ConfirmBatch, func(s *drivers.PublisherSpec) { s.Batch = 1000 })
	const all = 6000
	r.send(p, all, 10)
	labtest.Eventually(t, "confirms", func() bool { confirmed, _ := n.confirms(); return confirmed == all })
	in := &callbacks{}
	c := r.consumer(in, func(s *drivers.ConsumerSpec) {
		s.Ack, s.Batch, s.Prefetch = drivers.AckEvery, 100, 2*all
	})
	labtest.Eventually(t, "messages", func() bool { return in.received() == all })
	c.Stop()
	c.Ack(all)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	rest := &callbacks{}
	r.consumer(rest, nil)
	r.send(p, 1000, 10)
	labtest.Eventually(t, "what comes next", func() bool { return rest.received() >= 1000 })
	if n := rest.received(); n > 1000 {
		t.Errorf("%d messages come again that were acknowledged", n-1000)
	}
}

func TestStandInSessionLeavesNoGoroutine(t *testing.T) {
	_, address := inProcess(t, server.Options{})
	before := runtime.NumGoroutine()
	for range 3 {
		r := newRig(t, reached(t, address, `{}`), nil)
		p, _ := r.publisher(drivers.ConfirmWindow, nil)
		c := r.consumer(&callbacks{}, nil)
		r.send(p, 50, 10)
		if _, err := r.session.Probe(r.ctx); err != nil {
			t.Error(err)
		}
		if err := errors.Join(r.session.Close(), p.Close(), c.Close()); err != nil { // in the order of a failed task
			t.Error(err)
		}
	}
	// listeners of Forward remain
	labtest.Eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before+12 })
}

func TestProbeCountsWhatIsThere(t *testing.T) {
	_, address := inProcess(t, server.Options{})
	r := newRig(t, reached(t, address, `{}`), func(t *drivers.Topology) {
		t.Queues, t.Subscriptions, t.Consumers = 2, 2,
			4
	})
	p, _ := r.publisher(drivers.ConfirmEach, func(s *drivers.PublisherSpec) { s.Queue = 1 })
	release := make(chan struct{})
	blocked := &callbacks{react: func() { <-release }}
	r.consumer(blocked, func(s *drivers.ConsumerSpec) { s.Queue, s.Subscription, s.Prefetch = 1, 1, 5 })
	defer close(release)
	metrics := func() map[string]float64 {
		all, err := r.session.Probe(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		named := map[string]float64{}
		for _, f := range all {
			named[f.Name] = f.Value
		}
		return named
	}
	first := metrics()
	if _, said := first[drivers.MetricPublishRate]; said {
		t.Errorf("a rate in the first answer: %v", first)
	}
	if first[drivers.MetricConsumers] != 1 || first[drivers.MetricLag] != 0 {
		t.Errorf("before anything was sent: %v", first)
	}
	if _, said := metrics()[drivers.MetricPublishRate]; !said {
		t.Error("the second answer tells no rate")
	}
	r.send(p, 20, 10)
	labtest.Eventually(t, "five under way", func() bool { return metrics()[drivers.MetricUnacked] == 5 })
	then := metrics()
	if lag := then[drivers.MetricLag]; lag != 40 { // twenty per subscription, and no checkpoint yet
		t.Errorf("the lag is %v, want 40", lag)
	}
	r.send(p, 10, 10)
	if rate := metrics()[drivers.MetricPublishRate]; rate <= 0 {
		t.Errorf("ten more messages are a rate of %v", rate)
	}
}

// There are no metrics of a server that was killed.
func TestProbeOfADeadStandInIsMissing(t *testing.T) {
	s, address := inProcess(t, server.Options{})
	r := newRig(t, reached(t, address, `{}`), nil)
	s.Stop()
	if metrics, err := r.session.Probe(r.ctx); err == nil || len(metrics) > 0 {
		t.Errorf("%v, %v", metrics, err)
	}
}

// maxCount is part of the stream's metadata, which the server applies.
func TestMaxCountIsInTheMetadata(t *testing.T) {
	_, address := inProcess(t, server.Options{})
	r := newRig(t, reached(t, address, `{"maxCount": 5}`), nil)
	l, err := r.session.leader(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.client.GetStreamMetadata(r.ctx, streamName(r.topology, 0), kurrentdb.ReadStreamOptions{})
	if err != nil || m.MaxCount() == nil || *m.MaxCount() != 5 {
		t.Errorf("metadata %+v, %v; want a maxCount of 5", m, err)
	}
}
