package clock

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// link is a simulated path between two clocks. All times are in ns.
type link struct {
	r            *rand.Rand
	offset       float64 // of this clock relative to the other, at time 0
	drift        float64
	wander       float64 // amplitude of the rate's variation around drift …
	period       float64 // … and its period
	there, back  float64 // minimum delay per direction
	queue        float64 // mean of the additional, exponential delay
	stall, often float64 // additional delay, and its probability
	stepAt, step int64
	kinkAt       int64 // the rate changes at this time
	kink         float64
}

// truth returns the offset at a time of the other clock.
func (l *link) truth(at int64) int64 {
	o := l.offset + l.drift*float64(at)
	if l.wander > 0 {
		turn := 2 * math.Pi / l.period
		o += l.wander / turn * math.Sin(turn*float64(at))
	}
	if l.step != 0 && at >= l.stepAt {
		o += float64(l.step)
	}
	if l.kink != 0 && at > l.kinkAt {
		o += l.kink * float64(at-l.kinkAt)
	}
	return int64(o)
}

func (l *link) delay(shortest float64) int64 {
	d := shortest + l.queue*l.r.ExpFloat64()
	if l.r.Float64() < l.often {
		d += l.stall * l.r.Float64()
	}
	return int64(d)
}

// exchange performs an exchange at a time of the other clock, and returns the time of its end.
func (l *link) exchange(at int64) (Exchange, int64) {
	arrived := at + l.delay(l.there)
	answered := arrived + 20_000
	received := answered + l.delay(l.back)
	return Exchange{Sent: at + l.truth(at), Arrived: arrived, Answered: answered,
			Received: received + l.truth(received)},
		received
}

// play performs exchanges for this number of seconds: a burst, then two per second. It calls look with the estimate
// before each exchange.
func (l *link) play(seconds int, look func(at int64, is Offset, truth int64), stepped func(at, step int64)) {
	var o Offsets
	next := int64(time.Minute)
	for n := range 8 + 2*seconds {
		x, received := l.exchange(next)
		if step := o.Add(x); step != 0 {
			stepped(received, step)
		}
		pause := 20 * time.Millisecond
		if n >= 8 {
			pause = 500 * time.Millisecond
		}
		next = max(received, next+int64(pause))
		if is, ok := o.At(next+l.truth(next), 0, 0); ok {
			look(next, is, l.truth(next))
		}
	}
}

// Over all kinds of links, the true offset is within the bound, and the bound is not much larger than the undetectable
// asymmetry.
func TestOffsetsHoldTheTruth(t *testing.T) {
	const seconds = 90
	links := 100
	if os.Getenv("LOCKSTEP_LONG") != "" {
		links = 400
	}
	r := rand.New(rand.NewPCG(1, 2))
	var looks, outside int
	var excess []float64 // relative bound beyond half the minimum round trip, after 10 s
	for range links {
		l := &link{r: r, offset: 1e9 * (r.Float64() - 0.5), drift: 200e-6 * (r.Float64() - 0.5),
			wander: 0.5e-6 * r.Float64(), period: 120e9 + 600e9*r.Float64(),
			there: 20e3 + 500e3*r.Float64(), back: 20e3 + 500e3*r.Float64(), queue: 300e3 * r.Float64(), stall: 20e6,
			often: 0.2 * r.Float64()}
		if r.IntN(4) == 0 { // only one direction is slow
			l.there *= 10
		}
		floor := (l.there + l.back) / 2
		begin := int64(time.Minute + 10*time.Second)
		l.play(seconds, func(at int64, is Offset, truth int64) {
			looks++
			if d := is.Offset - truth; d > is.Bound || -d > is.Bound {
				outside++
			}
			if at > begin {
				excess = append(excess, (float64(is.Bound)-floor)/floor)
			}
		}, func(at, step int64) {
			t.Errorf("took a clock that was not stepped for one that was, by %v", time.Duration(step))
		})
	}
	slices.Sort(excess)
	half, tail := excess[len(excess)/2], excess[len(excess)*99/100]
	t.Logf("%d estimates, %d outside of their bound; bound beyond half the shortest round trip: median %.0f %%, p99 %.0f %%",
		looks, outside, 100*half, 100*tail)
	if float64(outside) > 0.001*float64(looks) {
		t.Errorf("of %d estimates %d were off by more than their bound, want 0.1 %% at most", looks, outside)
	}
	if half > 0.35 || tail > 2.5 {
		t.Errorf("the bound is %.0f %% above half the shortest round trip in the median and %.0f %% at p99: too coarse",
			100*half, 100*tail)
	}
}

// Smoothed afterwards, the true offset is within the bound as well, and the bound is small from the first estimate on.
func TestSmoothOffsetsHoldsTheTruth(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	looks, outside := 0, 0
	var before, after []float64 // the maximum bound of a link relative to half the minimum round trip
	for range 300 {
		l := &link{r: r, offset: 1e9, drift: 200e-6 * (r.Float64() - 0.5), wander: 0.5e-6 * r.Float64(),
			period: 120e9 + 600e9*r.Float64(),
			there:  20e3 + 500e3*r.Float64(), back: 20e3 + 500e3*r.Float64(), queue: 300e3 * r.Float64(), stall: 20e6,
			often: 0.2 * r.Float64()}
		var known []Offset
		var truths []int64
		l.play(20, func(_ int64, is Offset, truth int64) { known, truths = append(known, is), append(truths, truth) },
			func(int64, int64) {})
		coarse, fine := int64(0), int64(0)
		for i, is := range SmoothOffsets(known) {
			looks++
			if d := is.Offset - truths[i]; d > is.Bound || -d > is.Bound {
				outside++
			}
			if is.Bound > known[i].Bound || is.At != known[i].At {
				t.Fatalf("%+v became %+v", known[i], is)
			}
			coarse, fine = max(coarse, known[i].Bound), max(fine, is.Bound)
		}
		floor := (l.there + l.back) / 2
		before, after = append(before, float64(coarse)/floor), append(after, float64(fine)/floor)
	}
	slices.Sort(before)
	slices.Sort(after)
	n := len(after)
	t.Logf("of %d estimates %d outside of their bound; the worst of 20 s against half the shortest round trip: %.1f at first, %.1f in hindsight (p99 %.1f, %.1f)",
		looks, outside, before[n/2], after[n/2], before[n*99/100], after[n*99/100])
	if float64(outside) > 0.001*float64(looks) {
		t.Errorf("of %d estimates %d were off by more than their bound, want 0.1 %% at most", looks, outside)
	}
	if after[n/2] > 2 || after[n*99/100] > 4 {
		t.Errorf("in hindsight the bound is still %.1f times half the shortest round trip, p99 %.1f", after[n/2],
			after[n*99/100])
	}
}

// A step is not smoothed away.
func TestSmoothOffsetsKeepsAStep(t *testing.T) {
	var known []Offset
	for at := range int64(40) {
		o := Offset{At: at * 5e8, Offset: 1000, Bound: 300}
		if at >= 20 {
			o.Offset = 1e8
		}
		known = append(known, o)
	}
	if got := SmoothOffsets(known); !slices.Equal(got, known) {
		t.Errorf("a step became %+v", got)
	}
	if got := SmoothOffsets(nil); len(got) > 0 {
		t.Errorf("of nothing it made %+v", got)
	}
	exact := []Offset{{At: 0}, {At: 5e8}, {At: 1e10}}
	if got := SmoothOffsets(exact); !slices.Equal(got, exact) {
		t.Errorf("what was exact became %+v", got)
	}
}

// The effect of asymmetry is within the bound, and can use all of it: the bound is not larger than necessary.
func TestOffsetsWithOneWaySlow(t *testing.T) {
	l := &link{r: rand.New(rand.NewPCG(3, 4)), there: 2e6, back: 0}
	l.play(60, func(at int64, is Offset, truth int64) {
		if d := truth - is.Offset; d < is.Bound-150e3 && at > int64(time.Minute+45*time.Second) || d > is.Bound {
			t.Fatalf("2 ms there and none back: off by %v with a bound of %v, want nearly all of it", time.Duration(d),
				time.Duration(is.Bound))
		}
	}, func(at, step int64) { t.Errorf("a step of %v", time.Duration(step)) })
}

func TestOffsetsLearnTheDrift(t *testing.T) {
	l := &link{r: rand.New(rand.NewPCG(5, 6)), drift: 100e-6, there: 100e3, back: 150e3, queue: 50e3}
	var last Offset
	l.play(60, func(_ int64, is Offset, _ int64) { last = is },
		func(at, step int64) { t.Errorf("a step of %v", time.Duration(step)) })
	if math.Abs(last.Drift-100e-6) > 5e-6 {
		t.Errorf("drift %.1f ppm, want 100", last.Drift*1e6)
	}
}

// A step is reported once with its size. Later estimates use only exchanges after it.
func TestOffsetsNoticeAStep(t *testing.T) {
	for _, size := range []time.Duration{100 * time.Millisecond, -100 * time.Millisecond, 3 * time.Hour, -3 * time.Hour,
		2 * time.Millisecond} {
		l := &link{r: rand.New(rand.NewPCG(7, 8)), drift: 30e-6, there: 100e3, back: 200e3, queue: 100e3,
			step:   int64(size),
			stepAt: int64(time.Minute + 30*time.Second)}
		var steps []int64
		l.play(60, func(at int64, is Offset, truth int64) {
			if d := is.Offset - truth; (d > is.Bound || -d > is.Bound) &&
				(at < l.stepAt || at > l.stepAt+int64(time.Second)) {
				t.Errorf("%v: off by %v with a bound of %v", size, time.Duration(d), time.Duration(is.Bound))
			}
		}, func(at, step int64) {
			steps = append(steps, step)
			if late := at - l.stepAt; late < 0 || late > int64(time.Second) {
				t.Errorf("%v: noticed %v after it", size, time.Duration(late))
			}
		})
		if len(steps) != 1 || math.Abs(float64(steps[0]-int64(size))) > 1e6+1e-4*math.Abs(float64(size)) {
			t.Errorf("noticed steps of %v ns, want one of %v", steps, size)
		}
	}
}

// If the rate changes, as when the clock is slewed, the bound grows. It is wrong only for a short time.
func TestOffsetsFollowARateThatChanges(t *testing.T) {
	l := &link{r: rand.New(rand.NewPCG(9, 10)), drift: 10e-6, there: 100e3, back: 100e3, queue: 50e3,
		kinkAt: int64(2 * time.Minute), kink: 400e-6}
	looks, outside := 0, 0
	l.play(120, func(at int64, is Offset, truth int64) {
		looks++
		if d := is.Offset - truth; d > is.Bound || -d > is.Bound {
			outside++
		}
	}, func(int64, int64) {})
	if outside > 2 {
		t.Errorf("of %d estimates %d were off by more than their bound, want the one or two in which the rate had just changed", looks, outside)
	}
}

// slews are the slews of a clock: seconds at 1 to 20 ppm in either direction, with pauses.
type slews []struct{ from, to, rate float64 }

func newSlews(r *rand.Rand, end float64) (s slews) {
	for at := 5e9 * r.Float64(); at < end; {
		to := at + 1e9 + 20e9*r.Float64()
		rate := (1 + 19*r.Float64()) * 1e-6
		if r.IntN(2) == 0 {
			rate = -rate
		}
		s = append(s, struct{ from, to, rate float64 }{at, to, rate})
		at = to + 20e9*r.Float64()
	}
	return s
}

func (s slews) at(at int64) int64 {
	sum := 0.0
	for _, x := range s {
		sum += x.rate * (min(max(float64(at), x.from), x.to) - x.from)
	}
	return int64(sum)
}

// With clocks on both hosts that NTP slews by 1 to 20 ppm for seconds, the true offset is within the bound, both live
// and smoothed. Without the raw clock it is not, which is why the raw clock is used.
func TestOffsetsOfSlewedClocks(t *testing.T) {
	for _, raw := range []bool{true, false} {
		r := rand.New(rand.NewPCG(21, 22))
		looks, outside, later := 0, 0, 0
		for range 100 {
			l := &link{r: r, offset: 1e9 * (r.Float64() - 0.5), drift: 200e-6 * (r.Float64() - 0.5),
				there: 20e3 + 50e3*r.Float64(), back: 20e3 + 50e3*r.Float64(), queue: 30e3 * r.Float64()}
			own, other := newSlews(r, 120e9), newSlews(r, 120e9)
			var o Offsets
			var known []Offset
			var truths []int64
			for n := range 180 {
				at := int64(n) * 5e8
				x, received := l.exchange(at) // with raw clocks
				x.Sent, x.Received = x.Sent+own.at(at), x.Received+own.at(received)
				x.Arrived, x.Answered = x.Arrived+other.at(at), x.Answered+other.at(received)
				slew := func(s slews, at int64) int64 {
					if !raw {
						return 0
					}
					return s.at(at) + int64(100*(2*r.Float64()-1)) // difference between two readings
				}
				x.Slew, x.OtherSlew, x.SlewBound = slew(own, received), slew(other, received), 200
				o.Add(x)
				look := received + int64(4.8e8*r.Float64())
				truth := l.truth(look) + own.at(look) - other.at(look)
				is, _ := o.At(look+l.truth(look)+own.at(look), slew(own, look), 100)
				known, truths = append(known, is), append(truths, truth)
			}
			better := SmoothOffsets(known)
			for i, truth := range truths {
				looks++
				if d := known[i].Offset - truth; max(d, -d) > known[i].Bound {
					outside++
				}
				if d := better[i].Offset - truth; max(d, -d) > better[i].Bound {
					later++
				}
			}
		}
		t.Logf("raw clock %v: of %d estimates %d were off by more than their bound, %d in hindsight", raw, looks,
			outside, later)
		if wrong := max(outside, later); raw && wrong > looks/1000 || !raw && wrong < looks/100 {
			t.Errorf("raw clock %v: of %d estimates %d were off by more than their bound, and %d in hindsight; "+
				"want 0.1 %% at most with a raw clock, and more than 1 %% without", raw, looks, outside, later)
		}
	}
}

func TestOffsetsKnowNothingAtFirst(t *testing.T) {
	var o Offsets
	if is, ok := o.At(0, 0, 0); ok {
		t.Errorf("without an exchange it said %+v", is)
	}
	o.Add(Exchange{Sent: 10, Arrived: 5, Answered: 6, Received: 9}) // received before it was sent
	if is, ok := o.At(10, 0, 0); ok {
		t.Errorf("of an exchange that cannot have been it made %+v", is)
	}
}

func BenchmarkOffsets(b *testing.B) {
	l := &link{r: rand.New(rand.NewPCG(1, 1)), there: 1e5, back: 1e5, queue: 1e5}
	var o Offsets
	for n := range b.N {
		x, _ := l.exchange(int64(n) * 5e8)
		o.Add(x)
	}
}
