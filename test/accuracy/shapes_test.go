package accuracy

import (
	"slices"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// A consumer handles each message for 3 ms, at 250 messages per second. After a stall of the broker of 300 ms it lags
// for more than a second. The expected latencies follow from Lindley's recurrence.
func TestSlowConsumer(t *testing.T) {
	const every, takes = time.Second / 250, 3 * ms
	truth := "consumer takes 3 ms, 250/s, stall of 300 ms"
	m := in(t, `{"delay":"2ms","stalls":[{"at":"4s","for":"300ms"}]}`, func(w *plan.Workload) {
		w.Publishers.Rate, w.Consumers.Process, w.Consumers.Prefetch = 250,
			plan.DurationDist{Min: plan.Duration(takes), Max: plan.Duration(takes)}, 1
	})
	var want []time.Duration
	var free time.Duration
	for due := time.Duration(0); due < 10*time.Second; due += every {
		arrives := due + 2*ms
		if arrives >= 3*time.Second && arrives < 3300*ms {
			arrives = 3300 * ms
		}
		received := max(arrives, free)
		want, free = append(want, received-due), received+takes
	}
	slices.Sort(want)
	m.quantiles(t, truth, "e2e", want)
}

// Refused deliveries are repeated, and each message is received once.
func TestRefused(t *testing.T) {
	truth := "a tenth of deliveries refused"
	m := in(t, `{}`, func(w *plan.Workload) { steady(w); w.Consumers.Nack = 0.1 })
	m.count(t, truth, "received", 11_000)
	m.count(t, truth, "duplicated", 0)
	m.count(t, truth, "lost", 0)
	// Each delivery is refused with p = 0.1, so n messages take n/(1-p) deliveries, of which n·p/(1-p) are refused. The
	// bound is 4 standard deviations of a negative binomial, √(n·p)/(1-p).
	check(t, row{truth: truth, value: "(refused)", want: 1222.2, got: float64(m.merge.Total(record.Nacked)),
		bound: 4 * 36.9, unit: plan.Count})
}
