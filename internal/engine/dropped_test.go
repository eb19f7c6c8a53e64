package engine

import (
	"context"
	"testing"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// limited is a session whose broker delivers each message at most once more after it was rejected.
type limited struct{ drivers.Session }

func (l limited) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer, error) {
	return l.Session.Consumer(ctx, spec, func(batch []drivers.Delivery) error {
		for i := range batch {
			batch[i].Last = batch[i].Redelivered == drivers.Yes
		}
		err := handle(batch)
		if batch[0].Last {
			return nil // the broker drops it, whatever the consumer answered
		}
		return err
	})
}

// Messages that are rejected at their last delivery are dropped, not lost.
func TestDroppedAreNotLost(t *testing.T) {
	bubbled(func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Consumers.Nack, w.Consumers.Batch = 1000, 0.5, 1
		})
		s.wrap = func(session drivers.Session) drivers.Session { return limited{session} }
		m := s.play(t.Context())
		a := m.Accounting(1)
		if a.Dropped < 200 || a.Received < 700 || a.Dropped+a.Received != a.Sent || a.Missing != 0 ||
			a.MissingConfirmed != 0 || !m.AllIn(1) {
			t.Errorf("%+v, all in: %t; want about a quarter dropped, and none missing", a, m.AllIn(1))
		}
		if n := m.Total(record.Nacked); n <= int64(a.Dropped) {
			t.Errorf("%d rejected, %d dropped", n, a.Dropped)
		}
	})(t)
}
