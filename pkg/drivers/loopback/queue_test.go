package loopback_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// TestCapacityBlocks fills a queue. The next Publish waits for an acknowledgement or for the end of its context.
func TestCapacityBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, topology := open(t, `,"capacity":5`)
		p := publish(t, s, drivers.PublisherSpec{Topology: topology, Mode: drivers.FireAndForget})
		for range 5 {
			if err := p.Publish(t.Context(), drivers.Message{}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Publish(ctx, drivers.Message{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("publishing to a full queue gives %v", err)
		}
		published := make(chan error, 1)
		go func() { published <- p.Publish(t.Context(), drivers.Message{}) }()
		synctest.Wait()
		if len(published) > 0 {
			t.Fatal("publishing to a full queue does not block")
		}
		got := 0
		c := consume(t, s, drivers.ConsumerSpec{Topology: topology, Batch: 1, Ack: drivers.AckEach},
			func([]drivers.Delivery) { got++ })
		if err := <-published; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_ = c.Close()
		if got != 6 {
			t.Errorf("%d messages arrive, want 6", got)
		}
	})
}

// TestConfirmsDueTogether checks that confirms with the same result that are due at one time come in one call.
func TestConfirmsDueTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, topology := open(t, `,"confirmDelay":"5ms","reject":4`)
		var calls [][]uint64
		p := publish(t, s, drivers.PublisherSpec{Topology: topology, Mode: drivers.ConfirmWindow,
			OnConfirms: func(tokens []uint64, _ error) { calls = append(calls, slices.Clone(tokens)) }})
		for token := range uint64(6) {
			if token == 5 {
				time.Sleep(time.Millisecond)
			}
			if err := p.Publish(t.Context(), drivers.Message{Token: token, Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		_ = p.Close()
		if want := [][]uint64{{0, 1, 2}, {3}, {4}, {5}}; !reflect.DeepEqual(calls, want) {
			t.Errorf("calls with tokens %v, want %v: message 3 is rejected, message 5 is later", calls, want)
		}
	})
}

// TestCut breaks connections with delayed confirms and unanswered deliveries.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, topology := open(t, `,"confirmDelay":"1h"`)
		var failed, again int
		spec := drivers.ConsumerSpec{Topology: topology, Batch: 1, Ack: drivers.AckEvery}
		receiving, sending := connect(t, s, drivers.ConsumerRole), connect(t, s, drivers.PublisherRole)
		c, err := receiving.Consumer(t.Context(), spec, func([]drivers.Delivery) {})
		if err != nil {
			t.Fatal(err)
		}
		p, err := sending.Publisher(t.Context(), drivers.PublisherSpec{
			Topology: topology, Mode: drivers.ConfirmWindow,
			OnConfirms: func(tokens []uint64, err error) {
				if errors.Is(err, drivers.ErrClosed) {
					failed += len(tokens)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if err := p.Publish(t.Context(), drivers.Message{Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		loopback.Cut(t.Name())
		<-receiving.Done()
		<-sending.Done()
		if !errors.Is(receiving.Err(), drivers.ErrClosed) || !errors.Is(sending.Err(), drivers.ErrClosed) {
			t.Errorf("the connections broke with %v and %v", receiving.Err(), sending.Err())
		}
		c.Ack(10) // too late
		synctest.Wait()
		_, _ = p.Close(), c.Close()
		if failed != 10 {
			t.Errorf("%d failed confirms, want 10", failed)
		}
		c = consume(t, s, spec, func(ds []drivers.Delivery) {
			if ds[0].Redelivered == drivers.Yes {
				again++
			}
		})
		synctest.Wait()
		_ = c.Close()
		if again != 10 {
			t.Errorf("%d messages come again as redelivered, want 10", again)
		}
	})
}

// TestAckBetweenCalls acknowledges messages while a consumer waits, whose prefetch is used up. It then receives more.
func TestAckBetweenCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, topology := open(t, "")
		got := 0
		c, err := connect(t, s, drivers.ConsumerRole).Consumer(t.Context(), drivers.ConsumerSpec{Topology: topology,
			Batch: 3, Prefetch: 5, Ack: drivers.AckEvery}, func(ds []drivers.Delivery) { got += len(ds) })
		if err != nil {
			t.Fatal(err)
		}
		p := publish(t, s, drivers.PublisherSpec{Topology: topology, Mode: drivers.FireAndForget})
		for range 10 {
			if err := p.Publish(t.Context(), drivers.Message{Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range []int{5, 7, 9, 10} {
			if i > 0 {
				c.Ack(2)
			}
			synctest.Wait()
			if got != want {
				t.Errorf("%d messages are delivered after %d acknowledgements, want %d", got, 2*i, want)
			}
		}
		c.Nack(2)
		synctest.Wait()
		if got != 12 {
			t.Errorf("%d deliveries after a rejection of 2 messages, want 12", got)
		}
	})
}

// TestPrefetchOfOneSharesFairly proves that two waiting consumers receive messages alternately.
func TestPrefetchOfOneSharesFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, topology := open(t, "")
		var got [2]int
		for i := range got {
			consume(t, s, drivers.ConsumerSpec{Topology: topology, Batch: 1, Prefetch: 1, Ack: drivers.AckEach},
				func([]drivers.Delivery) { got[i]++ })
		}
		p := publish(t, s, drivers.PublisherSpec{Topology: topology, Mode: drivers.FireAndForget})
		synctest.Wait() // both wait
		for range 100 {
			_ = p.Publish(t.Context(), drivers.Message{})
			synctest.Wait()
		}
		_ = s.Close()
		if got != [2]int{50, 50} {
			t.Errorf("two idle consumers share 100 messages as %v", got)
		}
	})
}

// TestHotPathAllocatesNothing counts allocations of publishing in a steady state.
func TestHotPathAllocatesNothing(t *testing.T) {
	s, topology := open(t, "")
	taken := make(chan int, 1<<16)
	consume(t, s, drivers.ConsumerSpec{Topology: topology, Batch: 256, Ack: drivers.AckEach},
		func(d []drivers.Delivery) { taken <- len(d) })
	p := publish(t, s, drivers.PublisherSpec{Topology: topology, Mode: drivers.ConfirmWindow,
		OnConfirms: func([]uint64, error) {}})
	body, ctx := make([]byte, 100), t.Context()
	allocs := testing.AllocsPerRun(20, func() {
		for range 1000 {
			_ = p.Publish(ctx, drivers.Message{Body: body})
		}
		for n := 0; n < 1000; n += <-taken {
		}
	})
	if allocs > 20 { // for 1,000 messages: segments, and growth of lists at the beginning
		t.Errorf("1,000 messages make %v allocations", allocs)
	}
}

// TestSessionsMeet publishes from one session of a broker to another, and not to a broker with another name.
func TestSessionsMeet(t *testing.T) {
	a, topology := open(t, "")
	b, err := loopback.Driver{}.Open(t.Context(), schematest.Fill(t, loopback.Driver{}, fmt.Sprintf(`{"name":%q}`, t.Name())),
		drivers.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	spec := drivers.PublisherSpec{Topology: topology, Mode: drivers.FireAndForget}
	if _, err := connect(t, b, drivers.PublisherRole).Publisher(t.Context(), spec); err != nil {
		t.Errorf("a session does not find the topology of another at the same broker: %v", err)
	}
	other, err := loopback.Driver{}.Open(t.Context(), schematest.Fill(t, loopback.Driver{}, `{"name":"elsewhere"}`),
		drivers.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if _, err := connect(t, other, drivers.PublisherRole).Publisher(t.Context(), spec); err == nil {
		t.Error("a session finds the topology of another broker")
	}
	_ = a
}
