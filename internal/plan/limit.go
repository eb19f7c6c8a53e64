package plan

import "time"

// Estimate is how long a task takes if nothing goes wrong: its own phases, and about 300 ms around them; those of every
// trial of a search. Trials that fail go on sending in their drain: the first for up to all of it, each later one for
// about half as long as the one before.
func Estimate(w Workload) time.Duration {
	if s := w.Search; s != nil {
		short := Task{Cell: Cell{Workload: w}}.Step(s.From, s.Step).Cell.Workload
		w.Search = nil
		return time.Duration(s.expected())*Estimate(short) + time.Duration(s.Repeats)*Estimate(w) +
			2*short.Drain.Timeout.D()
	}
	warmup := w.Warmup.D()
	if w.Steady.Auto { // about as long as it takes a load to be seen steady that is so from the start
		warmup = min(max(w.Steady.Min.D(), minWatch), w.Steady.Max.D()) + MeasureAhead
	}
	return warmup + w.Measure.D() + 300*time.Millisecond
}

// Limit is when a task (of a search: one of its steps, which has none of its own) is given up, whatever happens: every
// deadline of its phases one after the other, and a margin.
func Limit(w Workload) time.Duration {
	return 4*w.Connect.D() + w.LongestWarmup() + w.Measure.D() + 2*w.Drain.Timeout.D() + 30*time.Second +
		w.LongestUndo()
}

// RecordLimit is how far the times of a task's record may be from T0: Limit, the time for redelivery, and an hour for
// agents that hang.
func RecordLimit(t Task) time.Duration {
	redelivery := time.Duration(0)
	for _, part := range t.Parts() {
		redelivery = max(redelivery, part.Cell.RedeliverAfter.D())
	}
	return Limit(t.Cell.Workload) + min(redelivery, maxTaskTime) + time.Hour
}

// undoLimit is how long an agent may take to have a broker again as it was: to stop, to start, and to be there.
const undoLimit = time.Minute

// LongestUndo is how long the end of a task may take beyond its own steps, until what faults did to brokers is undone.
func (w Workload) LongestUndo() time.Duration {
	if len(w.Targets()) == 0 {
		return 0
	}
	return undoLimit
}

// MeasureAhead is how far ahead the measurement begins when it is told while the load runs, rounded up to a second of
// it: all agents have to hear of it before.
const MeasureAhead = 2 * time.Second

// minWatch is how long a load that is steady from the start is watched at least.
const minWatch = 6 * time.Second

// LongestWarmup is how long the load runs at most before the measurement.
func (w Workload) LongestWarmup() time.Duration {
	if w.Steady.Auto {
		return w.Warmup.D() + w.Steady.Max.D() + MeasureAhead + time.Second
	}
	return w.Warmup.D()
}
