package truth

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"lockstep/internal/plan"
)

// TestCapacityOfALimitedBroker searches a broker that takes exactly 20,000 messages a second. The median shows an overload of a part e as e·T/2
// after a time T: 10 ms in 1.5 s is 1.3 %, and a step whose rate is not sent to half of 1 % and 50 ms fails in any case.
func TestCapacityOfALimitedBroker(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	const limit = 20_000
	text := matrix("loopback", `{name: "capacity", rate: 20_000}`, `
		publishers: window: 10_000
		search: {while: "p50 < 10ms && lost == 0 && !backlog", from: 8000, step: "1500ms", within: 0.01, repeats: 2}
		warmup: "300ms", measure: "3s", drain: {silence: "500ms", most: "10s"}`)
	var s *plan.SearchResult
	for range 2 { // a generator that was disturbed says so, and then nothing of the broker
		o := program(t, text, nil).Outcome
		if s = o.Search; s == nil {
			t.Fatal("the outcome has no search")
		}
		for _, step := range s.Steps {
			t.Logf("%8.0f %-8s %-12s %s", step.Rate, step.Kind, step.Answer, step.Why)
		}
		if !s.Bound {
			break
		}
	}
	if off := s.Capacity/limit - 1; (off < -0.02 || s.Bound || !s.Sure) && load() > 1.5*float64(runtime.NumCPU()) {
		t.Skipf("a load of %.1f on %d cores leaves neither the generator nor this broker, which is in one process with it, what they need: found %.0f/s, %s",
			load(), runtime.NumCPU(), s.Capacity, s.Why)
	}
	if s.Verified != 2 || !s.Sure {
		t.Errorf("verified %d times: %s", s.Verified, s.Why)
	}
	check(t, row{"broker takes 20,000/s", "capacity", limit, s.Capacity, 0.02 * limit, plan.PerSecond})
	check(t, row{"broker takes 20,000/s", "capacity.high", limit, s.Fails, 0.02 * limit, plan.PerSecond})
}

// load is how many processes wanted a core in the last minute, where the system says it.
func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	n, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return n
}
