package engine

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// A consumer that handles each of 100 messages per second for 20 ms receives one per 20 ms, to the nanosecond. The
// handling time of a message is not part of its own latency.
func TestSlowConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Warmup, w.Measure = 100, 0, plan.Duration(2*time.Second)
			w.Drain.Idle = plan.Duration(3 * time.Second)
			w.Consumers.Batch, w.Consumers.Prefetch = 1, 1
			w.Consumers.Process = plan.DurationDist{Min: plan.Duration(20 * time.Millisecond),
				Max: plan.Duration(20 * time.Millisecond)}
		})
		m := s.run(t.Context())
		if got := m.Sum(record.Received, 0, 2); got != 100 {
			t.Errorf("received in 2 s with 20 ms per message: got %d, want 100", got)
		}
		if got := m.Accounting(1); got.Missing != 0 || got.Sent != 200 {
			t.Errorf("accounting: got %+v, want 200 sent, none missing", got)
		}
		// Message n is due at 10n ms and received at 20n ms.
		if h := m.Hist(record.EndToEnd); h.Min() != 0 || h.Max() != 1990e6 {
			t.Errorf("end-to-end latency: got %d to %d ns, want 0 to 1990 ms", h.Min(), h.Max())
		}
	})
}

// Processing times have the right mean and bounds. An exponential distribution exceeds its mean in one of e cases.
func TestProcessingTimes(t *testing.T) {
	const n = 100_000
	for name, test := range map[string]struct {
		spread           plan.DurationDist
		min, max, beyond float64 // ms; share beyond 20 ms
	}{
		"fixed":       {plan.DurationDist{Min: 20e6, Max: 20e6}, 20, 20, 0},
		"uniform":     {plan.DurationDist{Min: 10e6, Max: 30e6}, 10, 30, 0.5},
		"exponential": {plan.DurationDist{Mean: 20e6}, 0, 200, 1 / math.E},
	} {
		w := processor{delay: test.spread}
		w.draws.Seed(1, 2)
		sum, beyond := 0.0, 0
		for range n {
			ms := float64(w.time()) / 1e6
			if sum += ms; ms < test.min || ms > test.max {
				t.Fatalf("%s: got %v ms, want %v to %v ms", name, ms, test.min, test.max)
			}
			if ms > 20 {
				beyond++
			}
		}
		if mean := sum / n; math.Abs(mean-20) > 0.3 {
			t.Errorf("%s: mean: got %v ms, want 20", name, mean)
		}
		checkShare(t, name+" beyond the mean", beyond, n, test.beyond)
	}
}

// Close does not wait for consumers that handle messages.
func TestClosingEndsProcessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Warmup, w.Measure = 100, 0, plan.Duration(time.Second)
			w.Consumers.Process = plan.DurationDist{Min: plan.Duration(time.Hour), Max: plan.Duration(time.Hour)}
		})
		begin := time.Now()
		s.run(t.Context())
		if elapsed := time.Since(begin); elapsed > 10*time.Second {
			t.Errorf("duration of the run: got %v, want at most 10 s", elapsed)
		}
	})
}

// Rejected deliveries are repeated. Their share is the configured one, and no message counts as received twice, lost or
// reordered.
func TestNack(t *testing.T) {
	for _, ack := range []string{"each", "every", "interval"} {
		t.Run(ack, func(t *testing.T) {
			s := newTestTask(t, func(w *plan.Workload) {
				w.Publishers.Count, w.Warmup, w.Consumers.Threads, w.Consumers.Nack = 20_000, 0, 2, 0.3
				w.Consumers.Batch, w.Consumers.Ack, w.Consumers.AckEvery = 7, ack, 20
				w.Consumers.AckInterval = plan.Duration(5 * time.Millisecond)
				w.Drain.Idle = plan.Duration(20 * time.Second) // it ends after the last message
			})
			m := s.run(t.Context())
			accounting := m.Accounting(1)
			if accounting.Sent != 20_000 || accounting.Missing != 0 || accounting.Duplicated != 0 ||
				accounting.Reordered != 0 {
				t.Errorf("accounting: got %+v, want 20000 received once and in order", accounting)
			}
			received, nacked := m.Total(record.Received), m.Total(record.Nacked)
			if share := float64(nacked) / float64(received+nacked); received != 20_000 || math.Abs(share-0.3) > 0.03 {
				t.Errorf("got %d received, %d rejected (share %.3f), want 20000, share 0.3", received, nacked, share)
			}
			if m.Total(record.Redelivered) == 0 {
				t.Error("got no redelivered messages")
			}
		})
	}
}
