package judge

import (
	"maps"
	"slices"

	"lockstep/internal/plan"
)

// clientBoundWarning begins the warnings that say what held the generator back.
const clientBoundWarning = string(plan.ClientBound) + ": "

// pausesWarning begins the one of them that is about some latencies only.
const pausesWarning = clientBoundWarning + "pauses of the agents "

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
//   - skewed: agents started further apart than the cell's budget (skew, 20 ms unless it says otherwise).
//   - degraded, on all values: an agent was lost.
func (j *judge) doubts() {
	if j.bound = j.clientBound(); len(j.bound) > 0 {
		j.flag(plan.ClientBound, performance()...)
		for _, w := range j.bound {
			j.warn("%s%s", clientBoundWarning, w)
		}
	}
	j.paused()
	j.skewed()
	if j.degraded() {
		j.flag(plan.Degraded, slices.Sorted(maps.Keys(j.out.Values))...)
	}
}
