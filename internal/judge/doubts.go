package judge

import (
	"maps"
	"slices"

	"lockstep/internal/plan"
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
//   - client-bound, shared-host and host-busy: see limitations.
//   - skewed: agents started further apart than the cell's budget (skew, 20 ms unless it says otherwise).
//   - degraded, on all values: an agent was lost.
func (j *judge) doubts() {
	j.out.Limitations = j.limitations()
	for _, l := range j.out.Limitations {
		j.flag(l.Flag, performance()...)
	}
	j.skewed()
	if j.degraded() {
		j.flag(plan.Degraded, slices.Sorted(maps.Keys(j.out.Values))...)
	}
}
