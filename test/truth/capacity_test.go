package truth

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"lockstep/internal/plan"
)

// TestCapacityOfALimitedBroker searches a broker that takes exactly 4,000 messages a second, which leaves the generator most of a core on a slow machine.
// The median shows an overload of a part e as e·T/2 after a time T: 10 ms in 1.5 s is 1.3 %, and a step whose rate is not sent to half of 1 % and
// 50 ms fails in any case. A generator that was disturbed all the same says so, and then nothing of the broker.
func TestCapacityOfALimitedBroker(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	const limit = 4000
	text := matrix("loopback", `{name: "capacity", rate: 4000}`, `
		publishers: window: 10_000
		search: {while: "p50 < 10ms && lost == 0 && !backlog", from: 1600, step: "1500ms", within: 0.01, repeats: 2}
		warmup: "300ms", measure: "3s", drain: {silence: "1s", most: "10s"}`)
	for n := 1; ; n++ {
		s := program(t, text, nil).Outcome.Search
		if s == nil {
			t.Fatal("the outcome has no search")
		}
		for _, step := range s.Steps {
			t.Logf("%8.0f %-8s %-12s %s", step.Rate, step.Kind, step.Answer, step.Why)
		}
		if n < searches && (s.Bound || !s.Sure) {
			t.Logf("search %d is disturbed: a load of %.1f on %d cores; found %.0f/s, %s", n, load(), runtime.NumCPU(), s.Capacity, s.Why)
			continue
		}
		if s.Verified != 2 || !s.Sure {
			t.Errorf("verified %d times: %s", s.Verified, s.Why)
		}
		check(t, row{"broker takes 4,000/s", "capacity", limit, s.Capacity, 0.02 * limit, plan.PerSecond})
		check(t, row{"broker takes 4,000/s", "capacity.high", limit, s.Fails, 0.02 * limit, plan.PerSecond})
		return
	}
}

// searches is how often a search may be disturbed; a fault of its own is there in each.
const searches = 3

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
