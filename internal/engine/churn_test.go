package engine

import (
	"context"
	"errors"
	"strings"
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

// churning is a cell of 100 messages per second. In addition, five bindings per second are created, each for one second
// and ten messages.
func churning(t *testing.T, options string, change func(*plan.Workload)) subject {
	s := newSubject(t, func(w *plan.Workload) {
		w.Publishers.Rate, w.Warmup, w.Measure = 100, plan.Duration(2*time.Second), plan.Duration(10*time.Second)
		w.Topology.Churn = plan.Churn{Rate: 5, Hold: plan.Duration(time.Second), Probes: 10}
		if change != nil {
			change(w)
		}
	})
	s.options = options
	return s
}

// all checks that every sample of a distribution has the same value.
func all(t *testing.T, what string, h *record.Hist, n uint64, want time.Duration) {
	t.Helper()
	if h.Count() != n || h.Min() != int64(want) || h.Max() != int64(want) {
		t.Errorf("%s: %d samples of %v … %v, want %d of %v", what, h.Count(), time.Duration(h.Min()),
			time.Duration(h.Max()), n, want)
	}
}

func firsts(m *record.Merged, measure time.Duration) *record.Hist {
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
		s := churning(t, `{"bindDelay": "7ms", "delay": "3ms"}`, nil)
		m := s.play(t.Context())
		all(t, "binding", m.Hist(record.Binding), 50, 7*time.Millisecond)
		all(t, "first message", firsts(m, 10*time.Second), 50, 10*time.Millisecond)
		further := m.Hist(record.BindingMessage)
		if further.Min() != 3e6 || further.Max() != 3e6 || further.Count() < 9*45 || further.Count() > 10*50 {
			t.Errorf("%d further messages of %d … %d ns, want about 450 of 3 ms", further.Count(), further.Min(),
				further.Max())
		}
		// In 12 s, bindings are created at 0, 0.2, 0.4 … 11.8 s. The last five exist at the end.
		if made, removed, failed := m.Total(record.BindingsMade), m.Total(record.BindingsRemoved),
			m.Total(record.BindingErrors); made != 60 || removed < 54 || removed > 55 || failed != 0 {
			t.Errorf("%d bindings made, %d removed, %d errors; want 60, 55 or one less, and none", made, removed,
				failed)
		}
		// Through the last five, created 0.993, 0.793 … 0.193 s before the end, 10, 8, 6, 4 and 2 messages were sent.
		if got := m.Bindings(); got.Sent != 55*10+30 || got.Missing != 0 || got.Received != got.Sent {
			t.Errorf("%+v; want 580 sent and received", got)
		}
		if got := m.Accounting(1); got.Sent != 1200 || got.Received != 1200 ||
			got.Duplicated+got.Reordered+got.Corrupt != 0 {
			t.Errorf("%+v; want the 1200 messages of the cell, and no others", got)
		}
		if got := m.Total(record.Received); got != 1200 {
			t.Errorf("%d deliveries counted, want those of the cell's 1200 messages", got)
		}
	})
}

// If a binding works only 250 ms after its confirmation, its first three messages are lost and counted, and the fourth
// is the first delivery.
func TestBindingsThatSpreadLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := churning(t, `{"bindDelay": "7ms", "bindSpread": "250ms", "delay": "3ms"}`, nil)
		m := s.play(t.Context())
		// The last binding exists for only 193 ms, so it never works.
		all(t, "first message", firsts(m, 10*time.Second), 49, 310*time.Millisecond)
		if got := m.Bindings(); got.Missing != 59*3+2 || got.Sent != 580 {
			t.Errorf("%+v; want three of each binding missing, and both of the last", got)
		}
		if got := m.Accounting(1); got.Missing != 0 || got.Sent != 1200 {
			t.Errorf("%+v: what is lost of a new binding is not lost by the cell", got)
		}
	})
}

// Bindings are distributed round-robin over the queues and subscriptions.
func TestBindingsGoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bound := map[[2]int]int{}
		s := churning(t, "", func(w *plan.Workload) {
			w.Topology.Queues, w.Topology.Subscriptions, w.Publishers.Threads, w.Consumers.Threads = 3, 2, 3, 3
		})
		s.wrap = func(session drivers.Session) drivers.Session {
			return binding{session, func(_ context.Context, subscription, queue int) error {
				bound[[2]int{subscription, queue}]++
				return nil
			}}
		}
		m := s.play(t.Context())
		if len(bound) != 6 {
			t.Errorf("bindings were made for %v, want each of 3 queues of 2 subscriptions", bound)
		}
		if got := m.Bindings(); got.Missing != 0 || got.Sent != got.Received || got.Sent < 500 {
			t.Errorf("%+v; want each message received in the one subscription of its binding", got)
		}
		if got := m.Accounting(2); got.Missing != 0 || got.Received != 2*got.Sent {
			t.Errorf("%+v", got)
		}
	})
}

// binding is a session that calls a function before each binding.
type binding struct {
	drivers.Session
	before func(ctx context.Context, subscription, queue int) error
}

func (b binding) Bind(ctx context.Context, t drivers.Topology, subscription, queue int, key uint32) error {
	if err := b.before(ctx, subscription, queue); err != nil {
		return err
	}
	return b.Session.(drivers.Binder).Bind(ctx, t, subscription, queue, key)
}

func (b binding) Unbind(ctx context.Context, t drivers.Topology, subscription, queue int, key uint32) error {
	return b.Session.(drivers.Binder).Unbind(ctx, t, subscription, queue, key)
}

// A failed call is counted and reported. The next binding is created, and no message is sent through a binding that
// does not exist.
func TestFailedBindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		s := churning(t, "", nil)
		s.wrap = func(session drivers.Session) drivers.Session {
			return binding{session, func(context.Context, int, int) error {
				if n.Add(1)%3 == 0 {
					return errors.New("refused by the test")
				}
				return nil
			}}
		}
		m := s.play(t.Context())
		if made, failed := m.Total(record.BindingsMade), m.Total(record.BindingErrors); made != 40 || failed != 20 {
			t.Errorf("%d made and %d failed of 60, want every third to fail", made, failed)
		}
		if got := m.Bindings(); got.Missing != 0 {
			t.Errorf("%+v; want nothing missing", got)
		}
		if all := m.Events(); len(all) == 0 || !strings.Contains(all[0].Detail, "refused by the test") {
			t.Errorf("events %v do not tell why", all)
		}
	})
}

// The number of concurrent calls to a slow broker is limited, and the pending calls end with the run.
func TestSlowBindingsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		s := churning(t, "", func(w *plan.Workload) { w.Topology.Churn.Rate = 1000 })
		s.wrap = func(session drivers.Session) drivers.Session {
			return binding{session, func(ctx context.Context, _, _ int) error {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				select {
				case <-time.After(time.Second):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}}
		}
		began := time.Now()
		m := s.play(t.Context())
		if most.Load() != maxCalls {
			t.Errorf("%d calls at a time, want %d", most.Load(), maxCalls)
		}
		if made := m.Total(record.BindingsMade); made < 5*maxCalls || made > 12*maxCalls {
			t.Errorf("%d bindings made by %d calls at a time of one second each, in 12 s", made, maxCalls)
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// Broken links are opened again. Unconfirmed messages do not count as lost.
func TestChurnReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := churning(t, "", func(w *plan.Workload) {
			w.Measure = plan.Duration(2 * time.Second)
			w.Topology.Churn = plan.Churn{Rate: 20, Hold: plan.Duration(500 * time.Millisecond), Probes: 100}
		})
		s.during = func(name string) {
			_ = clock.Until(t.Context(), clock.Now()+int64(time.Second))
			loopback.Cut(name)
		}
		m := s.play(t.Context())
		if got := m.Total(record.Reconnects); got != 3 {
			t.Errorf("%d reconnects, want one of publisher, consumer and the new bindings' link", got)
		}
		got := m.Bindings()
		if got.Missing != 0 || got.Sent < 1000 {
			t.Errorf("%+v; want nothing missing: loopback keeps what it accepted", got)
		}
	})
}

// Churn ends when publishers stop after a count.
func TestChurnEndsWithTheCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Count, w.Publishers.Mode, w.Warmup = 1000, "confirm-each", 0
			w.Topology.Churn = plan.Churn{Rate: 1000, Hold: plan.Duration(time.Minute), Probes: 10}
		})
		s.options = `{"confirmDelay": "1ms"}`
		began := time.Now()
		m := s.play(t.Context())
		if took := time.Since(began); took < time.Second || took > 10*time.Second {
			t.Errorf("took %v, want the second of the count and a little", took)
		}
		if got := m.Bindings(); got.Missing != 0 || m.Total(record.BindingsMade) < 900 {
			t.Errorf("%d bindings, %+v; want about 1000, nothing missing", m.Total(record.BindingsMade), got)
		}
	})
}

// A driver without Binder is rejected before anything connects. Only agent 0 creates bindings.
func TestChurnNeedsABinder(t *testing.T) {
	w := plan.Default()
	w.Topology.Churn.Rate = 1
	a := plan.Assignment{Task: plan.Task{Run: "test", ID: "churn", Cell: plan.Cell{Workload: w}},
		Publishers: plan.Share{Count: 1, Total: 1}}
	if _, err := New(Config{Assignment: a, Session: instant{}}); !errors.Is(err, drivers.ErrUnsupported) {
		t.Errorf("error %v, want ErrUnsupported", err)
	}
	a.Index = 1
	e, err := New(Config{Assignment: a, Session: instant{}})
	if err != nil || e.churn != nil {
		t.Errorf("agent 1: %v, churn %v; want neither", err, e.churn)
	}
}

// A body that belongs to a binding but is too short to name it is corrupt.
func TestBindingBodies(t *testing.T) {
	w := plan.Default()
	w.Message.Size = EnvelopeSize // not possible in a matrix
	e := &Engine{task: 7, clockID: 9, work: w, timeline: newTimeline(w)}
	body := newBindingBody(e, &churnMessage{&churnBinding{number: 1<<40 + 3, called: -5}, 77})
	env, err := open(body, 7)
	if err != nil || env.sequence != 77 || env.intended != -5 {
		t.Fatalf("%+v, %v", env, err)
	}
	if n, ok := bindingOf(body); !ok || n != 1<<40+3 {
		t.Errorf("binding %d, %v", n, ok)
	}
	if _, ok := bindingOf(body[:EnvelopeSize+3]); ok {
		t.Error("a binding was read from what is too short for it")
	}
}
