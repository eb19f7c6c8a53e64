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

// foreignQueue is a queue that another program uses, on a broker in this process.
type foreignQueue struct {
	t       *testing.T
	session drivers.Session
	orders  drivers.Topology
	options json.RawMessage
}

// newForeignQueue declares the queue "orders".
func newForeignQueue(t *testing.T, broker string) *foreignQueue {
	s := &foreignQueue{t: t, options: schematest.Fill(t, loopback.Driver{},
		`{"name": "`+broker+`", "confirmDelay": "1ms"}`),
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
func (s *foreignQueue) publish(n int) {
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
func (s *foreignQueue) close() {
	if err := s.session.(drivers.Verifier).Verify(s.t.Context(), drivers.Topology{Existing: "orders", Queues: 1}); err != nil {
		s.t.Errorf("verify the existing queue: %v", err)
	}
	_ = s.session.Teardown(s.t.Context(), s.orders)
	_ = s.session.Close()
}

// use changes a cell to use the queue, with one publisher and one consumer.
func (s *foreignQueue) use(changes ...func(*plan.Cell)) func(*plan.Cell) {
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
		s := newForeignQueue(t, t.Name())
		s.publish(300)
		l := newLocalFleet(t, "a1", "a2")
		outcomes := l.run(newRun(
			s.use(func(c *plan.Cell) { c.Workload.Consumers.Nodes = 0 }),
			s.use(),
			s.use(func(c *plan.Cell) { c.Workload.Publishers.Rate = 1000 })), nil, nil).outcomes()
		for i, foreign := range []uint64{0, 2300, 0} {
			o := outcomes[i]
			if o.Verdict != plan.Valid || o.Ledger.Sent != 2000 || o.Ledger.Foreign != foreign || o.Ledger.Corrupt > 0 ||
				o.Ledger.Lost > 0 || o.Ledger.Duplicated > 0 || o.Ledger.Reordered > 0 {
				t.Errorf("task %d: got %s %v, %+v, want valid, 2000 sent, %d foreign", i, o.Verdict, o.Reasons,
					o.Ledger, foreign)
			}
			if received := o.Ledger.Received; i > 0 && received != 2000 || i == 0 && received != 0 {
				t.Errorf("task %d: got %d received, want 2000, or 0 in task 0", i, received)
			}
			if v := o.Values["topology.declare"]; v.NA == "" {
				t.Errorf("task %d: got %v s for the declaration of its queue, want not available", i, v.Number)
			}
		}
		s.close()
	})
}

// TestForeignMessagesExtendTheDrain proves that the drain waits for messages of the task that are behind foreign ones.
// It does not wait for redeliveries after that, because the consumer was never idle.
func TestForeignMessagesExtendTheDrain(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := newForeignQueue(t, t.Name())
		s.publish(200)
		l := newLocalFleet(t, "a1", "a2")
		begin := time.Now()
		o := l.run(newRun(s.use(func(c *plan.Cell) {
			c.RedeliverAfter = plan.Duration(3 * time.Second)
			w := &c.Workload
			w.Publishers.Count, w.Consumers.Prefetch, w.Consumers.Batch = 20, 1, 1
			w.Drain = plan.Drain{Idle: plan.Duration(1500 * time.Millisecond), Timeout: plan.Duration(time.Minute)}
			w.Consumers.Process = plan.DurationDist{Min: plan.Duration(20 * time.Millisecond), Max: plan.Duration(20 * time.Millisecond)}
		})), nil, nil).outcomes()[0]
		if o.Ledger.Received != 20 || o.Ledger.Lost > 0 || o.Ledger.Undrained > 0 || o.Ledger.Foreign != 200 {
			t.Errorf("got %+v, want 20 received after 200 foreign messages", o.Ledger)
		}
		if elapsed := time.Since(begin); elapsed > 7*time.Second {
			t.Errorf("duration: got %v, want at most 7 s for messages of 4.4 s", elapsed)
		}
		s.close()
	})
}

// TestForeignMessagesDoNotChangeRates proves that messages of others after those of the task do not extend the time to
// which rates refer, although the drain waits.
func TestForeignMessagesDoNotChangeRates(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := newForeignQueue(t, t.Name())
		l := newLocalFleet(t, "a1", "a2")
		var others sync.WaitGroup
		others.Go(func() {
			for range 40 {
				s.publish(1)
				time.Sleep(100 * time.Millisecond)
			}
		})
		o := l.run(newRun(s.use(func(c *plan.Cell) {
			loopbackOptions(c, map[string]any{"lose": 1000})
			c.Workload.Publishers.Count = 1000
		})), nil, nil).outcomes()[0]
		others.Wait()
		if o.Ledger.Lost != 1 || o.Ledger.Foreign < 20 {
			t.Errorf("got %+v, want 1 lost, at least 20 foreign", o.Ledger)
		}
		if v := o.Values["consume.rate"]; v.NA != "" || v.Number < 1900 {
			t.Errorf("consume rate: got %+v, want that of 999 messages in 0.5 s", v)
		}
		s.close()
	})
}

// TestMissingExistingQueue proves that a missing queue fails the task with its name.
func TestMissingExistingQueue(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := newForeignQueue(t, t.Name())
		l := newLocalFleet(t, "a1", "a2")
		o := l.run(newRun(s.use(func(c *plan.Cell) { c.Workload.Topology.Existing = "invoices" })), nil,
			nil).outcomes()[0]
		if o.Verdict != plan.Unknown || o.Failure != plan.FailedConnect || !strings.Contains(strings.Join(o.Reasons, " "), "find existing queues") ||
			!strings.Contains(strings.Join(o.Reasons, " "), `"invoices"`) {
			t.Errorf("got %s, failure %s, %v, want unknown, failure %s, with the queue's name", o.Verdict, o.Failure,
				o.Reasons, plan.FailedConnect)
		}
		s.close()
	})
}

// TestConsumeOnly proves that a cell without publishers receives all messages of an existing queue, of any sender, and
// ends soon after the last message.
func TestConsumeOnly(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := newForeignQueue(t, t.Name())
		s.publish(300)
		l := newLocalFleet(t, "a1", "a2")
		consume := func(c *plan.Cell) {
			w := &c.Workload
			w.Publishers.Nodes, w.Publishers.Count, w.Publishers.Rate, w.Consumers.Nodes = 0, 0, 0, 2
			w.Measure, w.Drain.Idle = plan.Duration(time.Hour), plan.Duration(1500*time.Millisecond)
			w.Consumers.Prefetch, w.Consumers.Batch = 1, 1
			w.Consumers.Process = plan.DurationDist{Min: plan.Duration(20 * time.Millisecond), Max: plan.Duration(20 * time.Millisecond)}
		}
		begin := time.Now()
		outcomes := l.run(newRun(s.use(consume), s.use(consume)), nil, nil).outcomes()
		s.publish(10) // they are received before the load starts if consumers do not wait for it
		if o := l.run(newRun(s.use(consume)), nil, nil).outcomes()[0]; o.Verdict != plan.Valid ||
			o.Ledger.Received != 10 ||
			math.Abs(o.Values["consume.rate"].Number-10/0.08) > 1 {
			t.Errorf("queue of 10 messages: got %s %v, consume rate %+v, want valid, 125", o.Verdict, o.Reasons,
				o.Values["consume.rate"])
		}
		if elapsed := time.Since(begin); elapsed > 20*time.Second {
			t.Errorf("duration: got %v, want at most 20 s for messages of 3 s", elapsed)
		}
		o := outcomes[0]
		if o.Verdict != plan.Valid || o.Ledger != (plan.Ledger{Received: 300}) {
			t.Errorf("got %s %v, %+v, want valid, 300 received", o.Verdict, o.Reasons, o.Ledger)
		}
		// 150 messages of 20 ms per consumer; the first is received when the load starts
		if v := o.Values["consume.rate"]; v.NA != "" || math.Abs(v.Number-300/2.98) > 0.5 {
			t.Errorf("consume rate: got %+v, want that of 300 messages in 2.98 s", v)
		}
		for _, name := range []string{"publish.rate", "publish.p99", "e2e.p99", "lost", "duplicated", "throughput", "backlog.max"} {
			if v := o.Values[name]; v.NA != judge.NANoPublishers {
				t.Errorf("%s without publishers: got %+v, want not available", name, v)
			}
		}
		if o := outcomes[1]; o.Verdict != plan.Unknown || !strings.Contains(strings.Join(o.Reasons, " "), "queues were empty") {
			t.Errorf("empty queue: got %s %v, want unknown with \"queues were empty\"", o.Verdict, o.Reasons)
		}
		s.close()
	})
}
