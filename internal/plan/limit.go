package plan

import "time"

// Estimate returns the expected duration of a task without failures: its phases and about 300 ms of overhead. For a
// search it is the sum over all trials. Failing trials of a search also send during their drain: the first for up to
// the whole drain timeout. Each later one takes about half as long as the one before, hence twice the timeout.
func Estimate(w Workload) time.Duration {
	if s := w.Search; s != nil {
		short := Task{Cell: Cell{Workload: w}}.Step(s.From, s.Step).Cell.Workload
		w.Search = nil
		return time.Duration(s.expected())*Estimate(short) + time.Duration(s.Repeats)*Estimate(w) +
			2*short.Drain.Timeout.D()
	}
	warmup := w.Warmup.D()
	if w.Steady.Auto { // the time until a load that is steady from the start is recognised as steady
		warmup = min(max(w.Steady.Min.D(), minWatch), w.Steady.Max.D()) + MeasureAhead
	}
	return warmup + w.Measure.D() + 300*time.Millisecond
}

// Limit returns the time after which a task is aborted: the sum of all deadlines of its phases, plus a margin. For a
// search it applies to each step.
func Limit(w Workload) time.Duration {
	return 4*w.Connect.D() + w.LongestWarmup() + w.Measure.D() + 2*w.Drain.Timeout.D() + 30*time.Second +
		w.LongestUndo()
}

// RecordLimit returns the maximum distance of a record's times from T0: Limit, plus the time for redelivery, plus an
// hour for agents that hang.
func RecordLimit(t Task) time.Duration {
	redelivery := time.Duration(0)
	for _, part := range t.Parts() {
		redelivery = max(redelivery, part.Cell.RedeliverAfter.D())
	}
	return Limit(t.Cell.Workload) + min(redelivery, maxTaskTime) + time.Hour
}

// MeasureAhead is the minimum notice with which the beginning of the measurement is announced while the load runs. It
// is rounded up to a whole second of the load. All agents must receive it in time.
const MeasureAhead = 2 * time.Second

// minWatch is the minimum time for which a steady load is observed.
const minWatch = 6 * time.Second
