package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// Rejected messages have a latency, separate from that of confirmed messages.
func TestRejectedAreTimedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) { w.Publishers.Rate, w.Warmup = 1000, 0 })
		s.options = `{"reject": 10, "confirmDelay": "7ms"}`
		m := s.play(t.Context())
		good, bad := m.Hist(record.Publish), m.Hist(record.PublishFailed)
		if good.Count() != 900 || bad.Count() != 100 || bad.Min() != 7e6 || bad.Max() != 7e6 {
			t.Errorf("%d confirmed, %d refused after %d … %d ns; want 900 and 100 after 7 ms", good.Count(),
				bad.Count(), bad.Min(), bad.Max())
		}
		if n := m.Hist(record.Unanswered).Count(); n != 0 {
			t.Errorf("%d refused messages count as without an answer", n)
		}
		if m.Total(record.Rejected) != 100 || m.Total(record.PublishErrors) != 0 {
			t.Errorf("%d rejected and %d publish errors, want 100 and none", m.Total(record.Rejected),
				m.Total(record.PublishErrors))
		}
	})
}

// Messages in flight on a broken link have a failure latency, and no publish latency.
func TestLostInFlightAreTimedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) { w.Publishers.Rate, w.Warmup = 1000, 0 })
		s.options = `{"confirmDelay": "50ms"}`
		s.during = func(name string) {
			_ = clock.Until(t.Context(), clock.Now()+int64(500*time.Millisecond+time.Microsecond))
			loopback.Cut(name)
		}
		m := s.play(t.Context())
		lost := m.Total(record.Unconfirmed)
		bad, good := m.Hist(record.PublishFailed), m.Hist(record.Publish)
		if lost < 45 || lost > 55 || int64(bad.Count()) != lost+m.Total(record.PublishErrors) || bad.Max() > 50e6 ||
			good.Max() != 50e6 {
			t.Errorf("%d lost in flight, %d failures of at most %d ns, successes of at most %d ns; want about 50 of at most 50 ms, and 50 ms",
				lost, bad.Count(), bad.Max(), good.Max())
		}
		if n := m.Hist(record.Unanswered).Count(); n != bad.Count() {
			t.Errorf("%d of %d lost messages count as without an answer", n, bad.Count())
		}
		if m.Total(record.ClosedErrors) != m.Total(record.PublishErrors) {
			t.Errorf("%d of %d publish errors are called closed, want all", m.Total(record.ClosedErrors),
				m.Total(record.PublishErrors))
		}
	})
}

// The messages of a link that hangs are timeouts at the limit of the drain, whatever error the driver returns when the
// link is closed.
func TestHangingLinkTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) { w.Publishers.Rate, w.Warmup, w.Consumers.Nodes = 100, 0, 0 })
		s.options = `{"capacity": 40}`
		m := s.play(t.Context())
		bad := m.Hist(record.PublishFailed)
		if m.Total(record.PublishErrors) != 1 || m.Total(record.Timeouts) != 1 || m.Total(record.ClosedErrors) != 0 ||
			bad.Count() != 1 {
			t.Errorf("%d publish errors, %d timeouts, %d closed, %d failures; want 1, 1, 0, 1",
				m.Total(record.PublishErrors), m.Total(record.Timeouts),
				m.Total(record.ClosedErrors), bad.Count())
		}
		// Message 40 is sent at 400 ms and fails 5 s after the end of the measurement.
		if off := bad.Max() - 5600e6; off < -5e6 || off > 5e6 {
			t.Errorf("it failed after %d ns, want 5.6 s", bad.Max())
		}
	})
}

// A failure without a response counts with its age since the intended send time: pauses after failures grow to 128 ms,
// and messages are due every 100 ms. A closed loop has no intended send times.
func TestUnansweredCountSinceTheyWereDue(t *testing.T) {
	for _, rate := range []float64{10, 0} {
		synctest.Test(t, func(t *testing.T) {
			s := newSubject(t, func(w *plan.Workload) {
				w.Publishers.Rate, w.Warmup, w.Measure = rate, 0,
					plan.Duration(2*time.Second)
			})
			s.wrap = func(session drivers.Session) drivers.Session {
				return grudging(session, errors.New("message too large"))
			}
			m := s.play(t.Context())
			failed, due := m.Hist(record.PublishFailed), m.Hist(record.Unanswered)
			switch {
			case rate == 0 && (failed.Count() == 0 || due.Count() != 0):
				t.Errorf("closed loop: %d failed, %d with an intended send time", failed.Count(), due.Count())
			case rate > 0 && (failed.Count() != 20 || due.Count() != 20 || failed.Max() != 0 ||
				due.Max() != m.Hist(record.Backpressure).Max() || due.Max() < 300e6):
				t.Errorf("%d failed after at most %d ns, %d of them at most %d ns after they were due; blocked %d ns",
					failed.Count(), failed.Max(), due.Count(), due.Max(), m.Hist(record.Backpressure).Max())
			}
		})
	}
}

// grudging returns a session whose publishers accept no message.
func grudging(session drivers.Session, err error) drivers.Session {
	return publishers(session, func(context.Context, drivers.Conn, drivers.PublisherSpec) (drivers.Publisher, error) {
		return grudger{err: err}, nil
	})
}

type grudger struct {
	instantPublisher
	err error
}

func (g grudger) Publish(context.Context, drivers.Message) error { return g.err }

// Every kind of failure is counted separately.
func TestFailuresByKind(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		counts [2]int64 // for each error: timeouts, closed links
	}{
		"timeout": {context.DeadlineExceeded, [2]int64{1, 0}},
		"other":   {errors.New("message too large"), [2]int64{0, 0}},
		"closed":  {drivers.ErrClosed, [2]int64{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSubject(t, func(w *plan.Workload) { w.Publishers.Rate, w.Warmup = 10, 0 })
				s.wrap = func(session drivers.Session) drivers.Session { return grudging(session, test.err) }
				m := s.play(t.Context())
				n := m.Total(record.PublishErrors)
				if n == 0 || m.Total(record.Timeouts) != n*test.counts[0] ||
					m.Total(record.ClosedErrors) != n*test.counts[1] {
					t.Errorf("%d errors, %d timeouts, %d closed", n, m.Total(record.Timeouts),
						m.Total(record.ClosedErrors))
				}
				if int64(m.Hist(record.PublishFailed).Count()) != n || m.Hist(record.Publish).Count() != 0 {
					t.Errorf("%d failures timed of %d", m.Hist(record.PublishFailed).Count(), n)
				}
			})
		})
	}
}
