package judge

import "time"

// together is the part of the measurement in which all agents ran, in whole windows: from when the last of them had started, if that was
// after warm-up by more than agents may start apart (every start is some microseconds late), to when the first of them was lost or, of a
// task that was given up, heard of last. Of a lost agent the last window that it told of may not be whole, and is left out.
// Agents are those of the whole cell: rates of its groups are added up, and so are of one time. By count, agents end when they have sent their
// messages, in confirmed modes when these are confirmed: the time is all of it if they end within 2 % of it, else it ends with the first of them.
func (j *judge) together() (from, to int, length time.Duration) {
	to = j.span.windows
	if j.span.byCount {
		for _, l := range j.m.LastOfEach() {
			ends := time.Duration(l.Send)
			if Confirmed(j.w.Publishers.Mode) {
				ends = max(ends, time.Duration(l.Confirm))
			}
			if l.Send != 0 && float64(ends) < (1-Tolerance)*float64(j.span.sending) {
				to = min(to, int(ends/time.Second))
			}
		}
	}
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
