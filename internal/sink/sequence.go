package sink

import (
	"slices"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// A second is written when no more data is expected, and again if more data comes. A publisher reports its data with
// its next event, which may be much later.
const (
	settle = 1500 * time.Millisecond
	// lost is how long the seconds of all agents together wait for a silent agent.
	lost = 6 * time.Second
	// keep is how long distributions are kept for late data. After that only counters are corrected, so that a long
	// task does not fill the memory.
	keep = time.Minute
)

// sequence has the windows of one agent, or of all agents of a task together.
type sequence struct {
	measure time.Duration // 0: the end of the measurement is not known, and empty seconds are not filled in
	begin   time.Duration // start of the measurement, since T0; below 0: not known yet
	windows map[windowKey]*window
	changed map[windowKey]struct{}
	written []*window // windows whose distributions are kept, in the order first written
	filled  int       // number of seconds of the measurement that exist
}

type windowKey struct {
	index    int
	measured bool
}

// window has the data of one second.
type window struct {
	data            record.Window
	expected        int64 // deliveries that the sent messages lead to
	listed, thinned bool  // listed: in sequence.written; thinned: without distributions
}

func (w *window) end() time.Duration { return time.Duration(w.data.Start + w.data.Length) }

func newSequence(measure, begin time.Duration) *sequence {
	return &sequence{measure: measure, begin: begin, windows: map[windowKey]*window{},
		changed: map[windowKey]struct{}{}}
}

// add adds the data of o, which is not changed. Each message is delivered to the given number of subscriptions.
func (q *sequence) add(o *record.Window, subscriptions int) {
	w := q.at(windowKey{o.Index, o.Measured}, o.Start, o.Length)
	w.expected += int64(subscriptions) * (o.Counts[record.Sent] - o.Counts[record.Returned] - o.Counts[record.Rejected])
	sum := *o
	sum.Published, sum.Delivered = nil, nil // no point has them
	if w.thinned {
		clear(sum.Hists[:])
	}
	w.data.Add(&sum)
}

// at returns a window, and marks it as changed.
func (q *sequence) at(k windowKey, start, length int64) *window {
	w := q.windows[k]
	if w == nil {
		w = &window{data: record.Window{Index: k.index, Measured: k.measured, Start: start, Length: length}}
		q.windows[k] = w
	}
	q.changed[k] = struct{}{}
	return w
}

// take returns the windows that end by limit and have changed since they were last taken, in order of time. Empty
// seconds of the measurement that end by filled are windows, too, so that a stalled broker is not drawn as a straight
// line.
func (q *sequence) take(filled, limit time.Duration) []*window {
	q.fill(filled)
	var due []*window
	for k := range q.changed {
		if w := q.windows[k]; w.end() <= limit {
			due = append(due, w)
			delete(q.changed, k)
		}
	}
	slices.SortFunc(due, func(a, b *window) int { return a.data.Compare(&b.data) })
	for _, w := range due {
		if !w.listed {
			w.listed = true
			q.written = append(q.written, w)
		}
	}
	return due
}

// forget removes the distributions of windows that were written long before at.
func (q *sequence) forget(at time.Duration) {
	n := 0
	for ; n < len(q.written) && q.written[n].end()+keep < at; n++ {
		q.written[n].thinned = true
		clear(q.written[n].data.Hists[:])
	}
	q.written = q.written[n:]
}

// fill creates the seconds of the measurement that end by limit.
func (q *sequence) fill(limit time.Duration) {
	for q.begin >= 0 {
		since := time.Duration(q.filled) * time.Second
		start, length := q.begin+since, min(time.Second, q.measure-since)
		if length <= 0 || start+length > limit {
			return
		}
		k := windowKey{int(q.begin/time.Second) + q.filled, true}
		if q.windows[k] == nil {
			q.at(k, int64(start), int64(length))
		}
		q.filled++
	}
}

// phase returns the phase of a second. If the measurement has a number of messages, its end is only known later. Then
// the drain begins only at the time limit.
func phase(w *window, begin, measure time.Duration) plan.Phase {
	switch start := time.Duration(w.data.Start); {
	case w.data.Index < 0, begin < 0, start < begin:
		return plan.PhaseWarmup
	case start < begin+measure:
		return plan.PhaseMeasure
	}
	return plan.PhaseDrain
}
