package loopback_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// open returns a session of a new broker, and a topology of one queue.
func open(tb testing.TB, options string) (drivers.Session, drivers.Topology) {
	tb.Helper()
	raw := fmt.Sprintf(`{"name":%q%s}`, tb.Name(), options)
	s, err := loopback.Driver{}.Open(context.Background(), schematest.Fill(tb, loopback.Driver{}, raw), drivers.Env{})
	if err != nil {
		tb.Fatal(err)
	}
	t := drivers.Topology{Name: "t", Queues: 1, Subscriptions: 1, Bindings: 1}
	if err := s.Setup(context.Background(), t); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = s.Teardown(context.Background(), t)
		_ = s.Close()
	})
	return s, t
}

// connect makes a connection of a role. It is closed with its session.
func connect(tb testing.TB, s drivers.Session, role drivers.Role) drivers.Conn {
	tb.Helper()
	c, err := s.Connect(context.Background(), drivers.ConnSpec{Role: role})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// consume connects a consumer with a connection of its own. It acknowledges each message that handle has handled.
func consume(tb testing.TB, s drivers.Session, spec drivers.ConsumerSpec, handle func([]drivers.Delivery)) drivers.Consumer {
	tb.Helper()
	var c drivers.Consumer
	ready, known := make(chan struct{}), false
	made, err := connect(tb, s, drivers.ConsumerRole).Consumer(context.Background(), spec, func(ds []drivers.Delivery) {
		handle(ds)
		if !known {
			<-ready
			known = true
		}
		c.Ack(len(ds))
	})
	if err != nil {
		tb.Fatal(err)
	}
	c = made
	close(ready)
	return c
}

// publish connects a publisher with a connection of its own.
func publish(tb testing.TB, s drivers.Session, spec drivers.PublisherSpec) drivers.Publisher {
	tb.Helper()
	p, err := connect(tb, s, drivers.PublisherRole).Publisher(context.Background(), spec)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// BenchmarkPublishDeliver measures the whole path of a message: publish, confirm, deliver, acknowledge. With -cpu 1,
// the result is the CPU time that loopback adds to every message.
func BenchmarkPublishDeliver(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for _, batch := range []int{1, 256} {
			b.Run(fmt.Sprintf("size=%d/batch=%d", size, batch), func(b *testing.B) { publishDeliver(b, size, batch) })
		}
	}
}

func publishDeliver(b *testing.B, size, batch int) {
	s, topology := open(b, "")
	done, got, confirmed := make(chan struct{}), 0, 0
	c := consume(b, s, drivers.ConsumerSpec{Topology: topology, Batch: batch, Ack: drivers.AckEach},
		func(d []drivers.Delivery) {
			if got += len(d); got == b.N {
				close(done)
			}
		})
	p := publish(b, s, drivers.PublisherSpec{
		Topology: topology, Mode: drivers.ConfirmWindow, MaxInFlight: 1000,
		OnConfirms: func(tokens []uint64, _ error) { confirmed += len(tokens) },
	})
	body := make([]byte, size)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if err := p.Publish(b.Context(), drivers.Message{Token: uint64(i), Body: body}); err != nil {
			b.Fatal(err)
		}
	}
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		b.Fatalf("%d of %d arrived", got, b.N)
	}
	b.StopTimer()
	_ = p.Close()
	_ = c.Close()
	if confirmed != b.N {
		b.Fatalf("%d confirms for %d messages", confirmed, b.N)
	}
}
