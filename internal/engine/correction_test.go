package engine

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// A message takes 3 ms. If the agents have different clocks, the latency is corrected by the consumer's correction
// minus the publisher's. A negative latency is counted as such.
func TestEndToEndLatencyIsCorrectedBetweenClocks(t *testing.T) {
	const elapsed = 3 * time.Millisecond
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	for name, c := range map[string]struct {
		foreign             bool
		publisher, consumer int64
		want                time.Duration
	}{
		"one clock":           {false, ms(7), ms(250), elapsed},
		"consumer is behind":  {true, 0, ms(250), elapsed + 250*time.Millisecond},
		"publisher is behind": {true, ms(2), 0, elapsed - 2*time.Millisecond},
		"both are behind":     {true, ms(250), ms(251), elapsed + time.Millisecond},
		"negative latency":    {true, ms(4), 0, -time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newReceiver(t)
				id := e.clockID
				if c.foreign {
					id++
				}
				e.Correct(c.consumer)
				body := make([]byte, EnvelopeSize)
				sum := stamp(body, e.task, id, 0)
				put(body, sum, 0, e.timeline.now(), e.timeline.now(), c.publisher)
				time.Sleep(elapsed)
				e.consumers[0].receiveBatch(nil, []drivers.Delivery{{Body: body}})
				m := record.NewMerged()
				m.Add(record.Snapshot{Agent: "a", Windows: e.Take(false).Windows})
				h := m.Hist(record.EndToEnd)
				if c.want < 0 {
					if h.Negative() != 1 {
						t.Errorf("got %d negative latencies, want 1", h.Negative())
					}
					return
				}
				if got := time.Duration(h.Quantile(1)); h.Count() != 1 || got < c.want*999/1000 ||
					got > c.want*1001/1000 {
					t.Errorf("got %d latencies of %v, want 1 of %v", h.Count(), got, c.want)
				}
			})
		})
	}
}

// A late duplicate is not the last delivery, with which the measurement of a count ends. It is reported separately,
// because messages may wait behind it.
func TestADuplicateIsNotTheLastDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newReceiver(t)
		body := make([]byte, EnvelopeSize)
		put(body, stamp(body, e.task, e.clockID, 0), 0, 1, 1, 0)
		for _, at := range []time.Duration{2 * time.Second, 32 * time.Second} {
			time.Sleep(at - time.Duration(e.timeline.now()))
			e.consumers[0].receiveBatch(nil, []drivers.Delivery{{Body: body}})
		}
		part := e.Take(false)
		if first, last := time.Duration(part.FirstDelivery), time.Duration(part.LastDelivery); first != 2*time.Second ||
			last != 2*time.Second {
			t.Errorf("got first delivery after %v, last after %v, want 2 s for both", first, last)
		}
		if other := time.Duration(part.LastOther); other != 32*time.Second {
			t.Errorf("last other delivery: got %v, want 32 s", other)
		}
	})
}

// newReceiver returns an engine with one unconnected consumer, during a measurement.
func newReceiver(t *testing.T) *Engine { return newReceivers(t, 1) }

// redelivered returns a batch of redelivered messages of one publisher.
func redelivered(e *Engine, n, size int) (batch []drivers.Delivery) {
	for i := range n {
		body := make([]byte, size)
		now := e.timeline.now()
		put(body, stamp(body, e.task, e.clockID, 0), uint64(i), now, now, 0)
		batch = append(batch, drivers.Delivery{Body: body, Redelivered: drivers.Yes})
	}
	return batch
}

// The delivery time of a redelivered message is that of its arrival. It does not include the search for the message at
// other consumers, whose locks may be taken.
func TestDeliveryTimeOfRedeliveredMessages(t *testing.T) {
	e := newReceivers(t, 2)
	batch := redelivered(e, 1, EnvelopeSize)
	e.consumers[1].mu.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.consumers[0].receiveBatch(nil, batch)
	}()
	for stacks := make([]byte, 1<<20); ; runtime.Gosched() {
		select {
		case <-done:
			t.Fatal("the delivery was recorded without the other consumer's lock")
		default:
		}
		text := string(stacks[:runtime.Stack(stacks, true)])
		if strings.Contains(text, "receivedByOthers") && strings.Contains(text, "sync.(*Mutex).Lock") {
			break
		}
	}
	waited := e.timeline.now()
	e.consumers[1].mu.Unlock()
	<-done
	if at := e.Take(false).LastDelivery; at == 0 || at > waited {
		t.Errorf("delivered at %d ns, want before %d ns, when the other consumer's lock was released", at, waited)
	}
}

// The time per redelivered message grows little with the number of consumers of its queue.
func BenchmarkRedelivered(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("consumers=%d", n), func(b *testing.B) {
			e := newReceivers(b, n)
			batch := redelivered(e, 100, 64<<10)
			b.ReportAllocs()
			for b.Loop() {
				e.consumers[0].receiveBatch(nil, batch)
			}
		})
	}
}

// newReceivers returns an engine with n consumers of one queue.
func newReceivers(t testing.TB, n int) *Engine {
	w := plan.Default()
	w.Warmup, w.Measure = 0, plan.Duration(time.Minute)
	e, err := New(Config{Log: slog.New(slog.DiscardHandler), Assignment: plan.Assignment{
		Task:       plan.Task{Run: "test", ID: "t", Cell: plan.Cell{Workload: w}},
		Publishers: plan.Share{Total: 1}, Consumers: plan.Share{Count: n, Total: n}}})
	if err != nil {
		t.Fatal(err)
	}
	e.begin(clock.Now())
	t.Cleanup(func() {
		e.stopSupervision()
		for _, c := range e.consumers {
			<-c.done
		}
	})
	return e
}
