package engine

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// answers is a consumer that records its calls.
type answers struct {
	idle
	calls []string
}

func (a *answers) Ack(n int)  { a.calls = append(a.calls, fmt.Sprintf("ack %d", n)) }
func (a *answers) Nack(n int) { a.calls = append(a.calls, fmt.Sprintf("nack %d", n)) }
func (a *answers) Stop()      { a.calls = append(a.calls, "stop") }

// Every policy acknowledges as specified. A refused batch comes after the acknowledgement of the messages before it. At
// the end, the consumer stops before the rest is acknowledged.
func TestAcknowledgements(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		ack     string
		every   int
		batches []int           // sizes; negative: refused
		took    []time.Duration // processing times
		want    []string
	}{
		"each":           {ack: "each", batches: []int{3, 1}, want: []string{"ack 3", "ack 1", "stop"}},
		"each, refused":  {ack: "each", batches: []int{1, -2, 1}, want: []string{"ack 1", "nack 2", "ack 1", "stop"}},
		"every":          {ack: "every", every: 4, batches: []int{3, 3, 9}, want: []string{"ack 4", "ack 4", "ack 4", "stop", "ack 3"}},
		"every, refused": {ack: "every", every: 4, batches: []int{3, -2, 3, 1}, want: []string{"ack 3", "nack 2", "ack 4", "stop"}},
		"every 0":        {ack: "every", batches: []int{2}, want: []string{"ack 1", "ack 1", "stop"}},
		"automatic":      {ack: "automatic", batches: []int{3, -1}, want: []string{"stop"}},
		"interval": {ack: "interval", batches: []int{2, 2, 2, 2}, took: []time.Duration{3 * ms, 6 * ms, 10 * ms, 6 * ms},
			want: []string{"ack 6", "ack 2", "stop"}}, // after the batches that run at 10 ms and at 20 ms
		"interval, idle":    {ack: "interval", batches: nil, want: []string{"stop"}},
		"interval, refused": {ack: "interval", batches: []int{2, -3, 1}, want: []string{"ack 2", "nack 3", "stop", "ack 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				consumer := &answers{}
				a := newAcker(plan.Consumers{Ack: c.ack, AckEvery: c.every})
				a.start(consumer, 10*ms)
				for i, n := range c.batches {
					if !a.begin(t.Context()) {
						t.Fatal("the handler does not begin")
					}
					if i < len(c.took) {
						time.Sleep(c.took[i])
					}
					if n < 0 {
						a.refuse(-n)
					} else {
						a.accept(n)
					}
					a.end()
					synctest.Wait()
				}
				a.finish()
				if !reflect.DeepEqual(consumer.calls, c.want) {
					t.Errorf("calls %q, want %q", consumer.calls, c.want)
				}
			})
		})
	}
}

// The accepted messages of an idle consumer are acknowledged at the end of the interval.
func TestIntervalAcknowledgesWithoutDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		consumer := &answers{}
		a := newAcker(plan.Consumers{Ack: "interval"})
		a.start(consumer, time.Second)
		a.begin(t.Context())
		a.accept(5)
		a.end()
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []string{"ack 5"}; !reflect.DeepEqual(consumer.calls, want) {
			t.Errorf("calls %q, want %q", consumer.calls, want)
		}
		a.finish()
	})
}

// bounded is a consumer whose Ack waits for the broker: without a limit, and for two seconds from Stop on.
type bounded struct {
	answers
	stopped chan struct{}
}

func (b *bounded) Ack(n int) {
	<-b.stopped
	time.Sleep(2 * time.Second)
	b.answers.Ack(n)
}

func (b *bounded) Stop() {
	b.answers.Stop()
	close(b.stopped)
}

// A consumer is stopped although an acknowledgement waits for the broker, because the driver limits that from Stop on.
// The end of the consumer waits for the acknowledgement.
func TestAnAcknowledgementDoesNotDelayStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		consumer := &bounded{stopped: make(chan struct{})}
		a := newAcker(plan.Consumers{Ack: "interval"})
		a.start(consumer, time.Second)
		a.begin(t.Context())
		a.accept(5)
		a.end()
		time.Sleep(time.Second)
		synctest.Wait() // the acknowledgement runs
		a.finish()
		if want := []string{"stop", "ack 5"}; !reflect.DeepEqual(consumer.calls, want) {
			t.Errorf("calls %q, want %q", consumer.calls, want)
		}
	})
}

// If the handler did not process a delivery, it processes no later one, because its answer would be that of the first.
func TestNothingIsProcessedAfterASkippedDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAcker(plan.Consumers{Ack: "each"})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if a.begin(ctx) {
			t.Error("the handler begins without a consumer")
		}
		a.start(&answers{}, 0)
		if a.begin(t.Context()) {
			t.Error("the handler begins with the second delivery")
		}
	})
}

// The handler waits until the consumer is known.
func TestHandlerWaitsForTheConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAcker(plan.Consumers{Ack: "each"})
		begun := make(chan bool, 1)
		go func() { begun <- a.begin(t.Context()) }()
		synctest.Wait()
		if len(begun) > 0 {
			t.Error("the handler begins before the consumer is connected")
		}
		a.start(&answers{}, 0)
		if !<-begun {
			t.Error("the handler does not begin")
		}
	})
}
