package engine

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"

	"lockstep/internal/plan"
)

// Schedule is the intended send times of one publisher's messages: arithmetic, no clock, so that agents
// compute their own shares and a test can check every one.
type Schedule interface {
	// Next is the intended send time of the next message, since the beginning of warm-up. Never earlier than the one
	// before.
	Next() time.Duration
}

// newSchedule is the schedule of publisher i of k that share a cell's load; nil where the load is closed-loop. The same
// task and publisher have the same schedule wherever it is made.
func newSchedule(p plan.Publishers, warmup time.Duration, task uint64, i, k int) Schedule {
	if !p.Open() {
		return nil
	}
	c := newRateCurve(p, warmup)
	if p.Arrivals == plan.ArrivalsPoisson {
		return newPoisson(c, task, i, k)
	}
	return &uniform{curve: c, next: uint64(i), step: uint64(k)}
}

// newUniform is the schedule of a steady rate that is not shared.
func newUniform(rate float64) Schedule { return &uniform{curve: &rateCurve{rate: rate}, step: 1} }

// uniform spaces the messages of the whole cell evenly: publisher i of k sends numbers i, i+k, i+2k, … of the cell's.
type uniform struct {
	curve      *rateCurve
	next, step uint64
}

// Next computes when so many messages are due, so that no error accumulates: exact to 1 ns for 50 days.
func (u *uniform) Next() time.Duration {
	due := u.curve.at(float64(u.next))
	u.next += u.step
	return due
}

// poisson is one publisher's Poisson process of a k-th of the cell's rate, independent of the others': exponential gaps
// of mean 1, stretched by the cell's rate curve (the time change of an inhomogeneous Poisson process; Çinlar,
// Introduction to Stochastic Processes, 1975, ch. 4.7).
type poisson struct {
	curve  *rateCurve
	share  float64 // k
	sum    float64 // of the gaps; after 10¹¹ messages it still resolves hundred-thousandths of a gap
	random *rand.Rand
}

func newPoisson(c *rateCurve, task uint64, i, k int) *poisson {
	seed := [32]byte{31: 'P'} // another stream than the payload's of the same publisher
	binary.LittleEndian.PutUint64(seed[:], task)
	binary.LittleEndian.PutUint64(seed[8:], uint64(i))
	return &poisson{curve: c, share: float64(k), random: rand.New(rand.NewChaCha8(seed))}
}

func (p *poisson) Next() time.Duration {
	p.sum += p.random.ExpFloat64()
	return p.curve.at(p.sum * p.share)
}

// rateCurve is when the cell's n-th message is due: the inverse of the integral of its rate. It is called in the order
// of n, by one goroutine, and keeps its place.
type rateCurve struct {
	rate   float64       // messages a second, always or until the stages begin
	warmup time.Duration // the stages begin then
	before float64       // messages of warm-up
	stages []stage       // over and over; none: the rate never changes, or is never above 0
	length time.Duration // of all stages, those that send nothing too
	total  float64       // messages of all stages

	// warmupEnds is when warm-up ends, if that becomes known while the load runs: false before. nil: warmup is right.
	warmupEnds func() (time.Duration, bool)
	last       time.Duration // the latest result while it was not known: nothing is due before it any more

	round float64 // how often all stages have passed
	stage int     // the one that the last message was in
}

// stage is a part of a rate curve in which the rate changes evenly.
type stage struct {
	begin  time.Duration // since the first stage began
	before float64       // messages of the stages before it
	rate   float64       // messages a second when it begins
	slope  float64       // messages a second, a second
}

// newRateCurve leaves out stages that send nothing: what would be due when one begins is due when it ends.
func newRateCurve(p plan.Publishers, warmup time.Duration) *rateCurve {
	if len(p.Profile) == 0 {
		return &rateCurve{rate: p.Rate}
	}
	c := &rateCurve{rate: p.Profile[0].Rate, warmup: warmup}
	c.before = c.rate * warmup.Seconds()
	for _, s := range p.Profile {
		if n := s.Messages(s.For.D()); n > 0 {
			part := stage{begin: c.length, before: c.total, rate: s.Rate}
			if s.To != nil {
				part.slope = (*s.To - s.Rate) / s.For.D().Seconds()
			}
			c.stages = append(c.stages, part)
			c.total += n
		}
		c.length += s.For.D()
	}
	return c
}

// at is when n messages have been due, since the beginning of warm-up: never, where the profile sends nothing at all.
func (c *rateCurve) at(n float64) time.Duration {
	if c.warmupEnds != nil {
		return c.atUnknownWarmup(n)
	}
	switch {
	case c.length == 0, n < c.before:
		return time.Duration(n * 1e9 / c.rate)
	case len(c.stages) == 0:
		return math.MaxInt64
	}
	n -= c.before
	in := math.FMA(-c.round, c.total, n) // rounded once, however long the curve
	if in >= c.total {
		passed := math.Floor(in / c.total)
		c.round += passed
		c.stage = 0
		if in = math.FMA(-c.round, c.total, n); in < 0 { // the division was rounded up
			in = 0
		}
	}
	for c.stage+1 < len(c.stages) && in >= c.stages[c.stage+1].before {
		c.stage++
	}
	s := &c.stages[c.stage]
	return max(c.last, c.warmup+time.Duration(c.round)*c.length+s.begin+s.after(in-s.before))
}

// atUnknownWarmup is at while it may not be known yet when warm-up ends. The message that a publisher waits for when it
// becomes known stays due when it was, as if it were not; what would have been due before it then follows at once.
func (c *rateCurve) atUnknownWarmup(n float64) time.Duration {
	warmup, known := c.warmupEnds()
	if !known {
		c.last = time.Duration(n * 1e9 / c.rate)
		return c.last
	}
	c.warmupEnds, c.warmup, c.before = nil, warmup, c.rate*warmup.Seconds()
	return c.at(n)
}

// deferStages has the stages of a schedule begin when warm-up ends, in place of the warm-up that it was made with.
func deferStages(s Schedule, warmupEnds func() (time.Duration, bool)) {
	var c *rateCurve
	switch s := s.(type) {
	case *uniform:
		c = s.curve
	case *poisson:
		c = s.curve
	}
	if c != nil && c.length > 0 {
		c.warmupEnds = warmupEnds
	}
}

// after is how long after the stage's beginning n messages of it have been due: the root of rate·t + slope·t²/2 = n, in
// the form that loses no digits.
func (s *stage) after(n float64) time.Duration {
	if s.slope == 0 {
		return time.Duration(n * 1e9 / s.rate)
	}
	if n <= 0 {
		return 0
	}
	root := math.Sqrt(max(0, math.FMA(2*s.slope, n, s.rate*s.rate)))
	return time.Duration(2e9 * n / (s.rate + root))
}
