package clock

import "math"

// Exchange is a request to another clock and its response, with the four times of RFC 5905, section 8, in ns. Sent and
// Received are departure of the request and arrival of the response, by this clock. Arrived and Answered are arrival of
// the request and departure of the response, by the other clock.
//
// Slew and OtherSlew are by how much each clock was ahead of its host's CLOCK_MONOTONIC_RAW. SlewBound is the maximum
// error of both together: see the function Slew.
type Exchange struct {
	Sent, Arrived, Answered, Received int64
	Slew, OtherSlew, SlewBound        int64
}

// Offset is how far one clock is ahead of another at a time, with a maximum error of Bound.
type Offset struct {
	At     int64   // ns of the first clock
	Offset int64   // ns, its reading minus the other's
	Bound  int64   // ns
	Drift  float64 // ns per ns: growth of Offset while neither clock is slewed
	// Slew is the part of Offset caused by slewing. It is the lead of this clock over its host's CLOCK_MONOTONIC_RAW,
	// minus that of the other clock. SlewBound is the part of Bound caused by slewing.
	Slew, SlewBound int64
}

// Assumptions about clocks.
const (
	// MaxDrift is the maximum difference of the rates of two clocks. The kernel corrects a clock's rate by at most 500
	// ppm (adjtimex(2)); quartz is accurate to 100 ppm.
	MaxDrift = 500e-6
	// wander is the maximum change of that difference after it was observed. For quartz it is some tenths of a ppm per
	// degree. RFC 5905 assumes 15 ppm (PHI), but for clocks whose rate was not measured.
	wander = 1e-6
	// window is how long exchanges are kept. bucket is the time for which only the best exchange is kept: that with the
	// shortest round trip.
	window = 60e9
	bucket = 1e9
	// maxSlew is the maximum rate at which NTP routinely slews a clock. It applies to the other clock since the last
	// exchange, where its slew is not known.
	maxSlew = 20e-6
	// minStep is the minimum size of a step. A smaller one is treated as a change of the rate.
	minStep = 50e3
)

// Offsets estimates the offset of this clock to another one from exchanges. In each exchange the other clock was read
// after the request was sent and before the response was received. Whatever the network delays were,
//
//	Sent − Arrived ≤ offset ≤ Received − Answered
//
// The middle of this interval is the offset θ of RFC 5905. Its half width is the maximum error of θ by asymmetric
// delays: half the round trip δ, without the time at the other end.
//
// A line of offset against time must pass through all intervals. Each is widened by the possible change of the rate
// since its exchange. This is a minimum-delay filter: the narrowest intervals determine the result. The estimate at a
// later time is the middle between the highest and the lowest such line; its bound is the distance to them. If no line
// passes through all intervals, the clock was stepped or its rate changed. Earlier exchanges are then dropped.
//
// This holds for clocks that are not slewed. NTP slews CLOCK_MONOTONIC by a few ppm for seconds, and chrony by up to
// 83,333 ppm. Lines are therefore fitted to CLOCK_MONOTONIC_RAW, which is not slewed. The estimate is then converted by
// the difference of the two clocks on either host.
//
// The bound holds under these conditions:
//
//   - The difference of the raw rates is at most 500 ppm. It changes by at most 1 ppm from one minute to the next, or
//     the change is detected.
//   - Since the last exchange the other clock was slewed by at most 20 ppm, or as before it.
//
// Without CLOCK_MONOTONIC_RAW, slewing counts as a change of the rate. Offsets is not safe for concurrent use. The zero
// value is ready to use and has no estimate.
type Offsets struct {
	seen               []interval // by time, relative to the raw clocks
	minSlope, maxSlope float64    // range of slopes of lines through all of them
	last               Exchange
	slewing            float64 // ns per ns: slew rate of the other clock between the last two exchanges
}

// interval is the range of offsets that one exchange permits.
type interval struct {
	at        int64 // time of the response, by this clock
	low, high int64
	bucket    int64
}

// Add adds an exchange. It returns the size of a step of the clock relative to the earlier estimate, or 0 if there was
// no step. It ignores an impossible exchange, during which the clock was set back.
func (o *Offsets) Add(x Exchange) (step int64) {
	slew := x.Slew - x.OtherSlew
	i := interval{at: x.Received, bucket: x.Received / bucket,
		low: x.Sent - x.Arrived - slew - x.SlewBound, high: x.Received - x.Answered - slew + x.SlewBound}
	if x.Received-x.Answered < x.Sent-x.Arrived {
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
	for !o.fit() { // no line passes through all: drop the older half
		o.seen = o.seen[(len(o.seen)+1)/2:]
	}
	return step
}

// keep adds an interval, as the only one of its bucket, and drops those older than maxAge.
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

// fit computes the range of slopes of lines through all intervals. It returns false if there is none.
func (o *Offsets) fit() (ok bool) {
	last := o.seen[len(o.seen)-1].at
	o.minSlope, o.maxSlope, ok = slopes(o.seen, last, last)
	return ok
}

// At returns the offset at a time, which must not be before the last exchange. slew is how far this clock is then ahead
// of its CLOCK_MONOTONIC_RAW, with a maximum error of bound. ok is false if there is no estimate.
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

// slopes computes the range of slopes of lines through all intervals, each widened for all times from first to last. ok
// is false if there is none. Each pair of intervals limits the slope. By Helly's theorem, there is a line through all
// intervals for every slope that all pairs permit.
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

// widened returns the interval widened by the possible change of the rate over age, in ns.
func (s interval) widened(age int64) interval {
	more := int64(math.Ceil(wander * math.Abs(float64(age))))
	s.low, s.high = s.low-more, s.high+more
	return s
}

// between returns the offset at a time that lines through all intervals, with slopes in the given range, permit.
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

// SmoothOffsets improves offsets, in order of time, with those up to half a window before and after. Later exchanges
// reduce the error of offsets that were estimated before the rate was known or without a quick exchange. Where no line
// passes through all intervals, because the clock was stepped, offsets are not changed. known is not modified.
func SmoothOffsets(known []Offset) []Offset {
	const block = window / 6 // span of offsets that are processed together
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

// tightest returns the intervals of the known offsets between two times: the best of each bucket.
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
