package engine

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// newChurnTask is a cell of 100 messages per second. In addition, five bindings per second are created, each for one
// second and ten messages.
func newChurnTask(t *testing.T, options string, change func(*plan.Workload)) testTask {
	s := newTestTask(t, func(w *plan.Workload) {
		w.Publishers.Rate, w.Warmup, w.Measure = 100, plan.Duration(2*time.Second), plan.Duration(10*time.Second)
		w.Topology.Churn = plan.Churn{Rate: 5, Hold: plan.Duration(time.Second), Probes: 10}
		if change != nil {
			change(w)
		}
	})
	s.options = options
	return s
}

// checkAllEqual checks that every sample of a distribution has the same value.
func checkAllEqual(t *testing.T, name string, h *record.Hist, n uint64, want time.Duration) {
	t.Helper()
	if h.Count() != n || h.Min() != int64(want) || h.Max() != int64(want) {
		t.Errorf("%s: got %d samples from %v to %v, want %d of %v", name, h.Count(), time.Duration(h.Min()),
			time.Duration(h.Max()), n, want)
	}
}

func firstDeliveries(m *record.Merged, measure time.Duration) *record.Hist {
	h := record.NewHist()
	first, _ := m.BindingDeliveries()
	for _, r := range first {
		if r.Called >= 0 && r.Called < int64(measure) {
			h.Record(r.At - r.Called)
		}
	}
	return h
}

// Known delays of bindings and deliveries are measured to the nanosecond, and the ledger does not include these
// messages.
func TestBindingTimesAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newChurnTask(t, `{"bindDelay": "7ms", "delay": "3ms"}`, nil)
		m := s.run(t.Context())
		checkAllEqual(t, "binding", m.Hist(record.Binding), 50, 7*time.Millisecond)
		checkAllEqual(t, "first message", firstDeliveries(m, 10*time.Second), 50, 10*time.Millisecond)
		further := m.Hist(record.BindingMessage)
		if further.Min() != 3e6 || further.Max() != 3e6 || further.Count() < 9*45 || further.Count() > 10*50 {
			t.Errorf("further messages: got %d from %d to %d ns, want about 450 of 3 ms", further.Count(),
				further.Min(), further.Max())
		}
		// In 12 s, bindings are created at 0, 0.2, 0.4 … 11.8 s. The last five exist at the end.
		if made, removed, failed := m.Total(record.BindingsMade), m.Total(record.BindingsRemoved),
			m.Total(record.BindingErrors); made != 60 || removed < 54 || removed > 55 || failed != 0 {
			t.Errorf("bindings: got %d created, %d removed, %d errors, want 60, 54 or 55, 0", made, removed,
				failed)
		}
		// Through the last five, created 0.993, 0.793 … 0.193 s before the end, 10, 8, 6, 4 and 2 messages were sent.
		if got := m.Bindings(); got.Sent != 55*10+30 || got.Missing != 0 || got.Received != got.Sent {
			t.Errorf("messages of bindings: got %+v, want 580 sent and received", got)
		}
		if got := m.Accounting(1); got.Sent != 1200 || got.Received != 1200 ||
			got.Duplicated+got.Reordered+got.Corrupt != 0 {
			t.Errorf("accounting: got %+v, want only the 1200 messages of the cell", got)
		}
		if got := m.Total(record.Received); got != 1200 {
			t.Errorf("got %d deliveries, want 1200: those of the cell", got)
		}
	})
}

// While the broker holds all calls, further bindings are due. Their latency counts from their intended time, although
// their calls wait for a free one.
func TestBindingsThatWaitForACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newChurnTask(t, "", func(w *plan.Workload) { w.Topology.Churn.Rate, w.Warmup = 1000, 0 })
		begin := sync.OnceValue(time.Now)
		s.wrapSession = func(session drivers.Session) drivers.Session {
			return bindHook{session, func(context.Context, int, int) error {
				if since := time.Since(begin()); since >= 4*time.Second && since < 8900*time.Millisecond {
					time.Sleep(8900*time.Millisecond - since)
				}
				return nil
			}}
		}
		h := s.run(t.Context()).Hist(record.Binding)
		if p99 := time.Duration(h.Quantile(0.99)); p99 < 4500*time.Millisecond || p99 > 4900*time.Millisecond {
			t.Errorf("p99 of %d bindings: %v, want about 4.8 s", h.Count(), p99)
		}
	})
}

// Bindings that are due and not made when the load ends count with their age.
func TestBindingsOfAStallUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newChurnTask(t, "", func(w *plan.Workload) { w.Topology.Churn.Rate, w.Warmup = 1000, 0 })
		begin := sync.OnceValue(time.Now)
		s.wrapSession = func(session drivers.Session) drivers.Session {
			return bindHook{session, func(ctx context.Context, _, _ int) error {
				if time.Since(begin()) >= 5*time.Second {
					<-ctx.Done()
				}
				return ctx.Err()
			}}
		}
		h := s.run(t.Context()).Hist(record.Binding)
		// The load ends with its last message, after 9.99 s.
		if late := samplesFrom(h, 1e6); h.Count() != 9990 || late != 4990 {
			t.Errorf("%d bindings, %d of them later than 1 ms, want 9,990, and those since 5 s", h.Count(), late)
		}
	})
}

// If a binding works only 250 ms after its confirmation, its first three messages are lost and counted, and the fourth
// is the first delivery.
func TestBindingsThatWorkLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newChurnTask(t, `{"bindDelay": "7ms", "bindSpread": "250ms", "delay": "3ms"}`, nil)
		m := s.run(t.Context())
		// The last binding exists for only 193 ms, so it never works.
		checkAllEqual(t, "first message", firstDeliveries(m, 10*time.Second), 49, 310*time.Millisecond)
		if got := m.Bindings(); got.Missing != 59*3+2 || got.Sent != 580 {
			t.Errorf("messages of bindings: got %+v, want 3 missing per binding, and 2 of the last", got)
		}
		if got := m.Accounting(1); got.Missing != 0 || got.Sent != 1200 {
			t.Errorf("accounting: got %+v, want 1200 sent, none missing: messages of bindings are separate", got)
		}
	})
}

// Bindings are distributed round-robin over the queues and subscriptions.
func TestBindingsAreDistributedRoundRobin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bound := map[[2]int]int{}
		s := newChurnTask(t, "", func(w *plan.Workload) {
			w.Topology.Queues, w.Topology.Subscriptions, w.Publishers.Threads, w.Consumers.Threads = 3, 2, 3, 3
		})
		s.wrapSession = func(session drivers.Session) drivers.Session {
			return bindHook{session, func(_ context.Context, subscription, queue int) error {
				bound[[2]int{subscription, queue}]++
				return nil
			}}
		}
		m := s.run(t.Context())
		if len(bound) != 6 {
			t.Errorf("got bindings for %v, want one for each of 3 queues of 2 subscriptions", bound)
		}
		if got := m.Bindings(); got.Missing != 0 || got.Sent != got.Received || got.Sent < 500 {
			t.Errorf("messages of bindings: got %+v, want each received once, in the subscription of its binding", got)
		}
		if got := m.Accounting(2); got.Missing != 0 || got.Received != 2*got.Sent {
			t.Errorf("accounting: got %+v, want each message received twice, none missing", got)
		}
	})
}

// bindHook is a session that calls a function before each binding.
type bindHook struct {
	drivers.Session
	before func(ctx context.Context, subscription, queue int) error
}

func (b bindHook) Bind(ctx context.Context, t drivers.Topology, subscription, queue int, key uint32) error {
	if err := b.before(ctx, subscription, queue); err != nil {
		return err
	}
	return b.Session.(drivers.Binder).Bind(ctx, t, subscription, queue, key)
}

func (b bindHook) Unbind(ctx context.Context, t drivers.Topology, subscription, queue int, key uint32) error {
	return b.Session.(drivers.Binder).Unbind(ctx, t, subscription, queue, key)
}

// A failed call is counted and reported. The next binding is created, and no message is sent through a binding that
// does not exist.
func TestFailedBindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		s := newChurnTask(t, "", nil)
		s.wrapSession = func(session drivers.Session) drivers.Session {
			return bindHook{session, func(context.Context, int, int) error {
				if n.Add(1)%3 == 0 {
					return errors.New("rejected by the test")
				}
				return nil
			}}
		}
		m := s.run(t.Context())
		if made, failed := m.Total(record.BindingsMade), m.Total(record.BindingErrors); made != 40 || failed != 20 {
			t.Errorf("bindings: got %d created, %d failed, want 40 and 20", made, failed)
		}
		if got := m.Bindings(); got.Missing != 0 {
			t.Errorf("messages of bindings: got %+v, want none missing", got)
		}
		if all := m.Events(); len(all) == 0 || !strings.Contains(all[0].Detail, "rejected by the test") {
			t.Errorf("events: got %v, want the error of Bind in the first", all)
		}
	})
}

// The number of concurrent calls to a slow broker is limited, and the pending calls end with the run.
func TestSlowBindingsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, maxCallsNow atomic.Int64
		s := newChurnTask(t, "", func(w *plan.Workload) { w.Topology.Churn.Rate = 1000 })
		s.wrapSession = func(session drivers.Session) drivers.Session {
			return bindHook{session, func(ctx context.Context, _, _ int) error {
				maxCallsNow.Store(max(maxCallsNow.Load(), calls.Add(1)))
				defer calls.Add(-1)
				select {
				case <-time.After(time.Second):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}}
		}
		begin := time.Now()
		m := s.run(t.Context())
		if maxCallsNow.Load() != maxCalls {
			t.Errorf("maximum concurrent calls: got %d, want %d", maxCallsNow.Load(), maxCalls)
		}
		if made := m.Total(record.BindingsMade); made < 5*maxCalls || made > 12*maxCalls {
			t.Errorf("bindings created in 12 s by %d concurrent calls of 1 s: got %d, want %d to %d", maxCalls, made,
				5*maxCalls, 12*maxCalls)
		}
		if elapsed := time.Since(begin); elapsed > 15*time.Second {
			t.Errorf("duration of the run: got %v, want at most 15 s", elapsed)
		}
	})
}

// Broken links are reopened. Unconfirmed messages do not count as lost.
func TestChurnReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newChurnTask(t, "", func(w *plan.Workload) {
			w.Measure = plan.Duration(2 * time.Second)
			w.Topology.Churn = plan.Churn{Rate: 20, Hold: plan.Duration(500 * time.Millisecond), Probes: 100}
		})
		s.duringMeasurement = func(name string) {
			_ = clock.Until(t.Context(), clock.Now()+int64(time.Second))
			loopback.Cut(name)
		}
		m := s.run(t.Context())
		if got := m.Total(record.Reconnects); got != 3 {
			t.Errorf("got %d reconnects, want 3: publisher, consumer and link of the bindings", got)
		}
		got := m.Bindings()
		if got.Missing != 0 || got.Sent < 1000 {
			t.Errorf("messages of bindings: got %+v, want at least 1000 sent, none missing (loopback keeps accepted messages)",
				got)
		}
	})
}

// Churn ends when publishers stop after a count.
func TestChurnEndsWithTheCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Count, w.Publishers.Mode, w.Warmup = 1000, "confirm-each", 0
			w.Topology.Churn = plan.Churn{Rate: 1000, Hold: plan.Duration(time.Minute), Probes: 10}
		})
		s.options = `{"confirmDelay": "1ms"}`
		begin := time.Now()
		m := s.run(t.Context())
		if elapsed := time.Since(begin); elapsed < time.Second || elapsed > 10*time.Second {
			t.Errorf("duration of the run: got %v, want 1 s (for the count) to 10 s", elapsed)
		}
		if got := m.Bindings(); got.Missing != 0 || m.Total(record.BindingsMade) < 900 {
			t.Errorf("got %d bindings, %+v, want about 1000, none missing", m.Total(record.BindingsMade), got)
		}
	})
}

// A driver without Binder is rejected before anything connects. Only agent 0 creates bindings.
func TestChurnNeedsABinder(t *testing.T) {
	w := plan.Default()
	w.Topology.Churn.Rate = 1
	a := plan.Assignment{Task: plan.Task{Run: "test", ID: "churn", Cell: plan.Cell{Workload: w}},
		Publishers: plan.Share{Count: 1, Total: 1}}
	if _, err := New(Config{Assignment: a, Session: instantSession{}}); !errors.Is(err, drivers.ErrUnsupported) {
		t.Errorf("got error %v, want ErrUnsupported", err)
	}
	a.Index = 1
	e, err := New(Config{Assignment: a, Session: instantSession{}})
	if err != nil || e.churn != nil {
		t.Errorf("agent 1: got error %v, churn %v, want none and nil", err, e.churn)
	}
}

// A body of a binding that is too short for the binding's number is corrupt.
func TestBindingBodies(t *testing.T) {
	w := plan.Default()
	w.Message.Size = EnvelopeSize // not possible in a matrix
	e := &Engine{task: 7, clockID: 9, work: w, timeline: newTimeline(w)}
	body := newBindingBody(e, &churnMessage{&churnBinding{number: 1<<40 + 3, due: -5}, 77})
	env, err := open(body, 7)
	if err != nil || env.sequence != 77 || env.intended != -5 {
		t.Fatalf("open: got %+v, error %v, want sequence 77, intended send time -5", env, err)
	}
	if n, ok := bindingOf(body); !ok || n != 1<<40+3 {
		t.Errorf("bindingOf: got %d, %v, want %d, true", n, ok, uint64(1<<40+3))
	}
	if _, ok := bindingOf(body[:EnvelopeSize+3]); ok {
		t.Error("bindingOf with a too short body: got true, want false")
	}
}
