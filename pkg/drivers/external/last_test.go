package external

import (
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// A driver may mark the last delivery of a message. The numbers that it leaves out are 0.
func TestLastDelivery(t *testing.T) {
	noLeaks(t)
	s := openChild(t, "last", quick)
	type got struct {
		body        string
		redelivered drivers.Tristate
		stream      uint32
		last        bool
	}
	deliveries := make(chan got, 10)
	c := consume(t, s, drivers.ConsumerSpec{Topology: oneQueue, Batch: 10, Ack: drivers.AckEach},
		func(batch []drivers.Delivery) {
			for _, d := range batch {
				deliveries <- got{string(d.Body), d.Redelivered, d.Stream, d.Last}
			}
		})
	p := publish(t, s, newLedger().spec())
	if err := p.Publish(t.Context(), drivers.Message{Body: []byte("c")}); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, "three deliveries", func() bool { return len(deliveries) == 3 })
	all := []got{<-deliveries, <-deliveries, <-deliveries}
	if want := []got{{"a", drivers.No, 0, false}, {"b", drivers.Yes, 7, true}, {"c", drivers.No, 0, false}}; !slices.Equal(all,
		want) {
		t.Errorf("the deliveries are %+v, want %+v", all, want)
	}
	_, _ = p.Close(), c.Close()
}

// A consumer whose connection was cut while its handler ran sends nothing but close.
func TestNothingIsHandledAfterCut(t *testing.T) {
	noLeaks(t)
	s := openChild(t, "strict", quick)
	conn := connect(t, s, drivers.ConsumerRole, oneQueue)
	entered, release := make(chan struct{}), make(chan struct{})
	c, err := conn.Consumer(t.Context(), drivers.ConsumerSpec{Topology: oneQueue, Batch: 1, Ack: drivers.AckEach},
		func([]drivers.Delivery) {
			close(entered)
			<-release
		})
	if err != nil {
		t.Fatal(err)
	}
	p := publish(t, s, newLedger().spec())
	if err := p.Publish(t.Context(), drivers.Message{Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	<-entered
	conn.Cut()
	close(release)
	c.Stop()
	if err := s.Setup(t.Context(), oneQueue); err != nil {
		t.Errorf("a request after it: %v", err)
	}
	_, _, _ = c.Close(), p.Close(), conn.Close()
}

// The requests that a driver's client library repeated are counted before the publisher is closed.
func TestRetriedRequests(t *testing.T) {
	noLeaks(t)
	var counted atomic.Int64
	s, err := newChild(t, "retries", quick).Open(t.Context(), json.RawMessage(`{}`),
		drivers.Env{Retried: func(requests int64) { counted.Add(requests) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := publish(t, s, newLedger().spec())
	for range 5 {
		if err := p.Publish(t.Context(), drivers.Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if n := counted.Load(); n != 5 { // the child repeats one request per message
		t.Errorf("%d repeated requests are counted, want 5", n)
	}
}
