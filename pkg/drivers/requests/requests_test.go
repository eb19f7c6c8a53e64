package requests

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

var errFull = fmt.Errorf("%w: full", drivers.ErrRejected)

// world is a broker that responds after some time, with the callbacks of a publisher's owner.
type world struct {
	conn    *Conn // of the publisher
	answer  time.Duration
	refuse  func(token uint64) error
	breakAt int // the request at which the link is broken; 0: none
	limit   int // maximum messages per request; 0: unlimited

	mu       sync.Mutex
	requests [][]uint64
	under    int
	highest  int // maximum number of concurrent requests
	confirms map[uint64][]error
	calls    int // of OnConfirms
}

func (w *world) publisher(mode drivers.Mode, edit func(*Plan)) *Publisher {
	w.conn, w.confirms = NewConn(), map[uint64][]error{}
	plan := Plan{
		Conn: w.conn,
		Spec: drivers.PublisherSpec{
			Mode: mode, MaxInFlight: 100, Batch: 10,
			OnConfirms: func(tokens []uint64, err error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.calls++
				for _, token := range tokens {
					w.confirms[token] = append(w.confirms[token], err)
				}
			},
		},
		Lanes: 1, MaxPerRequest: 10, Patience: 30 * time.Second,
		Lane: func(*drivers.Waiting) Publish { return w.send },
	}
	if edit != nil {
		edit(&plan)
	}
	return New(plan)
}

var errGone = errors.New("gone")

func (w *world) send(ctx context.Context, batch []drivers.Message, verdicts []error) (int, error) {
	w.mu.Lock()
	if w.limit > 0 {
		batch = batch[:min(len(batch), w.limit)]
	}
	var tokens []uint64
	for _, m := range batch {
		tokens = append(tokens, m.Token)
	}
	w.requests = append(w.requests, tokens)
	n := len(w.requests)
	w.under++
	w.highest = max(w.highest, w.under)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.under--
	}()
	select {
	case <-time.After(w.answer):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if n == w.breakAt {
		return len(batch) / 2, errGone
	}
	for i := range batch {
		if w.refuse != nil {
			verdicts[i] = w.refuse(batch[i].Token)
		}
	}
	return len(batch), nil
}

func publish(t *testing.T, p *Publisher, from, to uint64) {
	t.Helper()
	for token := from; token < to; token++ {
		if err := p.Publish(t.Context(), drivers.Message{Token: token}); err != nil {
			t.Fatalf("publish %d: %v", token, err)
		}
	}
}

// once checks that every message up to n was confirmed once, with the error of want.
func (w *world) once(t *testing.T, n uint64, want func(token uint64) error) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for token := range n {
		got := w.confirms[token]
		if len(got) != 1 || !errors.Is(got[0], want(token)) || (got[0] == nil) != (want(token) == nil) {
			t.Errorf("message %d is confirmed with %v, want once %v", token, got, want(token))
		}
	}
	if len(w.confirms) != int(n) {
		t.Errorf("%d messages are confirmed, want %d", len(w.confirms), n)
	}
}

func fine(uint64) error { return nil }

// A request contains the messages that are queued when the previous one has its response: no message waits for others,
// and the order is kept.
func TestWindowGathersWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: time.Second}
		p := w.publisher(drivers.ConfirmWindow, nil)
		publish(t, p, 0, 1)
		synctest.Wait()
		publish(t, p, 1, 25)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		var sizes []int
		var order []uint64
		for _, r := range w.requests {
			sizes, order = append(sizes, len(r)), append(order, r...)
		}
		if want := []int{1, 10, 10, 4}; !slices.Equal(sizes, want) {
			t.Errorf("requests of %v messages, want %v", sizes, want)
		}
		if !slices.IsSorted(order) {
			t.Errorf("messages are sent in the order %v", order)
		}
		w.once(t, 25, fine)
		_ = p.Close()
	})
}

// On one processor, no request begins before all messages are queued.
func TestLanesWorkAtOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: 500 * time.Millisecond}
		p := w.publisher(drivers.ConfirmWindow, func(plan *Plan) { plan.Lanes, plan.MaxPerRequest = 3, 2 })
		publish(t, p, 0, 12)
		begun := time.Now()
		_ = p.Close()
		if w.highest != 3 {
			t.Errorf("%d requests at a time, want 3", w.highest)
		}
		if took := time.Since(begun); took != time.Second {
			t.Errorf("12 messages by requests of 2, 3 at a time, take %v", took)
		}
		w.once(t, 12, fine)
	})
}

// A batch is one request, sent at the latest when it is full. Flush sends an incomplete batch.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: time.Second, refuse: func(token uint64) error {
			if token == 3 {
				return errFull
			}
			return nil
		}}
		p := w.publisher(drivers.ConfirmBatch, nil)
		publish(t, p, 0, 14)
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		publish(t, p, 14, 16)
		_ = p.Close()
		var sizes []int
		for _, r := range w.requests {
			sizes = append(sizes, len(r))
		}
		if want := []int{10, 4, 2}; !slices.Equal(sizes, want) {
			t.Errorf("requests of %v messages, want %v", sizes, want)
		}
		w.once(t, 16, func(token uint64) error {
			if token == 3 {
				return drivers.ErrRejected
			}
			return nil
		})
		if want := 4; w.calls != want {
			t.Errorf("%d calls of OnConfirms, want %d: two for the answer with a refused message, and one per other answer",
				w.calls, want)
		}
		if err := w.conn.Err(); err != nil {
			t.Errorf("a refused message breaks the connection: %v", err)
		}
	})
}

// A batch of several requests is confirmed by their responses. The timeout applies to each request.
func TestBatchesOfSeveralRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: 20 * time.Second, limit: 3}
		p := w.publisher(drivers.ConfirmBatch, nil)
		published := make(chan struct{})
		go func() {
			defer close(published)
			publish(t, p, 0, 10)
		}()
		for at, want := range []int{0, 3, 6, 9} {
			time.Sleep(time.Second)
			synctest.Wait()
			w.mu.Lock()
			if got := len(w.confirms); got != want {
				t.Errorf("%d messages are confirmed after %d answers, want %d", got, at, want)
			}
			w.mu.Unlock()
			time.Sleep(19 * time.Second)
		}
		<-published
		w.once(t, 10, fine)
		if err := w.conn.Err(); err != nil {
			t.Errorf("answers within the patience break the connection: %v", err)
		}
		_ = p.Close()

		w = &world{answer: time.Second, limit: 3, breakAt: 2}
		p = w.publisher(drivers.ConfirmBatch, nil)
		publish(t, p, 0, 10)
		w.once(t, 10, func(token uint64) error {
			if token < 3+1 {
				return nil
			}
			return drivers.ErrClosed
		})
		if len(w.requests) != 2 {
			t.Errorf("%d requests, want none after the one that broke", len(w.requests))
		}
		_ = p.Close()
	})
}

// Messages with a response before the connection broke keep it. All others fail, and nothing more is sent.
func TestBrokenConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: time.Second, breakAt: 2}
		p := w.publisher(drivers.ConfirmWindow, nil)
		publish(t, p, 0, 1)
		synctest.Wait()
		publish(t, p, 1, 31)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(w.requests) != 2 {
			t.Errorf("%d requests, want none after the second", len(w.requests))
		}
		w.once(t, 31, func(token uint64) error {
			if token < 1+5 {
				return nil
			}
			return drivers.ErrClosed
		})
		if err := p.Err(); !errors.Is(err, drivers.ErrClosed) || !errors.Is(err, errGone) {
			t.Errorf("the publisher ended with %v, want the cause", err)
		}
		if err := p.Publish(t.Context(), drivers.Message{Token: 99}); !errors.Is(err, drivers.ErrClosed) {
			t.Errorf("publish over a broken connection: %v", err)
		}
		_ = p.Close()
	})
}

// A break lets the running requests end by themselves, and no other begins.
func TestAnswersAfterABreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: time.Second}
		p := w.publisher(drivers.ConfirmWindow, func(plan *Plan) { plan.MaxPerRequest = 1 })
		publish(t, p, 0, 2)
		synctest.Wait()
		w.conn.Broke(errGone)
		if err := p.Publish(t.Context(), drivers.Message{Token: 2}); !errors.Is(err, errGone) {
			t.Errorf("Publish after the break returns %v", err)
		}
		begun := time.Now()
		_ = p.Close()
		if took := time.Since(begun); took != time.Second || len(w.requests) != 1 {
			t.Errorf("Close takes %v, after %d requests; want the second of the request that ran", took, len(w.requests))
		}
		w.once(t, 2, func(token uint64) error {
			if token == 0 {
				return nil
			}
			return drivers.ErrClosed
		})
	})
}

// Without a response the connection counts as broken after the timeout, and Close waits at most for its grace period.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: time.Hour}
		p := w.publisher(drivers.ConfirmWindow, nil)
		publish(t, p, 0, 3)
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if err := p.Err(); err != nil {
			t.Errorf("broken after 29 s: %v", err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.once(t, 3, func(uint64) error { return drivers.ErrClosed })
		if err := p.Err(); !errors.Is(err, drivers.ErrClosed) {
			t.Errorf("the publisher ended with %v, want ErrClosed", err)
		}
		_ = p.Close()

		w = &world{answer: time.Hour}
		p = w.publisher(drivers.ConfirmWindow, nil)
		publish(t, p, 0, 3)
		begun := time.Now()
		_ = p.Close()
		if took := time.Since(begun); took != grace {
			t.Errorf("Close takes %v, want %v", took, grace)
		}
		w.once(t, 3, func(uint64) error { return drivers.ErrClosed })
		if err := w.conn.Err(); err != nil {
			t.Errorf("Close breaks the connection: %v", err)
		}
	})
}

// Nothing is accepted with a context that has ended.
func TestContextHasEnded(t *testing.T) {
	for _, mode := range []drivers.Mode{drivers.ConfirmWindow, drivers.ConfirmEach, drivers.ConfirmBatch,
		drivers.FireAndForget} {
		w := &world{}
		p := w.publisher(mode, nil)
		over, end := context.WithCancel(t.Context())
		end()
		if err := errors.Join(p.Publish(over, drivers.Message{}), p.Flush(over)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", mode, err)
		}
		_ = p.Close()
		if len(w.requests) > 0 || len(w.confirms) > 0 {
			t.Errorf("%s: %d requests, %d confirms", mode, len(w.requests), len(w.confirms))
		}
	}
}

// The end of a connection releases all its publishers. What they accepted is confirmed with ErrClosed.
func TestConnEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*Conn)
		want error // of Err
	}{"cut": {(*Conn).Cut, errCut}, "closed": {func(c *Conn) { c.End() }, nil}} {
		for _, mode := range []drivers.Mode{drivers.ConfirmWindow, drivers.ConfirmEach, drivers.FireAndForget} {
			synctest.Test(t, func(t *testing.T) {
				w := &world{answer: time.Hour}
				p := w.publisher(mode, nil)
				published := make(chan error, 1)
				go func() { published <- p.Publish(t.Context(), drivers.Message{}) }()
				synctest.Wait()
				begun := time.Now()
				c.end(w.conn)
				err := <-published
				if (err != nil) == mode.Confirmed() || err != nil && !errors.Is(err, drivers.ErrClosed) {
					t.Errorf("%s, %s: Publish returns %v", name, mode, err)
				}
				synctest.Wait()
				if mode.Confirmed() {
					w.once(t, 1, func(uint64) error { return drivers.ErrClosed })
				}
				if err := p.Publish(t.Context(), drivers.Message{}); !errors.Is(err, drivers.ErrClosed) {
					t.Errorf("%s, %s: Publish afterwards returns %v", name, mode, err)
				}
				_ = p.Close()
				if err := p.Err(); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("%s, %s: the publisher ended with %v, want %v", name, mode, err, c.want)
				}
				if took := time.Since(begun); took > 0 {
					t.Errorf("%s, %s: it took %v", name, mode, took)
				}
			})
		}
	}
}

// Unconfirmed publishers wait for their responses at the end, unless the connection is broken.
func TestSettle(t *testing.T) {
	for breakAt, want := range map[int]int{0: 1, 1: 0} {
		settled := 0
		w := &world{breakAt: breakAt}
		p := w.publisher(drivers.FireAndForget, func(plan *Plan) {
			plan.Settle = func(context.Context) error {
				settled++
				return nil
			}
		})
		if err := p.Publish(t.Context(), drivers.Message{}); (err != nil) != (breakAt > 0) {
			t.Errorf("publish: %v", err)
		}
		_, _ = p.Close(), p.Close()
		if settled != want {
			t.Errorf("settled %d times, want %d", settled, want)
		}
	}
}

// TestWorkForARequestIsNotWaitedFor proves that encoding a request and the engine's work for confirms do not count as
// waiting, and neither does a request in confirm-window, for which Publish does not wait.
func TestWorkForARequestIsNotWaitedFor(t *testing.T) {
	for mode, want := range map[drivers.Mode]time.Duration{drivers.ConfirmEach: 50 * time.Millisecond,
		drivers.ConfirmBatch:  5 * time.Millisecond,
		drivers.FireAndForget: 50 * time.Millisecond, drivers.ConfirmWindow: 0} {
		synctest.Test(t, func(t *testing.T) {
			var waiting drivers.Waiting
			p := (&world{}).publisher(mode, func(plan *Plan) {
				plan.Spec.Waiting = &waiting
				plan.Spec.OnConfirms = func([]uint64, error) { time.Sleep(time.Millisecond) }
				plan.Lane = func(waiting *drivers.Waiting) Publish {
					return func(_ context.Context, batch []drivers.Message, _ []error) (int, error) {
						time.Sleep(3 * time.Millisecond)
						waiting.Begin()
						time.Sleep(5 * time.Millisecond)
						waiting.End()
						return len(batch), nil
					}
				}
			})
			publish(t, p, 0, 10)
			if got := time.Duration(waiting.Nanos()); got != want {
				t.Errorf("%s: waited for %v, want %v", mode, got, want)
			}
			_ = p.Close()
		})
	}
}
