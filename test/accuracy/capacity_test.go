package accuracy

import (
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// TestAccuracyOfCapacity searches the capacity of a broker that accepts exactly 4,000 messages per second with a burst
// of 100. Because of the burst, a pause of the machine of up to 25 ms is no overload. A relative overload e fills a
// queue of e·T - 25 ms after a time T, and the median latency is half of that. So the limit of 40 ms is exceeded in 5 s
// at e = 2.1 %.
func TestAccuracyOfCapacity(t *testing.T) {
	const limit, near = 4000, 0.04
	s := program(t, matrix("loopback", `{name: "capacity", rate: 4000, burst: 100}`, `
		publishers: maxInFlight: 10_000
		search: {while: "p50 < 40ms && lost == 0 && !backlog", from: 1600, step: "5s", within: 0.01, repeats: 2}
		warmup: "300ms", measure: "5s", drain: {idle: "1s", timeout: "10s"}`), nil).Outcome.Search
	if s == nil {
		t.Fatal("the outcome has no search")
	}
	for _, step := range s.Steps {
		t.Logf("%8.0f %-8s %-12s %s", step.Rate, step.Kind, step.Answer, step.Why)
	}
	if s.Verified != 2 || !s.Sure {
		t.Errorf("held %d of %d: %s", s.Verified, s.Verifications, s.Why)
	}
	check(t, row{"broker takes 4,000/s", "capacity", limit, s.Capacity, near * limit, plan.PerSecond})
	check(t, row{"broker takes 4,000/s", "capacity.high", limit, s.Fails, near * limit, plan.PerSecond})
}
