package requests

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

const roundTrip = 50 * time.Millisecond

// queue is a broker with a backlog. Its answers take one round trip.
type queue struct {
	left     atomic.Int64 // messages that were not received yet
	requests atomic.Int64 // of Receive
	settled  [Unhandled + 1]atomic.Int64

	mu        sync.Mutex
	unsettled int // received by the consumer, without a request that settles them
	highest   int // maximum of unsettled
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
	q.highest = max(q.highest, q.unsettled)
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

// consumer is a consumer whose owner acknowledges.
type consumer struct {
	*Consumer[int]
	ready chan struct{} // closed when Consumer is set
	every int           // messages per acknowledgement
	held  int           // not acknowledged yet
}

// consume connects a consumer. Each request is for up to perRequest messages. handle reports whether a batch is
// accepted.
func (q *queue) consume(prefetch, perRequest, every int, handle func(n int) bool,
	edit func(*ConsumerPlan[int])) *consumer {
	c, requests := &consumer{ready: make(chan struct{}), every: every}, Concurrent(prefetch, perRequest)
	plan := ConsumerPlan[int]{
		Conn: NewConn(),
		Spec: drivers.ConsumerSpec{Prefetch: prefetch, Batch: 10},
		Handle: func(batch []drivers.Delivery) {
			<-c.ready
			if !handle(len(batch)) {
				c.acknowledge()
				c.Nack(len(batch))
				return
			}
			if c.held += len(batch); c.held >= c.every {
				c.acknowledge()
			}
		},
		Receiver: func() Receive[int] { return q.receive }, Receivers: requests, MaxReceived: perRequest,
		Settle: q.settle, Settlers: requests, MaxSettled: perRequest,
		ReceivePatience: time.Minute, Patience: time.Minute,
	}
	if edit != nil {
		edit(&plan)
	}
	if plan.Settle == nil {
		c.every = math.MaxInt
	}
	c.Consumer = NewConsumer(plan)
	close(c.ready)
	return c
}

func (c *consumer) acknowledge() {
	c.Ack(c.held)
	c.held = 0
}

// close closes the consumer as its owner does: it acknowledges what was handled.
func (c *consumer) close(t *testing.T) {
	t.Helper()
	c.Stop()
	if c.plan.Settle != nil {
		c.acknowledge()
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func all(int) bool { return true }

// The prefetch stays used: its messages are received and acknowledged once per round trip.
func TestConsumerFillsThePrefetch(t *testing.T) {
	const rounds = 40
	for _, c := range []struct{ prefetch, perRequest, every int }{
		{1, 1, 1}, {10, 1, 1}, {100, 1, 1}, {1, 10, 1}, {7, 10, 1}, {10, 10, 1}, {25, 10, 1}, {100, 10, 1}, {1000, 10, 1},
		{100, 10, 10}, {100, 10, 0}, // 0: without acknowledgements
	} {
		name := fmt.Sprintf("%d, %d per request, acknowledged every %d", c.prefetch, c.perRequest, c.every)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var q queue
				q.left.Store(1_000_000)
				var handled int
				consumer := q.consume(c.prefetch, c.perRequest, c.every, func(n int) bool {
					handled += n
					return true
				}, func(p *ConsumerPlan[int]) {
					if c.every == 0 {
						p.Settle = nil
					}
				})
				time.Sleep(rounds*roundTrip + roundTrip/2)
				consumer.close(t)
				if wanted := c.prefetch * rounds * 95 / 100; handled < wanted {
					t.Errorf("%d messages in %d round trips, want %d or more", handled, rounds, wanted)
				}
				if c.every > 0 && q.highest > c.prefetch {
					t.Errorf("%d messages without an acknowledgement, want %d or fewer", q.highest, c.prefetch)
				}
				if got := q.settled[Accepted].Load(); c.every > 0 && got != int64(handled) {
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
		c := q.consume(100, 1, 1, all, nil)
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
		c.close(t)
	})
}

// An answer is sent at once, in as few requests as possible. The oldest messages are answered.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type answer struct {
			keys []int
			how  Settling
		}
		next, answers := 0, make(chan answer, 100)
		c := (&queue{}).consume(20, 20, 100, all, func(p *ConsumerPlan[int]) {
			p.MaxSettled, p.Settlers, p.Receivers = 4, 1, 1
			p.Receiver = func() Receive[int] {
				return func(_ context.Context, n int) (messages []Received[int], _ time.Duration, _ error) {
					for ; next < 20 && len(messages) < n; next++ {
						messages = append(messages, Received[int]{Key: next})
					}
					return messages, time.Second, nil
				}
			}
			p.Settle = func(_ context.Context, keys []int, how Settling) error {
				answers <- answer{slices.Clone(keys), how}
				return nil
			}
		})
		want := func(all ...answer) {
			t.Helper()
			synctest.Wait()
			for _, a := range all {
				if got := <-answers; !reflect.DeepEqual(got, a) {
					t.Errorf("answered %v, want %v", got, a)
				}
			}
			if len(answers) > 0 {
				t.Errorf("%d more requests", len(answers))
			}
		}
		want()
		c.Ack(6)
		want(answer{[]int{0, 1, 2, 3}, Accepted}, answer{[]int{4, 5}, Accepted})
		c.Nack(3)
		want(answer{[]int{6, 7, 8}, Rejected})
		c.Stop()
		c.Ack(9)
		want(answer{[]int{9, 10, 11, 12}, Accepted}, answer{[]int{13, 14, 15, 16}, Accepted}, answer{[]int{17}, Accepted})
		_, _ = c.Close(), c.Close()
		want(answer{[]int{18, 19}, Rejected})
	})
}

// Close returns what was not handled. A rejected message is returned, too.
func TestCloseSettles(t *testing.T) {
	for _, every := range []int{1, 100} {
		synctest.Test(t, func(t *testing.T) {
			var q queue
			q.left.Store(30)
			n := 0
			c := q.consume(100, 10, every, func(int) bool {
				time.Sleep(time.Second)
				n++
				return n != 2
			}, func(p *ConsumerPlan[int]) { p.Spec.Batch = 1 })
			time.Sleep(4*time.Second + 2*roundTrip)
			c.close(t)
			accepted, rejected, unhandled := q.settled[Accepted].Load(), q.settled[Rejected].Load(), q.settled[Unhandled].Load()
			if accepted != 4 || rejected != 1 || unhandled != 25 {
				t.Errorf("every %d: %d accepted, %d rejected, %d unhandled; want 4, 1, 25", every, accepted, rejected,
					unhandled)
			}
		})
	}
}

// Stop waits for the handler, which is not called again.
func TestStopWaitsForTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		q.left.Store(5)
		calls, begun := 0, time.Now()
		c := q.consume(100, 10, 1, func(int) bool {
			calls++
			time.Sleep(time.Minute)
			return true
		}, nil)
		time.Sleep(time.Second)
		for range 2 {
			c.Stop()
		}
		if took := time.Since(begun); calls != 1 || took != time.Minute+roundTrip {
			t.Errorf("Stop returned after %v and %d calls of the handler, want one call of a minute", took, calls)
		}
		c.close(t)
	})
}

// After the connection has ended, no message is requested or passed to the handler.
func TestConsumerOfAnEndedConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		q.left.Store(1000)
		var calls atomic.Int64
		c := q.consume(100, 10, 1, func(int) bool {
			calls.Add(1)
			time.Sleep(time.Second)
			return true
		}, nil)
		time.Sleep(500 * time.Millisecond)
		c.plan.Conn.Cut()
		begun := q.requests.Load()
		time.Sleep(time.Minute)
		if n := q.requests.Load() - begun; calls.Load() != 1 || n > 0 {
			t.Errorf("%d calls of the handler, and %d requests after the end, want the one call before it", calls.Load(), n)
		}
		c.close(t)
		if n := q.settled[Accepted].Load() + q.settled[Unhandled].Load(); n > 0 {
			t.Errorf("%d messages are answered over a connection that has ended", n)
		}
	})
}

// Without an answer, the connection breaks. Close does not wait for it longer than the grace.
func TestConsumerWithoutAnswers(t *testing.T) {
	for _, silent := range []string{"receive", "settle"} {
		synctest.Test(t, func(t *testing.T) {
			var q queue
			q.left.Store(1)
			never := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			c := q.consume(10, 10, 1, all, func(p *ConsumerPlan[int]) {
				p.ReceivePatience, p.Patience = 8*time.Second, 4*time.Second
				if silent == "receive" {
					p.Receiver = func() Receive[int] {
						return func(ctx context.Context, _ int) ([]Received[int], time.Duration, error) { return nil, 0, never(ctx) }
					}
				} else {
					p.Settle = func(ctx context.Context, _ []int, _ Settling) error { return never(ctx) }
				}
			})
			begun := time.Now()
			<-c.Done()
			if err := c.Err(); !errors.Is(err, drivers.ErrClosed) {
				t.Errorf("%s: it ended with %v", silent, err)
			}
			if took := time.Since(begun); took > 11*time.Second {
				t.Errorf("%s: the connection broke after %v", silent, took)
			}
			begun = time.Now()
			c.close(t)
			if took := time.Since(begun); took > 0 {
				t.Errorf("%s: Close took %v", silent, took)
			}
		})
	}
}

// The window stays used: its messages are confirmed once per round trip. A publisher that is interrupted while it fills
// the window causes more and smaller requests than there are places, so the test uses one processor and allows for
// 10 %.
func TestPublisherFillsTheWindow(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rounds = 40
	for _, c := range []struct{ window, perRequest int }{
		{1, 10}, {10, 10}, {100, 10}, {1000, 10}, {100, 1}, {1, 100}, {100, 100}, {1000, 100}, {10_000, 100},
	} {
		t.Run(fmt.Sprintf("%d, %d per request", c.window, c.perRequest), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slots := make(chan struct{}, c.window)
				var confirmed atomic.Int64
				p := New(Plan{
					Conn: NewConn(),
					Spec: drivers.PublisherSpec{Mode: drivers.ConfirmWindow, MaxInFlight: c.window,
						OnConfirms: func(tokens []uint64, _ error) {
							for range tokens {
								confirmed.Add(1)
								<-slots
							}
						}},
					Lanes: Concurrent(c.window, c.perRequest), MaxPerRequest: c.perRequest, Patience: time.Minute,
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
				if got, wanted := confirmed.Load()-before, int64(c.window*rounds*90/100); got < wanted {
					t.Errorf("%d messages in %d round trips, want %d or more", got, rounds, wanted)
				}
			})
		})
	}
}
