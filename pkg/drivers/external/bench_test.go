package external

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// BenchmarkMessage measures the time of a message from Publish to its confirm and its handler, with a maximum of 1000
// in flight: through a separate process that does nearly nothing, and through loopback. The difference is the cost of
// the process.
func BenchmarkMessage(b *testing.B) {
	for _, size := range []int{128, 4096} {
		b.Run(fmt.Sprintf("external/%d", size), func(b *testing.B) {
			benchmark(b, openChild(b, "good", usual), size)
		})
		b.Run(fmt.Sprintf("loopback/%d", size), func(b *testing.B) {
			s, err := loopback.Driver{}.Open(context.Background(),
				schematest.Fill(b, loopback.Driver{}, fmt.Sprintf(`{"name": %q}`, b.Name())), drivers.Env{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			benchmark(b, s, size)
		})
	}
}

func benchmark(b *testing.B, s drivers.Session, size int) {
	ctx := context.Background()
	if err := s.Setup(ctx, oneQueue); err != nil {
		b.Fatal(err)
	}
	var received atomic.Int64
	var c drivers.Consumer
	ready := make(chan struct{})
	c = consume(b, s, drivers.ConsumerSpec{Topology: oneQueue, Batch: 100, Ack: drivers.AckEach},
		func(ds []drivers.Delivery) {
			<-ready
			c.Ack(len(ds))
			received.Add(int64(len(ds)))
		})
	close(ready)
	places := make(chan struct{}, 1000)
	p := publish(b, s, drivers.PublisherSpec{Topology: oneQueue, Mode: drivers.ConfirmWindow, MaxInFlight: 1000,
		OnConfirms: func(tokens []uint64, _ error) {
			for range tokens {
				<-places
			}
		}})
	body := make([]byte, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		places <- struct{}{}
		if err := p.Publish(ctx, drivers.Message{Token: uint64(n), Body: body}); err != nil {
			b.Fatal(err)
		}
	}
	for received.Load() < int64(b.N) {
		runtime.Gosched()
	}
	if p.Close() != nil || c.Close() != nil {
		b.Error("close")
	}
}
