package plan

import "time"

// Protocol is the version of the messages on the control plane and of the records. Peers of another version are refused.
const Protocol = 1

// Estimate is how long a task takes if nothing goes wrong: its own phases, and about 300 ms around them.
func Estimate(w Workload) time.Duration {
	return w.Warmup.D() + w.Measure.D() + 300*time.Millisecond
}

// Limit is when a task is given up, whatever happens: every deadline of its phases one after the other, and a margin.
func Limit(w Workload) time.Duration {
	return 4*w.Connect.D() + w.Warmup.D() + w.Measure.D() + w.Drain.Most.D() + 30*time.Second
}
