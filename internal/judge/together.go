package judge

import (
	"time"

	"lockstep/internal/record"
)

// together is the part of the measurement in which all agents ran, in whole windows: from when the last of them had started, if that was
// after warm-up by more than agents may start apart (every start is some microseconds late), to when the first of them was lost or, of a
// task that was given up, heard of last. Of a lost agent the last window that it told of may not be whole, and is left out.
// Agents are those of the whole cell: rates of its groups are added up, and so are of one time.
func (j *judge) together() (from, to int, length time.Duration) {
	to = j.span.windows
	cell := j
	if j.whole != nil {
		cell = j.whole
	}
	heard, skews := cell.m.Heard(), cell.m.Skews()
	for _, a := range cell.f.Agents {
		if late := skews[a.Agent] - j.before(); late > j.w.Skew.D() {
			from = max(from, seconds(late))
		}
		at, told := heard[a.Agent]
		whole := int(max(0, at) / int64(time.Second))
		switch {
		case a.Lost && told:
			to = min(to, whole-1)
		case a.Lost:
			to = 0
		case told && (j.f.Failure != "" || j.f.Cancelled):
			to = min(to, whole)
		}
	}
	length = time.Duration(to-from) * time.Second
	if to == j.span.windows { // the last may be shorter
		length = j.span.sending - time.Duration(from)*time.Second
	}
	return from, to, max(0, length)
}

// paces adds up the rates of agents whose publishers stop after a count: what each sent, or had confirmed, over the time that it took to, by
// its own clock, from when it had started, if that was after warm-up. An agent that is done earlier than others, or began later, neither
// counts for less nor makes theirs seem slower.
func (j *judge) paces(c record.Counter) (perSecond float64) {
	skews := j.m.Skews()
	for agent, p := range j.m.Paces() {
		last := p.LastSend
		if Confirmed(j.w.Publishers.Mode) {
			last = max(last, p.LastConfirm)
		}
		last -= max(0, int64(skews[agent]-j.before()))
		if last > 0 {
			perSecond += float64(p.Counts[c]) / time.Duration(last).Seconds()
		}
	}
	return perSecond
}

// leftOver is how much of a backlog warm-up left to a measurement by count, as a part of what was received of its own messages: receivers took that in
// its time, too. What is in flight anyway is none, and neither is what publishers had sent and waited for.
func (j *judge) leftOver() float64 {
	every, own := j.perSecond(), j.counted(record.Unique)
	left := 0.0
	for i := every.first; i < 0; i++ {
		s := every.at(i)
		left += float64(j.subs)*(s.sent-s.refused) - s.unique
	}
	flight := 0.0 // at the end of warm-up
	if Confirmed(j.w.Publishers.Mode) {
		before := func(c record.Counter) float64 { return float64(j.m.Sum(c, every.first, 0)) }
		flight = float64(j.subs) * (before(record.Sent) - before(record.Confirmed) - before(record.Rejected) - before(record.Unconfirmed))
	}
	if own == 0 || left <= max(flight, j.inFlight()) {
		return 0
	}
	received := float64(j.m.Total(record.Unique)-j.m.Sum(record.Unique, every.first, 0)) - own
	return max(0, min(left, received)) / own
}
