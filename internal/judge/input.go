package judge

import (
	"slices"
	"sync"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// input is what a task, or one group of it, is evaluated from. It does not change after newInput.
type input struct {
	task          plan.Task
	workload      plan.Workload // of the task
	record        *record.Merged
	hists         map[record.Series]*record.Hist // over the measurement; they are not to be changed
	facts         Facts                          // with the clock of each agent
	cut           time.Duration                  // see Cut
	cell          *input                         // of the whole cell: of a cell without groups, this
	subscriptions int                            // that have consumers
	span          span
	overlap       overlap
	sent          float64 // messages of the measurement
	accounting    func() record.Accounting
}

// newInput prepares the evaluation of a task whose record is rebased; cell is nil for a task without groups.
func newInput(t plan.Task, m *record.Merged, f Facts, cut time.Duration, cell *input) *input {
	f.Agents = withClocks(m, f)
	in := &input{task: t, workload: t.Cell.Workload, record: m, hists: map[record.Series]*record.Hist{}, facts: f,
		cut: cut, cell: cell}
	if cell == nil {
		in.cell = in
	}
	if in.workload.Consumers.Nodes > 0 {
		in.subscriptions = max(1, in.workload.Topology.Subscriptions)
	}
	for _, s := range record.AllSeries() {
		in.hists[s] = m.Hist(s)
	}
	// a large ledger is read once
	in.accounting = sync.OnceValue(func() record.Accounting { return m.Accounting(in.subscriptions) })
	in.span = spanOf(in.workload, m)
	in.overlap = in.overlapOf()
	in.sent = in.counted(record.Sent)
	return in
}

// span is the time that rates are per.
type span struct {
	byCount   bool
	windows   int           // record's windows 0 … windows-1 are the measurement
	sending   time.Duration // 0: nothing was measured
	receiving time.Duration
}

// spanOf is the measurement of a cell: its duration or, when publishers stop after a count, the time from the start of
// the measurement to the last confirm (unconfirmed modes: the last send) and to the last delivery. Rates are per the
// overlap of the agents.
func spanOf(w plan.Workload, m *record.Merged) span {
	s := span{windows: seconds(w.Measure.D()), sending: w.Measure.D(), receiving: w.Measure.D()}
	if w.Publishers.Count == 0 {
		return s
	}
	s.byCount = true
	last := m.Last().Send
	if Confirmed(w.Publishers.Mode) {
		last = max(last, m.Last().Confirm)
	}
	s.sending = max(0, time.Duration(last))
	s.receiving = max(0, time.Duration(m.Last().Delivery))
	s.windows = seconds(s.sending)
	return s
}

// length is how long the measurement was for those who looked on.
func (s span) length() time.Duration { return max(s.sending, s.receiving) }

// seconds is the number of one-second windows in d, the last one perhaps shorter.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// overlap is the part of the measurement in which all agents ran: windows from … to-1.
type overlap struct {
	from, to int
	length   time.Duration // 0: there was none
}

// overlapOf is, in whole windows, from when the last of the agents had started, if that was after warm-up by more than
// agents may start apart (every start is some microseconds late), to when the first of them was lost or, of a task that
// was given up, heard of last. Of a lost agent the last window that it reported may not be whole, and is left out.
// Agents are those of the whole cell: rates of its groups are added up, and so are of one time. By count, agents end
// when they have sent their messages, in confirmed modes when these are confirmed: the overlap is all of the
// measurement if they end within 2 % of it, else it ends with the first of them.
func (in *input) overlapOf() overlap {
	o := overlap{to: in.span.windows}
	if in.span.byCount {
		for _, l := range in.record.LastOfEach() {
			ends := time.Duration(l.Send)
			if Confirmed(in.workload.Publishers.Mode) {
				ends = max(ends, time.Duration(l.Confirm))
			}
			if l.Send != 0 && float64(ends) < (1-Tolerance)*float64(in.span.sending) {
				o.to = min(o.to, int(ends/time.Second))
			}
		}
	}
	heard, skews := in.cell.record.ReportedUntil(), in.cell.record.Skews()
	for _, a := range in.cell.facts.Agents {
		if late := skews[a.Agent] - in.warmup(); late > in.workload.Skew.D() {
			o.from = max(o.from, seconds(late))
		}
		at, reported := heard[a.Agent]
		whole := int(max(0, at) / int64(time.Second))
		switch {
		case a.Lost && reported:
			o.to = min(o.to, whole-1)
		case a.Lost:
			o.to = 0
		case reported && (in.facts.Failure != "" || in.facts.Cancelled):
			o.to = min(o.to, whole)
		}
	}
	o.length = time.Duration(o.to-o.from) * time.Second
	if o.to == in.span.windows { // the last may be shorter
		o.length = in.span.sending - time.Duration(o.from)*time.Second
	}
	o.length = max(0, o.length)
	return o
}

// warmup is how long the load ran before the measurement.
func (in *input) warmup() time.Duration { return in.workload.Warmup.D() + in.cut }

// counted is a counter over the measurement: events inside it or, by count, events of its messages.
func (in *input) counted(c record.Counter) float64 {
	if !in.span.byCount {
		return float64(in.record.Sum(c, 0, in.span.windows))
	}
	var n int64
	in.record.Range(func(w *record.Window) {
		if w.Measured {
			n += w.Counts[c]
		}
	})
	return float64(n)
}

// total is a counter over the whole task.
func (in *input) total(c record.Counter) float64 { return float64(in.record.Total(c)) }

// drainCut reports whether the drain ended before silence.
func (in *input) drainCut() bool {
	return in.facts.DrainCut || in.facts.Failure != "" || in.facts.Cancelled
}

// degraded reports whether only some of the agents are in the record.
func (in *input) degraded() bool {
	return slices.ContainsFunc(in.facts.Agents, func(a plan.AgentPart) bool { return a.Lost })
}

// roles are the agents that publish and those that consume, by their indexes, as plan.Assign shares the task out.
func (in *input) roles() (publishers, consumers []plan.AgentPart) {
	first := in.workload.Publishers.Nodes
	if in.workload.Consumers.Colocate {
		first = 0
	}
	for _, a := range in.facts.Agents {
		if a.Index < in.workload.Publishers.Nodes {
			publishers = append(publishers, a)
		}
		if a.Index >= first && a.Index < first+in.workload.Consumers.Nodes {
			consumers = append(consumers, a)
		}
	}
	return publishers, consumers
}
