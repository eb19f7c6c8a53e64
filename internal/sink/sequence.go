package sink

import (
	"cmp"
	"slices"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// A second is written once no more of it is expected, and again if more comes all the same: a publisher hands over
// what it recorded with its next event, which may be long after.
const (
	settle = 1500 * time.Millisecond
	// lost is how long the seconds of all agents together wait for one that is silent.
	lost = 6 * time.Second
	// keep is how long distributions are kept for what comes late. After that only counters are corrected, so that a
	// long task does not fill the memory.
	keep = time.Minute
)

// sequence is the windows of one agent, or of all of a task's agents together.
type sequence struct {
	measure time.Duration // 0: the end of the measurement is not known; seconds without events are not filled in
	begin   time.Duration // of the measurement, since T0; below 0: not known yet
	windows map[windowKey]*window
	changed map[windowKey]struct{}
	written []*window // whose distributions are still kept, in the order first written
	filled  int       // seconds of the measurement before this one are there
}

type windowKey struct {
	index    int
	measured bool
}

// window is what is known of one second.
type window struct {
	record.Window
	expected     int64 // deliveries that what was sent leads to
	listed, bare bool  // in sequence.written; without distributions
}

func (w *window) end() time.Duration { return time.Duration(w.Start + w.Length) }

func newSequence(measure, begin time.Duration) *sequence {
	return &sequence{measure: measure, begin: begin, windows: map[windowKey]*window{},
		changed: map[windowKey]struct{}{}}
}

// add adds what o holds of its second, of messages that so many subscriptions each receive; o stays as it is.
func (q *sequence) add(o *record.Window, subscriptions int) {
	w := q.at(windowKey{o.Index, o.Measured}, o.Start, o.Length)
	w.expected += int64(subscriptions) * (o.Counts[record.Sent] - o.Counts[record.Returned] - o.Counts[record.Rejected])
	for c, n := range o.Counts {
		w.Counts[c] += n
	}
	for s, h := range o.Hists {
		if h == nil || w.bare {
			continue
		}
		if w.Hists[s] == nil {
			w.Hists[s] = record.NewHist()
		}
		w.Hists[s].Merge(h)
	}
}

// at returns a window that is about to change.
func (q *sequence) at(k windowKey, start, length int64) *window {
	w := q.windows[k]
	if w == nil {
		w = &window{Window: record.Window{Index: k.index, Measured: k.measured, Start: start, Length: length}}
		q.windows[k] = w
	}
	q.changed[k] = struct{}{}
	return w
}

// take returns the windows that changed since they were taken last and end by limit, in order of time. Seconds of the
// measurement in which nothing happened are windows too: a broker that stalls is not to look like a straight line.
func (q *sequence) take(limit time.Duration) []*window {
	q.fill(limit)
	return q.due(limit)
}

func (q *sequence) due(limit time.Duration) []*window {
	var due []*window
	for k := range q.changed {
		if w := q.windows[k]; w.end() <= limit {
			due = append(due, w)
			delete(q.changed, k)
		}
	}
	slices.SortFunc(due, func(a, b *window) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Index, b.Index), compareBool(a.Measured, b.Measured))
	})
	for _, w := range due {
		if !w.listed {
			w.listed = true
			q.written = append(q.written, w)
		}
	}
	return due
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// rest returns all that changed, seconds that are not over included; the measurement is filled up to at.
func (q *sequence) rest(at time.Duration) []*window {
	q.fill(at)
	return q.due(1<<63 - 1)
}

// forget lets go of the distributions of what was written long before at.
func (q *sequence) forget(at time.Duration) {
	n := 0
	for ; n < len(q.written) && q.written[n].end()+keep < at; n++ {
		q.written[n].bare = true
		clear(q.written[n].Hists[:])
	}
	q.written = q.written[n:]
}

// fill makes the seconds of the measurement that are over by limit.
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

// phase is where a second lies. With a count of messages the measurement ends with the last of them, which is only
// known later: the drain is then not told apart before the limit.
func phase(w *window, begin, measure time.Duration) plan.Phase {
	switch start := time.Duration(w.Start); {
	case w.Index < 0, begin < 0, start < begin:
		return plan.PhaseWarmup
	case start < begin+measure:
		return plan.PhaseMeasure
	}
	return plan.PhaseDrain
}
