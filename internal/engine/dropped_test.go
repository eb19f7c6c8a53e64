package engine

import (
	"context"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
)

// withDeliveryLimit returns a session whose broker delivers each message at most once more after it was rejected. Its
// handlers get one message at a time.
func withDeliveryLimit(session drivers.Session) drivers.Session {
	return drivertest.Hooks{Session: session, Consuming: func(ctx context.Context, conn drivers.Conn,
		spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer, error) {
		c := &limitedConsumer{}
		inner, err := conn.Consumer(ctx, spec, func(batch []drivers.Delivery) {
			c.last = batch[0].Redelivered == drivers.Yes
			batch[0].Last = c.last
			handle(batch)
		})
		c.Consumer = inner
		return c, err
	}}
}

type limitedConsumer struct {
	drivers.Consumer
	last bool // of the handled message
}

func (c *limitedConsumer) Nack(n int) {
	if c.last {
		c.Ack(n) // the broker drops the message, regardless of the answer
		return
	}
	c.Consumer.Nack(n)
}

// Messages that are rejected at their last delivery are dropped, not lost.
func TestDroppedMessagesAreNotLost(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Consumers.Nack, w.Consumers.Batch = 1000, 0.5, 1
		})
		s.wrapSession = func(session drivers.Session) drivers.Session { return withDeliveryLimit(session) }
		m := s.run(t.Context())
		a := m.Accounting(1)
		if a.Dropped < 200 || a.Received < 700 || a.Dropped+a.Received != a.Sent || a.Missing != 0 ||
			a.MissingConfirmed != 0 || !m.AllIn(1) {
			t.Errorf("accounting: got %+v, complete: %t, want about a quarter dropped, none missing, complete", a,
				m.AllIn(1))
		}
		if n := m.Total(record.Nacked); n <= int64(a.Dropped) {
			t.Errorf("got %d rejected, %d dropped messages, want more rejected than dropped", n, a.Dropped)
		}
	})(t)
}

// Rejected messages of other programs, and damaged messages, are not counted.
func TestRejectedMessagesOfOthersDoNotCount(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		e := newReceiver(t)
		message := func(task uint64, kind byte) []byte {
			body := make([]byte, EnvelopeSize)
			sum := stamp(body, task, e.clockID, 0)
			body[1] = kind
			put(body, sum, 0, 1, 1, 0)
			return body
		}
		damaged := message(e.task, kindMessage)
		damaged[20]++
		for name, body := range map[string][]byte{"of another task": message(e.task+1, kindMessage), "damaged": damaged,
			"of a new binding": message(e.task, kindMessage+1), "text": make([]byte, 2*EnvelopeSize), "short": {1},
			"of the task": message(e.task, kindMessage)} {
			e.consumers[0].refuse(nil, []drivers.Delivery{{Body: body}})
			m := record.NewMerged()
			m.Add(record.Snapshot{Agent: "a", Windows: e.Take(false).Windows})
			want := int64(0)
			if name == "of the task" {
				want = 1
			}
			if got := m.Total(record.Nacked); got != want {
				t.Errorf("message %s: got %d counted, want %d", name, got, want)
			}
		}
	})(t)
}
