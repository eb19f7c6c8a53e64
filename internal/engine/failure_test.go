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

// Latencies of rejected messages are recorded separately from those of confirmed messages.
func TestLatencyOfRejectedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) { w.Publishers.Rate, w.Warmup = 1000, 0 })
		s.options = `{"reject": 10, "confirmDelay": "7ms"}`
		m := s.run(t.Context())
		good, bad := m.Hist(record.Publish), m.Hist(record.PublishFailed)
		if good.Count() != 900 || bad.Count() != 100 || bad.Min() != 7e6 || bad.Max() != 7e6 {
			t.Errorf("got %d confirmed, %d rejected after %d to %d ns, want 900, 100 after 7 ms", good.Count(),
				bad.Count(), bad.Min(), bad.Max())
		}
		if n := m.Hist(record.Unanswered).Count(); n != 0 {
			t.Errorf("got %d unanswered messages, want 0: rejected messages are answered", n)
		}
		if m.Total(record.Rejected) != 100 || m.Total(record.PublishErrors) != 0 {
			t.Errorf("got %d rejected, %d publish errors, want 100, 0", m.Total(record.Rejected),
				m.Total(record.PublishErrors))
		}
	})
}

// Messages in flight on a broken link have a failure latency, and no publish latency.
func TestLatencyOfLostMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) { w.Publishers.Rate, w.Warmup = 1000, 0 })
		s.options = `{"confirmDelay": "50ms"}`
		s.duringMeasurement = func(name string) {
			_ = clock.Until(t.Context(), clock.Now()+int64(500*time.Millisecond+time.Microsecond))
			loopback.Cut(name)
		}
		m := s.run(t.Context())
		lost := m.Total(record.Unconfirmed)
		bad, good := m.Hist(record.PublishFailed), m.Hist(record.Publish)
		if lost < 45 || lost > 55 || int64(bad.Count()) != lost+m.Total(record.PublishErrors) || bad.Max() > 50e6 ||
			good.Max() != 50e6 {
			t.Errorf("got %d unconfirmed, %d failure latencies up to %d ns, publish latencies up to %d ns, "+
				"want about 50, as many, up to 50 ms, 50 ms", lost, bad.Count(), bad.Max(), good.Max())
		}
		if n := m.Hist(record.Unanswered).Count(); n != bad.Count() {
			t.Errorf("got %d unanswered messages, want all %d failed messages", n, bad.Count())
		}
		if m.Total(record.ClosedErrors) != m.Total(record.PublishErrors) {
			t.Errorf("got %d errors of closed links, want all %d publish errors", m.Total(record.ClosedErrors),
				m.Total(record.PublishErrors))
		}
	})
}

// The messages of a link that hangs count as timeouts when the drain timeout ends, regardless of the error that the
// driver returns when the link is closed.
func TestHangingLinkTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) { w.Publishers.Rate, w.Warmup, w.Consumers.Nodes = 100, 0, 0 })
		s.options = `{"capacity": 40}`
		m := s.run(t.Context())
		bad := m.Hist(record.PublishFailed)
		if m.Total(record.PublishErrors) != 1 || m.Total(record.Timeouts) != 1 || m.Total(record.ClosedErrors) != 0 ||
			bad.Count() != 1 {
			t.Errorf("got %d publish errors, %d timeouts, %d errors of closed links, %d failures, want 1, 1, 0, 1",
				m.Total(record.PublishErrors), m.Total(record.Timeouts),
				m.Total(record.ClosedErrors), bad.Count())
		}
		// Message 40 is sent at 400 ms and fails 5 s after the end of the measurement.
		if off := bad.Max() - 5600e6; off < -5e6 || off > 5e6 {
			t.Errorf("failure latency: got %d ns, want 5.6 s", bad.Max())
		}
	})
}

// A failure without a response is recorded with its age since the intended send time. Pauses after failures grow to
// 128 ms, and messages are due every 100 ms. A closed loop has no intended send times.
func TestAgeOfUnansweredMessages(t *testing.T) {
	for _, rate := range []float64{10, 0} {
		synctest.Test(t, func(t *testing.T) {
			s := newTestTask(t, func(w *plan.Workload) {
				w.Publishers.Rate, w.Warmup, w.Measure = rate, 0,
					plan.Duration(2*time.Second)
			})
			s.wrapSession = func(session drivers.Session) drivers.Session {
				return withPublishError(session, errors.New("message too large"))
			}
			m := s.run(t.Context())
			failed, due := m.Hist(record.PublishFailed), m.Hist(record.Unanswered)
			switch {
			case rate == 0 && (failed.Count() == 0 || due.Count() != 0):
				t.Errorf("closed loop: got %d failed, %d with an intended send time, want at least 1, 0",
					failed.Count(), due.Count())
			case rate > 0 && (failed.Count() != 20 || due.Count() != 20 || failed.Max() != 0 ||
				due.Max() != m.Hist(record.Backpressure).Max() || due.Max() < 300e6):
				t.Errorf("got %d failed after at most %d ns, %d ages up to %d ns, want 20 after 0 ns, 20 ages up to the "+
					"back-pressure of %d ns, at least 300 ms", failed.Count(), failed.Max(), due.Count(), due.Max(),
					m.Hist(record.Backpressure).Max())
			}
		})
	}
}

// withPublishError returns a session whose publishers accept no message.
func withPublishError(session drivers.Session, err error) drivers.Session {
	return withPublishers(session, func(context.Context, drivers.Conn, drivers.PublisherSpec) (drivers.Publisher,
		error) {
		return errorPublisher{err: err}, nil
	})
}

type errorPublisher struct {
	instantPublisher
	err error
}

func (g errorPublisher) Publish(context.Context, drivers.Message) error { return g.err }

// Every kind of failure is counted separately.
func TestFailuresByKind(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		counts [2]int64 // per error: timeouts, errors of closed links
	}{
		"timeout": {context.DeadlineExceeded, [2]int64{1, 0}},
		"other":   {errors.New("message too large"), [2]int64{0, 0}},
		"closed":  {drivers.ErrClosed, [2]int64{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTestTask(t, func(w *plan.Workload) { w.Publishers.Rate, w.Warmup = 10, 0 })
				s.wrapSession = func(session drivers.Session) drivers.Session {
					return withPublishError(session,
						test.err)
				}
				m := s.run(t.Context())
				n := m.Total(record.PublishErrors)
				if n == 0 || m.Total(record.Timeouts) != n*test.counts[0] ||
					m.Total(record.ClosedErrors) != n*test.counts[1] {
					t.Errorf("got %d errors, %d timeouts, %d errors of closed links, want at least 1, and %v of each error", n,
						m.Total(record.Timeouts), m.Total(record.ClosedErrors), test.counts)
				}
				if int64(m.Hist(record.PublishFailed).Count()) != n || m.Hist(record.Publish).Count() != 0 {
					t.Errorf("got %d failure latencies, %d publish latencies, want %d, 0",
						m.Hist(record.PublishFailed).Count(), m.Hist(record.Publish).Count(), n)
				}
			})
		})
	}
}
