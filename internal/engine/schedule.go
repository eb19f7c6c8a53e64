package engine

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// schedule is the sequence of intended send times of one publisher's messages. It is pure arithmetic without a clock.
// Agents therefore compute their own shares, and tests can check each time.
//
// Even schedules space the messages of the whole cell evenly. Publisher i of k sends the cell's messages i, i+k, …
//
// Random schedules are the Poisson process of one publisher, at 1/k of the cell's rate, independent of the other
// publishers. Exponential gaps with mean 1 are mapped to times by the cell's rate curve. This is the time change of an
// inhomogeneous Poisson process (Çinlar, Introduction to Stochastic Processes, 1975, ch. 4.7).
type schedule struct {
	curve      *rateCurve
	next, step uint64     // step is k
	random     *rand.Rand // nil: even
	sum        float64    // of the random gaps; after 10¹¹ messages its resolution is still 10⁻⁵ of a gap
}

// newSchedule returns the schedule of publisher i of the k publishers that share a cell's load. It returns nil in
// closed loop. The result depends only on its arguments, so every agent computes the same schedule.
func newSchedule(p plan.Publishers, warmup time.Duration, task uint64, i, k int) *schedule {
	if !p.Open() {
		return nil
	}
	s := &schedule{curve: newRateCurve(p, warmup), next: uint64(i), step: uint64(k)}
	if p.Arrivals == plan.ArrivalsPoisson {
		seed := [32]byte{31: 'P'} // a different random stream from the payload of the same publisher
		binary.LittleEndian.PutUint64(seed[:], task)
		binary.LittleEndian.PutUint64(seed[8:], uint64(i))
		s.random = rand.New(rand.NewChaCha8(seed))
	}
	return s
}

// Next returns the intended send time of the next message, since the beginning of warm-up. Times never decrease. An
// even schedule computes each time from the message number, so that errors do not accumulate. It is exact to 1 ns for
// 50 days.
func (s *schedule) Next() time.Duration {
	if s.random != nil {
		s.sum += s.random.ExpFloat64()
		return s.curve.at(s.sum * float64(s.step))
	}
	due := s.curve.at(float64(s.next))
	s.next += s.step
	return due
}

// deferStages makes the stages of the rate curve begin when warm-up ends, instead of after the warm-up that the
// schedule was made with.
func (s *schedule) deferStages(warmupEnds func() (time.Duration, bool)) {
	if s != nil && s.curve.length > 0 {
		s.curve.warmupEnds = warmupEnds
	}
}

// rateCurve computes when the cell's n-th message is due: the inverse of the integral of its rate. Calls must have
// ascending n and come from one goroutine, because it keeps its position.
type rateCurve struct {
	rate   float64       // messages per second, always or until the stages begin
	warmup time.Duration // the stages begin at its end
	before float64       // messages due in warm-up
	stages []stage       // repeated in a loop; empty: the rate is constant, or all stages send nothing
	length time.Duration // of all stages, including those that send nothing
	total  float64       // messages in all stages

	// warmupEnds returns when warm-up ends, and false while that is not known. nil: the end is warmup.
	warmupEnds func() (time.Duration, bool)
	last       time.Duration // latest result while the end was not known; later results are not earlier

	round float64 // number of completed loops over the stages
	stage int     // index of the stage of the last message
}

// stage is a part of a rate curve in which the rate changes linearly.
type stage struct {
	begin  time.Duration // since the beginning of the first stage
	before float64       // messages in all earlier stages
	rate   float64       // messages per second at its beginning
	slope  float64       // change of the rate, messages per second per second
}

// newRateCurve builds the rate curve of a cell. Stages that send nothing are left out: a message that would be due at
// the beginning of one is due at its end.
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

// at returns when the first n messages are due, since the beginning of warm-up. It returns MaxInt64 if the profile
// sends nothing after warm-up. Results that were returned before the end of warm-up became known stay valid. Messages
// that would have been due before the last of them are then due at the same time.
func (c *rateCurve) at(n float64) time.Duration {
	if c.warmupEnds != nil {
		warmup, known := c.warmupEnds()
		if !known {
			c.last = time.Duration(n * 1e9 / c.rate)
			return c.last
		}
		c.warmupEnds, c.warmup, c.before = nil, warmup, c.rate*warmup.Seconds()
	}
	switch {
	case c.length == 0, n < c.before:
		return time.Duration(n * 1e9 / c.rate)
	case len(c.stages) == 0:
		return math.MaxInt64
	}
	n -= c.before
	in := math.FMA(-c.round, c.total, n) // FMA rounds once, so precision does not depend on the length
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

// after returns how long after the beginning of the stage n of its messages are due. It is the root of rate·t +
// slope·t²/2 = n, in the numerically stable form.
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
