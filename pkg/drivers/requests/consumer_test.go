package requests

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
)

const roundTrip = 50 * time.Millisecond

// queue is a broker with a backlog. Its answers take one round trip.
type queue struct {
	left     atomic.Int64 // messages that were not received yet
	requests atomic.Int64 // of Receive
	settled  [Unhandled + 1]atomic.Int64

	mu        sync.Mutex
	unsettled int // received by the consumer, without a request that settles them
	most      int // maximum of unsettled
}

func (q *queue) receive(ctx context.Context, n int) ([]Received[int], time.Duration, error) {
	q.requests.Add(1)
	select {
	case <-time.After(roundTrip):
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	var messages []Received[int]
	for len(messages) < n && q.left.Add(-1) >= 0 {
		messages = append(messages, Received[int]{})
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unsettled += len(messages)
	q.most = max(q.most, q.unsettled)
	return messages, 10 * time.Millisecond, nil
}

func (q *queue) settle(_ context.Context, keys []int, how Settling) error {
	q.mu.Lock()
	q.unsettled -= len(keys)
	q.mu.Unlock()
	time.Sleep(roundTrip)
	q.settled[how].Add(int64(len(keys)))
	return nil
}

// consume connects a consumer. Each request is for up to most messages.
func (q *queue) consume(prefetch, most int, handle legacy.Handler, edit func(*ConsumerPlan[int])) *Consumer[int] {
	requests := Concurrent(prefetch, most)
	plan := ConsumerPlan[int]{
		Spec:     legacy.ConsumerSpec{Prefetch: prefetch, Batch: 10, Ack: drivers.AckEach},
		Handle:   handle,
		Receiver: func() Receive[int] { return q.receive }, Receivers: requests, Most: most,
		Settle: q.settle, Settlers: requests, MostSettled: most,
		ReceivePatience: time.Minute, Patience: time.Minute, Link: &Link{}, Leave: func() {},
	}
	if edit != nil {
		edit(&plan)
	}
	return NewConsumer(plan)
}

// The prefetch stays used: its messages are received and acknowledged once per round trip.
func TestConsumerFillsThePrefetch(t *testing.T) {
	const rounds = 40
	for _, c := range []struct {
		prefetch, most int
		ack            drivers.Ack
		every          int
	}{
		{1, 1, drivers.AckEach, 0}, {10, 1, drivers.AckEach, 0}, {100, 1, drivers.AckEach, 0},
		{1, 10, drivers.AckEach, 0}, {7, 10, drivers.AckEach, 0}, {10, 10, drivers.AckEach, 0},
		{25, 10, drivers.AckEach, 0}, {100, 10, drivers.AckEach, 0}, {1000, 10, drivers.AckEach, 0},
		{100, 10, drivers.AckEvery, 10}, {100, 10, drivers.AckAutomatic, 0},
	} {
		t.Run(fmt.Sprintf("%d, %d per request, %s", c.prefetch, c.most, c.ack), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var q queue
				q.left.Store(1_000_000)
				var handled int
				consumer := q.consume(c.prefetch, c.most, func(batch []drivers.Delivery) error {
					handled += len(batch)
					return nil
				}, func(p *ConsumerPlan[int]) {
					p.Spec.Ack, p.Spec.AckEvery = c.ack, c.every
					if c.ack == drivers.AckAutomatic {
						p.Settle = nil
					}
				})
				time.Sleep(rounds*roundTrip + roundTrip/2)
				if err := consumer.Close(); err != nil {
					t.Fatal(err)
				}
				if least := c.prefetch * rounds * 95 / 100; handled < least {
					t.Errorf("%d messages in %d round trips, want %d or more", handled, rounds, least)
				}
				if c.ack != drivers.AckAutomatic && q.most > c.prefetch {
					t.Errorf("%d messages without an acknowledgement, want %d or fewer", q.most, c.prefetch)
				}
				if got := q.settled[Accepted].Load(); c.ack != drivers.AckAutomatic && got != int64(handled) {
					t.Errorf("%d messages acknowledged, want %d", got, handled)
				}
			})
		})
	}
}

// An empty queue has one request at a time, and the others begin when there are messages.
func TestOneReceiverPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		c := q.consume(100, 1, func([]drivers.Delivery) error { return nil }, nil)
		time.Sleep(time.Second)
		begun := q.requests.Load()
		time.Sleep(60 * time.Second)
		if got, want := q.requests.Load()-begun, int64(1001); got > want {
			t.Errorf("%d requests in a minute, want %d or fewer: one receiver polls", got, want)
		}
		q.left.Store(1_000_000)
		time.Sleep(time.Second) // 100 receivers are awake after 7 round trips
		begun = q.requests.Load()
		time.Sleep(10 * roundTrip)
		if got := q.requests.Load() - begun; got < 950 {
			t.Errorf("%d requests in 10 round trips, want 950 or more of 100 receivers", got)
		}
		_ = c.Close()
	})
}

// A message does not wait for an acknowledgement until a slow handler has accepted others.
func TestAcknowledgementDoesNotWaitForTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		q.left.Store(10)
		c := q.consume(10, 10, func([]drivers.Delivery) error { time.Sleep(time.Second); return nil },
			func(p *ConsumerPlan[int]) { p.Spec.Batch = 1 })
		time.Sleep(5*time.Second + 3*roundTrip)
		if got := q.settled[Accepted].Load(); got != 5 {
			t.Errorf("%d messages acknowledged after 5 s, want 5 of one per second", got)
		}
		_ = c.Close()
	})
}

// Close acknowledges what was handled, and gives back the rest. A rejected message is given back, too.
func TestCloseSettles(t *testing.T) {
	for _, ack := range []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval} {
		synctest.Test(t, func(t *testing.T) {
			var q queue
			q.left.Store(30)
			n := 0
			c := q.consume(100, 10, func([]drivers.Delivery) error {
				time.Sleep(time.Second)
				if n++; n == 2 {
					return errors.New("no")
				}
				return nil
			}, func(p *ConsumerPlan[int]) {
				p.Spec.Batch, p.Spec.Ack, p.Spec.AckEvery, p.Spec.AckInterval = 1, ack, 100, time.Hour
			})
			time.Sleep(4*time.Second + 2*roundTrip)
			_ = c.Close()
			accepted, rejected, unhandled := q.settled[Accepted].Load(), q.settled[Rejected].Load(), q.settled[Unhandled].Load()
			if accepted != 4 || rejected != 1 || unhandled != 25 {
				t.Errorf("%s: %d accepted, %d rejected, %d unhandled; want 4, 1, 25", ack, accepted, rejected, unhandled)
			}
		})
	}
}

// Without an answer, the link breaks. Close does not wait for it longer than the grace.
func TestConsumerWithoutAnswers(t *testing.T) {
	for _, silent := range []string{"receive", "settle"} {
		synctest.Test(t, func(t *testing.T) {
			var q queue
			q.left.Store(1)
			closed := make(chan error, 2)
			never := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			c := q.consume(10, 10, func([]drivers.Delivery) error { return nil }, func(p *ConsumerPlan[int]) {
				p.ReceivePatience, p.Patience = 8*time.Second, 4*time.Second
				p.Spec.OnClosed = func(err error) { closed <- err }
				if silent == "receive" {
					p.Receiver = func() Receive[int] {
						return func(ctx context.Context, _ int) ([]Received[int], time.Duration, error) { return nil, 0, never(ctx) }
					}
				} else {
					p.Settle = func(ctx context.Context, _ []int, _ Settling) error { return never(ctx) }
				}
			})
			begun := time.Now()
			if err := <-closed; !errors.Is(err, drivers.ErrClosed) {
				t.Errorf("%s: OnClosed got %v", silent, err)
			}
			if took := time.Since(begun); took > 11*time.Second {
				t.Errorf("%s: the link broke after %v", silent, took)
			}
			begun = time.Now()
			_ = c.Close()
			if took := time.Since(begun); took > 2*grace || len(closed) > 0 {
				t.Errorf("%s: Close took %v, %d more calls of OnClosed", silent, took, len(closed))
			}
		})
	}
}

// The window stays used: its messages are confirmed once per round trip. A publisher that is interrupted while it fills the
// window causes more and smaller requests than there are places, so the test uses one processor and allows for 10 %.
func TestPublisherFillsTheWindow(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rounds = 40
	for _, c := range []struct{ window, most int }{
		{1, 10}, {10, 10}, {100, 10}, {1000, 10}, {100, 1}, {1, 100}, {100, 100}, {1000, 100}, {10_000, 100},
	} {
		t.Run(fmt.Sprintf("%d, %d per request", c.window, c.most), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slots := make(chan struct{}, c.window)
				var confirmed atomic.Int64
				p := New(Plan{
					Spec: legacy.PublisherSpec{Mode: drivers.ConfirmWindow, MaxInFlight: c.window,
						OnConfirms: func(tokens []uint64, _ error) {
							for range tokens {
								confirmed.Add(1)
								<-slots
							}
						}},
					Lanes: Concurrent(c.window, c.most), Most: c.most, Patience: time.Minute,
					Lane: func(*drivers.Waiting) Publish {
						return func(_ context.Context, batch []drivers.Message, _ []error) (int, error) {
							time.Sleep(roundTrip)
							return len(batch), nil
						}
					},
				})
				publish := func(rounds time.Duration) {
					for begun := time.Now(); time.Since(begun) < rounds*roundTrip; {
						slots <- struct{}{}
						if err := p.Publish(t.Context(), drivers.Message{}); err != nil {
							t.Fatal(err)
						}
					}
				}
				publish(10) // the first requests may have few messages, and the others wait
				before := confirmed.Load()
				publish(rounds)
				_ = p.Close()
				if got, least := confirmed.Load()-before, int64(c.window*rounds*90/100); got < least {
					t.Errorf("%d messages in %d round trips, want %d or more", got, rounds, least)
				}
			})
		})
	}
}
