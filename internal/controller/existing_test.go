package controller_test

import (
	"encoding/json"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
	"example.org/lockstep/lockstep/test/wiretest"
)

// shop is a queue of another program, on a broker in this process.
type shop struct {
	t       *testing.T
	session drivers.Session
	orders  drivers.Topology
	options json.RawMessage
}

// newShop declares the queue "orders".
func newShop(t *testing.T, broker string) *shop {
	s := &shop{t: t, options: schematest.Fill(t, loopback.Driver{}, `{"name": "`+broker+`", "confirmDelay": "1ms"}`),
		orders: drivers.Topology{Name: "orders", Queues: 1, Subscriptions: 1, Bindings: 1}}
	var err error
	if s.session, err = (loopback.Driver{}).Open(t.Context(), s.options, drivers.Env{}); err != nil {
		t.Fatal(err)
	}
	if err := s.session.Setup(t.Context(), s.orders); err != nil {
		t.Fatal(err)
	}
	return s
}

// publish publishes messages of the other program.
func (s *shop) publish(n int) {
	conn, err := s.session.Connect(s.t.Context(), drivers.ConnSpec{Role: drivers.PublisherRole, Topology: s.orders})
	if err != nil {
		s.t.Fatal(err)
	}
	p, err := conn.Publisher(s.t.Context(), drivers.PublisherSpec{Topology: s.orders, Mode: drivers.FireAndForget})
	if err != nil {
		s.t.Fatal(err)
	}
	for range n {
		if err := p.Publish(s.t.Context(), drivers.Message{Body: []byte(`{"order": 1}`)}); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		s.t.Fatal(err)
	}
	_ = conn.Close()
}

// close ends the session. The queue must still exist.
func (s *shop) close() {
	if err := s.session.(drivers.Verifier).Verify(s.t.Context(), drivers.Topology{Existing: "orders", Queues: 1}); err != nil {
		s.t.Errorf("the existing queue: %v", err)
	}
	_ = s.session.Teardown(s.t.Context(), s.orders)
	_ = s.session.Close()
}

// cell makes a cell use the queue, with one publisher and one consumer.
func (s *shop) cell(changes ...func(*plan.Cell)) func(*plan.Cell) {
	return func(c *plan.Cell) {
		c.Broker.Options, c.Guarantees = s.options, plan.Guarantees{}
		w := &c.Workload
		w.Topology.Queues, w.Topology.Existing, w.Publishers.Nodes, w.Consumers.Nodes = 1, "orders", 1, 1
		for _, change := range changes {
			change(c)
		}
	}
}

// TestMessagesOfOthersInExistingQueues proves that messages of other programs and of earlier tasks are acknowledged and
// counted as foreign, and change nothing in the accounting of a task. A publish-only task loses nothing.
func TestMessagesOfOthersInExistingQueues(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := newShop(t, t.Name())
		s.publish(300)
		l := newLab(t, "a1", "a2")
		outcomes := l.run(aRun(
			s.cell(func(c *plan.Cell) { c.Workload.Consumers.Nodes = 0 }),
			s.cell(),
			s.cell(func(c *plan.Cell) { c.Workload.Publishers.Rate = 1000 })), nil, nil).outcomes()
		for i, foreign := range []uint64{0, 2300, 0} {
			o := outcomes[i]
			if o.Verdict != plan.Valid || o.Ledger.Sent != 2000 || o.Ledger.Foreign != foreign || o.Ledger.Corrupt > 0 ||
				o.Ledger.Lost > 0 || o.Ledger.Duplicated > 0 || o.Ledger.Reordered > 0 {
				t.Errorf("task %d: %s %v, %+v: want %d foreign messages", i, o.Verdict, o.Reasons, o.Ledger, foreign)
			}
			if received := o.Ledger.Received; i > 0 && received != 2000 || i == 0 && received != 0 {
				t.Errorf("task %d received %d messages", i, received)
			}
			if v := o.Values["topology.declare"]; v.NA == "" {
				t.Errorf("task %d declared its queue in %v s", i, v.Number)
			}
		}
		s.close()
	})
}

// TestForeignMessagesKeepTheDrain proves that the drain waits for messages of the task that are behind foreign ones. It
// does not wait for redeliveries after that, because the consumer was never idle.
func TestForeignMessagesKeepTheDrain(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := newShop(t, t.Name())
		s.publish(200)
		l := newLab(t, "a1", "a2")
		began := time.Now()
		o := l.run(aRun(s.cell(func(c *plan.Cell) {
			c.RedeliverAfter = plan.Duration(3 * time.Second)
			w := &c.Workload
			w.Publishers.Count, w.Consumers.Prefetch, w.Consumers.Batch = 20, 1, 1
			w.Drain = plan.Drain{Idle: plan.Duration(1500 * time.Millisecond), Timeout: plan.Duration(time.Minute)}
			w.Consumers.Process = plan.DurationDist{Min: plan.Duration(20 * time.Millisecond), Max: plan.Duration(20 * time.Millisecond)}
		})), nil, nil).outcomes()[0]
		if o.Ledger.Received != 20 || o.Ledger.Lost > 0 || o.Ledger.Undrained > 0 || o.Ledger.Foreign != 200 {
			t.Errorf("%+v: want 20 received behind 200 foreign messages, which take 4 s", o.Ledger)
		}
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("took %v for messages of 4.4 s", took)
		}
		s.close()
	})
}

// TestMessagesOfOthersCountInNoRate proves that messages of others after those of the task do not extend the time to
// which rates refer, although the drain waits.
func TestMessagesOfOthersCountInNoRate(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := newShop(t, t.Name())
		l := newLab(t, "a1", "a2")
		var others sync.WaitGroup
		others.Go(func() {
			for range 40 {
				s.publish(1)
				time.Sleep(100 * time.Millisecond)
			}
		})
		o := l.run(aRun(s.cell(func(c *plan.Cell) {
			loopbackOptions(c, map[string]any{"lose": 1000})
			c.Workload.Publishers.Count = 1000
		})), nil, nil).outcomes()[0]
		others.Wait()
		if o.Ledger.Lost != 1 || o.Ledger.Foreign < 20 {
			t.Errorf("%+v: want one lost message, and foreign ones that keep the drain", o.Ledger)
		}
		if v := o.Values["consume.rate"]; v.NA != "" || v.Number < 1900 {
			t.Errorf("consume rate %+v, want that of 999 messages in half a second", v)
		}
		s.close()
	})
}

// TestMissingExistingQueue proves that a missing queue fails the task with its name.
func TestMissingExistingQueue(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := newShop(t, t.Name())
		l := newLab(t, "a1", "a2")
		o := l.run(aRun(s.cell(func(c *plan.Cell) { c.Workload.Topology.Existing = "invoices" })), nil, nil).outcomes()[0]
		if o.Verdict != plan.Unknown || o.Failure != plan.FailedConnect || !strings.Contains(strings.Join(o.Reasons, " "), "find existing queues") ||
			!strings.Contains(strings.Join(o.Reasons, " "), `"invoices"`) {
			t.Errorf("%s %s %v", o.Verdict, o.Failure, o.Reasons)
		}
		s.close()
	})
}

// TestConsumeOnly proves that a cell without publishers receives what is in an existing queue, whoever sent it, and
// ends soon after the last message.
func TestConsumeOnly(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := newShop(t, t.Name())
		s.publish(300)
		l := newLab(t, "a1", "a2")
		consume := func(c *plan.Cell) {
			w := &c.Workload
			w.Publishers.Nodes, w.Publishers.Count, w.Publishers.Rate, w.Consumers.Nodes = 0, 0, 0, 2
			w.Measure, w.Drain.Idle = plan.Duration(time.Hour), plan.Duration(1500*time.Millisecond)
			w.Consumers.Prefetch, w.Consumers.Batch = 1, 1
			w.Consumers.Process = plan.DurationDist{Min: plan.Duration(20 * time.Millisecond), Max: plan.Duration(20 * time.Millisecond)}
		}
		began := time.Now()
		outcomes := l.run(aRun(s.cell(consume), s.cell(consume)), nil, nil).outcomes()
		s.publish(10) // they are received before the load starts if consumers do not wait for it
		if o := l.run(aRun(s.cell(consume)), nil, nil).outcomes()[0]; o.Verdict != plan.Valid || o.Ledger.Received != 10 ||
			math.Abs(o.Values["consume.rate"].Number-10/0.08) > 1 {
			t.Errorf("a short queue: %s %v, consume rate %+v", o.Verdict, o.Reasons, o.Values["consume.rate"])
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("took %v for messages of 3 s", took)
		}
		o := outcomes[0]
		if o.Verdict != plan.Valid || o.Ledger != (plan.Ledger{Received: 300}) {
			t.Errorf("%s %v, %+v: want 300 received", o.Verdict, o.Reasons, o.Ledger)
		}
		// 150 messages of 20 ms per consumer; the first is received when the load starts
		if v := o.Values["consume.rate"]; v.NA != "" || math.Abs(v.Number-300/2.98) > 0.5 {
			t.Errorf("consume rate %+v, want 300 messages in 2.98 s", v)
		}
		for _, name := range []string{"publish.rate", "publish.p99", "e2e.p99", "lost", "duplicated", "throughput", "backlog.max"} {
			if v := o.Values[name]; v.NA != judge.NANoPublishers {
				t.Errorf("%s is %+v without publishers", name, v)
			}
		}
		if o := outcomes[1]; o.Verdict != plan.Unknown || !strings.Contains(strings.Join(o.Reasons, " "), "queues were empty") {
			t.Errorf("an empty queue: %s %v", o.Verdict, o.Reasons)
		}
		s.close()
	})
}
