package results

import (
	"maps"
	"slices"
	"time"

	"lockstep/internal/plan"
)

// skewLeast and skewPart: agents that started further from the agreed time than both are called skewed.
const (
	skewLeast = 10 * time.Millisecond
	skewPart  = 0.01 // of the measured time
)

// performance are the values that say how fast the broker was, and so are doubtful when the load was not what it should be.
func performance() []string {
	names := []string{"send.rate", "confirm.rate", "receive.rate", "throughput"}
	for _, l := range []string{"send", "send.due", "processing", "binding", "binding.first", "binding.message"} {
		for _, q := range plan.Quantiles() {
			names = append(names, l+"."+q.Name)
		}
	}
	for _, l := range []string{"send", "processing"} {
		for _, q := range plan.HighestQuantiles() {
			names = append(names, l+"."+q.Name+".highest")
		}
	}
	return names
}

// doubts sets the flags that concern many values:
//
//   - client-bound: see clientBound and paused.
//   - skewed: an agent's actual start was off the agreed one by more than 10 ms and 1 % of the measured time.
//   - degraded, on all values: an agent was lost.
func (j *judge) doubts() {
	if j.bound = j.clientBound(); len(j.bound) > 0 {
		j.flag(plan.ClientBound, performance()...)
		for _, w := range j.bound {
			j.warn("client-bound: %s", w)
		}
	}
	j.paused()
	for _, a := range j.f.Agents {
		if s := max(a.Skew.D(), -a.Skew.D()); s > skewLeast && s > time.Duration(skewPart*float64(j.span.sending)) {
			j.flag(plan.Skewed, performance()...)
			j.warn("skewed: agent %s started %v off the agreed time", a.Agent, a.Skew)
		}
	}
	if j.degraded() {
		j.flag(plan.Degraded, slices.Sorted(maps.Keys(j.out.Values))...)
	}
}
