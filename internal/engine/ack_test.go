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

// recordingConsumer is a consumer that records its calls.
type recordingConsumer struct {
	idleConsumer
	calls []string
}

func (a *recordingConsumer) Ack(n int)  { a.calls = append(a.calls, fmt.Sprintf("ack %d", n)) }
func (a *recordingConsumer) Nack(n int) { a.calls = append(a.calls, fmt.Sprintf("nack %d", n)) }
func (a *recordingConsumer) Stop()      { a.calls = append(a.calls, "stop") }

// Every policy acknowledges as specified. Before a batch is rejected, the messages before it are acknowledged. At the
// end, the consumer stops before the remaining messages are acknowledged.
func TestAcknowledgements(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		ack        string
		every      int
		batches    []int           // sizes; negative: rejected
		processing []time.Duration // processing times
		want       []string
	}{
		"each":           {ack: "each", batches: []int{3, 1}, want: []string{"ack 3", "ack 1", "stop"}},
		"each, rejected": {ack: "each", batches: []int{1, -2, 1}, want: []string{"ack 1", "nack 2", "ack 1", "stop"}},
		"every": {ack: "every", every: 4, batches: []int{3, 3, 9}, want: []string{"ack 4", "ack 4", "ack 4",
			"stop", "ack 3"}},
		"every, rejected": {ack: "every", every: 4, batches: []int{3, -2, 3, 1}, want: []string{"ack 3", "nack 2",
			"ack 4", "stop"}},
		"every 0":   {ack: "every", batches: []int{2}, want: []string{"ack 1", "ack 1", "stop"}},
		"automatic": {ack: "automatic", batches: []int{3, -1}, want: []string{"stop"}},
		"interval": {ack: "interval", batches: []int{2, 2, 2, 2}, processing: []time.Duration{3 * ms, 6 * ms, 10 * ms,
			6 * ms}, want: []string{"ack 6", "ack 2", "stop"}}, // after the batches that run at 10 ms and at 20 ms
		"interval, idle": {ack: "interval", batches: nil, want: []string{"stop"}},
		"interval, rejected": {ack: "interval", batches: []int{2, -3, 1}, want: []string{"ack 2", "nack 3", "stop",
			"ack 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				consumer := &recordingConsumer{}
				a := newAcker(plan.Consumers{Ack: c.ack, AckEvery: c.every}, nil)
				a.start(consumer, 10*ms)
				for i, n := range c.batches {
					if !a.begin(t.Context()) {
						t.Fatal("begin: got false, want true")
					}
					if i < len(c.processing) {
						time.Sleep(c.processing[i])
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
					t.Errorf("calls of the consumer: got %q, want %q", consumer.calls, c.want)
				}
			})
		})
	}
}

// The accepted messages of an idle consumer are acknowledged at the end of the interval.
func TestIntervalAcknowledgesWithoutDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		consumer := &recordingConsumer{}
		a := newAcker(plan.Consumers{Ack: "interval"}, nil)
		a.start(consumer, time.Second)
		a.begin(t.Context())
		a.accept(5)
		a.end()
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []string{"ack 5"}; !reflect.DeepEqual(consumer.calls, want) {
			t.Errorf("calls of the consumer: got %q, want %q", consumer.calls, want)
		}
		a.finish()
	})
}

// blockingAckConsumer is a consumer whose Ack blocks until Stop is called, and then for two seconds.
type blockingAckConsumer struct {
	recordingConsumer
	stopped chan struct{}
}

func (b *blockingAckConsumer) Ack(n int) {
	<-b.stopped
	time.Sleep(2 * time.Second)
	b.recordingConsumer.Ack(n)
}

func (b *blockingAckConsumer) Stop() {
	b.recordingConsumer.Stop()
	close(b.stopped)
}

// Stop is called although an acknowledgement waits for the broker, because the driver limits that wait after Stop.
// finish waits for the acknowledgement.
func TestAnAcknowledgementDoesNotDelayStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		consumer := &blockingAckConsumer{stopped: make(chan struct{})}
		a := newAcker(plan.Consumers{Ack: "interval"}, nil)
		a.start(consumer, time.Second)
		a.begin(t.Context())
		a.accept(5)
		a.end()
		time.Sleep(time.Second)
		synctest.Wait() // the acknowledgement runs
		a.finish()
		if want := []string{"stop", "ack 5"}; !reflect.DeepEqual(consumer.calls, want) {
			t.Errorf("calls of the consumer: got %q, want %q", consumer.calls, want)
		}
	})
}

// If the handler did not process a delivery, it processes no later one. Its acknowledgement would otherwise apply to
// the skipped delivery.
func TestNoDeliveryIsProcessedAfterASkippedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAcker(plan.Consumers{Ack: "each"}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if a.begin(ctx) {
			t.Error("begin before start, with an ended context: got true, want false")
		}
		a.start(&recordingConsumer{}, 0)
		if a.begin(t.Context()) {
			t.Error("begin after a skipped delivery: got true, want false")
		}
	})
}

// begin blocks until start is called with the consumer.
func TestHandlerWaitsForTheConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAcker(plan.Consumers{Ack: "each"}, nil)
		handling := make(chan bool, 1)
		go func() { handling <- a.begin(t.Context()) }()
		synctest.Wait()
		if len(handling) > 0 {
			t.Error("begin returned before start")
		}
		a.start(&recordingConsumer{}, 0)
		if !<-handling {
			t.Error("begin: got false, want true")
		}
	})
}
