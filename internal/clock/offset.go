package clock

import "math"

// Exchange is one question to another clock and its answer, by the four times of RFC 5905, section 8: the question's
// departure and the answer's arrival by this clock, and in between the question's arrival and the answer's departure by
// the other, all in ns.
//
// Slew and OtherSlew are by how much each of the two was ahead of its host's CLOCK_MONOTONIC_RAW meanwhile, and
// SlewBound is how far off both may be together: see the function Slew.
type Exchange struct {
	Sent, Heard, Answered, Received int64
	Slew, OtherSlew, SlewBound      int64
}

// Offset is how far one clock is ahead of another at a time, give or take Bound.
type Offset struct {
	At     int64   // ns of the first clock
	Offset int64   // ns, its reading minus the other's
	Bound  int64   // ns
	Drift  float64 // ns per ns: how fast Offset grows while neither clock is slewed
	// Slew is the part of Offset that came of slewing: by how much this clock was ahead of its host's
	// CLOCK_MONOTONIC_RAW, less the same of the other. SlewBound is the part of Bound that it has.
	Slew, SlewBound int64
}

// Limits of what is assumed of clocks.
const (
	// MaxDrift is how much faster than another a clock can be: the kernel corrects a clock's rate by at most 500 ppm
	// (adjtimex(2)), and quartz itself is good to 100 ppm.
	MaxDrift = 500e-6
	// wander is by how much that difference can be another one than in what was seen before: of quartz some tenths of a
	// ppm for each degree. RFC 5905 assumes 15 ppm (PHI), but of clocks whose rate was not measured.
	wander = 1e-6
	// window is how long exchanges are kept, and bucket the time of which the best one is kept: that under way for the
	// least time.
	window = 60e9
	bucket = 1e9
	// maxSlew is by how much NTP slews a clock as a routine, at most. What the other clock was slewed since the last
	// exchange is not known.
	maxSlew = 20e-6
	// minStep is the minimum of a step: a smaller one is taken for a rate that changed.
	minStep = 50e3
)

// Offsets estimates the offset of this clock to another one from exchanges. Of each, whatever the network did to
// either way, the answer's sender read its clock after the question was sent and before the answer was received, so
// that
//
//	Sent − Heard ≤ offset ≤ Received − Answered
//
// whose middle is the offset θ of RFC 5905, and whose half width, half the round trip δ less the time at the other end,
// is the most that asymmetry can make θ wrong. A line of offset against time must pass through all these intervals,
// each widened by what the rate may have wandered since (a minimum-delay filter: the tightest decide, wherever they
// are). The offset at a later time is the middle between the highest and the lowest such line there, and the bound
// their distance from it. Where no line passes through all, the clock was stepped or its rate changed: what was before
// is forgotten.
//
// That is so of clocks that nobody slews. NTP slews CLOCK_MONOTONIC, by a few ppm for seconds, and chrony by up to
// 83,333 ppm. So lines are fitted to CLOCK_MONOTONIC_RAW, which it does not slew, and the estimate is converted by how
// far the two are apart on either host.
//
// The bound holds as long as the difference of the raw rates, at most 500 ppm, changes by no more than 1 ppm from one
// minute to the next, or is seen to have changed, and the other clock has been slewed since the last exchange by no
// more than 20 ppm, or as before it. Where there is no CLOCK_MONOTONIC_RAW, slewing counts as a change of the rate. Not
// safe for concurrent use; the zero value knows nothing.
type Offsets struct {
	seen               []interval // by time, of the raw clocks
	minSlope, maxSlope float64    // of lines through all of them
	last               Exchange
	slewing            float64 // ns per ns: how fast the other clock was slewed between the last two exchanges
}

// interval is what one exchange says of the offset.
type interval struct {
	at        int64 // when it was received, by this clock
	low, high int64
	bucket    int64
}

// Add takes an exchange. It returns by how much the clock was stepped, against what was known before, if it was: 0 if
// not. An exchange that cannot have been, because the clock went back meanwhile, is left out.
func (o *Offsets) Add(x Exchange) (step int64) {
	slew := x.Slew - x.OtherSlew
	i := interval{at: x.Received, bucket: x.Received / bucket,
		low: x.Sent - x.Heard - slew - x.SlewBound, high: x.Received - x.Answered - slew + x.SlewBound}
	if x.Received-x.Answered < x.Sent-x.Heard {
		return 0
	}
	if since := x.Received - o.last.Received; since > 0 && len(o.seen) > 0 {
		o.slewing = max(0, math.Abs(float64(x.OtherSlew-o.last.OtherSlew))-float64(x.SlewBound+
			o.last.SlewBound)) / float64(since)
	}
	o.last = x
	if n := len(o.seen); n > 0 {
		known := between(o.seen, o.minSlope, o.maxSlope, max(i.at, o.seen[n-1].at))
		out := max(i.low-(known.Offset+known.Bound), known.Offset-known.Bound-i.high)
		if back := i.at < o.seen[n-1].at; out > 0 || back {
			o.seen = o.seen[:0]
			if out > minStep || back {
				step = (i.low+i.high)/2 - known.Offset
			}
		}
	}
	o.keep(i, window)
	for !o.fit() { // no line passes through all: what it was like long ago does not count any more
		o.seen = o.seen[(len(o.seen)+1)/2:]
	}
	return step
}

// keep puts an interval in place, as the only one of its bucket, and drops what is older than maxAge.
func (o *Offsets) keep(i interval, maxAge int64) {
	n := len(o.seen)
	switch {
	case n == 0 || o.seen[n-1].bucket != i.bucket:
		o.seen = append(o.seen, i)
	case i.high-i.low <= o.seen[n-1].high-o.seen[n-1].low:
		o.seen[n-1] = i
	}
	old := 0
	for i.at-o.seen[old].at > maxAge {
		old++
	}
	o.seen = o.seen[old:]
}

// fit finds the slopes of lines through all intervals; false: there are none.
func (o *Offsets) fit() (ok bool) {
	last := o.seen[len(o.seen)-1].at
	o.minSlope, o.maxSlope, ok = slopes(o.seen, last, last)
	return ok
}

// At is the offset at a time not before the last exchange, at which this clock is ahead of its CLOCK_MONOTONIC_RAW by
// slew, give or take bound, or false while nothing is known.
func (o *Offsets) At(at, slew, bound int64) (Offset, bool) {
	if len(o.seen) == 0 {
		return Offset{}, false
	}
	is := between(o.seen, o.minSlope, o.maxSlope, at)
	is.Slew = slew - o.last.OtherSlew
	is.SlewBound = bound + o.last.SlewBound + int64(math.Ceil(max(maxSlew,
		o.slewing)*math.Abs(float64(at-o.last.Received))))
	is.Offset, is.Bound = is.Offset+is.Slew, is.Bound+is.SlewBound
	return is, true
}

// slopes finds the slopes of lines through all intervals as they count at any time from first to last; false: there
// are none. Two intervals bound the slope of a line that passes through both, and by Helly's theorem, a line of a
// slope that all pairs allow passes through all.
func slopes(all []interval, first, last int64) (minSlope, maxSlope float64, ok bool) {
	wide := make([]interval, len(all))
	for i, s := range all {
		wide[i] = s.widened(max(last-s.at, s.at-first))
	}
	minSlope, maxSlope = -MaxDrift, MaxDrift
	for j, b := range wide {
		for _, a := range wide[:j] {
			if apart := float64(b.at - a.at); apart > 0 {
				minSlope = max(minSlope, float64(b.low-a.high)/apart)
				maxSlope = min(maxSlope, float64(b.high-a.low)/apart)
			}
		}
	}
	return minSlope, maxSlope, minSlope <= maxSlope
}

// widened is an interval as it counts so much earlier or later.
func (s interval) widened(age int64) interval {
	more := int64(math.Ceil(wander * math.Abs(float64(age))))
	s.low, s.high = s.low-more, s.high+more
	return s
}

// between is what lines through all intervals, with slopes between two, leave of the offset at a time.
func between(all []interval, minSlope, maxSlope float64, at int64) Offset {
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	for _, s := range all {
		age := float64(at - s.at)
		s = s.widened(at - s.at)
		low = max(low, s.low+int64(math.Floor(min(minSlope*age, maxSlope*age))))
		high = min(high, s.high+int64(math.Ceil(max(minSlope*age, maxSlope*age))))
	}
	middle := low + (high-low)/2
	return Offset{At: at, Offset: middle, Bound: max(high-middle, middle-low, 0), Drift: (minSlope + maxSlope) / 2}
}

// SmoothOffsets estimates offsets, in order of time, again from those up to half a window before and after. One that
// was uncertain when it was estimated, because its clock's rate was not known yet, or no exchange was quick, is better
// known later. Where no line passes through all, because the clock was stepped, they stay as they are. known stays the
// caller's.
func SmoothOffsets(known []Offset) []Offset {
	const block = window / 6 // narrowed at one go
	better := make([]Offset, 0, len(known))
	for from := 0; from < len(known); {
		first := known[from].At
		to := from
		for to < len(known) && known[to].At < first+block {
			to++
		}
		last := known[to-1].At
		around := tightest(known, first-window/2, last+window/2)
		minSlope, maxSlope, ok := slopes(around, first, last)
		for _, k := range known[from:to] {
			if ok {
				if b := between(around, minSlope, maxSlope, k.At); b.Bound+k.SlewBound <= k.Bound {
					k.Offset, k.Bound, k.Drift = b.Offset+k.Slew, b.Bound+k.SlewBound, b.Drift
				}
			}
			better = append(better, k)
		}
		from = to
	}
	return better
}

// tightest are the intervals of what is known between two times: of each bucket the best.
func tightest(known []Offset, from, to int64) []interval {
	var best Offsets
	for _, k := range known {
		if k.At >= from && k.At <= to {
			raw, bound := k.Offset-k.Slew, k.Bound-k.SlewBound
			best.keep(interval{at: k.At, low: raw - bound, high: raw + bound, bucket: k.At / bucket}, math.MaxInt64)
		}
	}
	return best.seen
}
