package engine

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"

	"lockstep/internal/plan"
)

// Schedule says when the messages of one publisher are due: arithmetic, no clock, so that agents
// compute their own shares and a test can check every one.
type Schedule interface {
	// Next is the due time of the next message, since the beginning of warm-up. Never earlier than the one before.
	Next() time.Duration
}

// newSchedule is the schedule of publisher i of k that share a cell's load; nil where the load is closed-loop. The same task and publisher
// have the same schedule wherever it is made.
func newSchedule(p plan.Publishers, warmup time.Duration, task uint64, i, k int) Schedule {
	if !p.Open() {
		return nil
	}
	c := newCourse(p, warmup)
	if p.Arrivals == plan.ArrivalsPoisson {
		return newPoisson(c, task, i, k)
	}
	return &uniform{course: c, next: uint64(i), step: uint64(k)}
}

// newUniform is the schedule of one that has a steady rate to itself.
func newUniform(rate float64) Schedule { return &uniform{course: &course{rate: rate}, step: 1} }

// uniform spaces the messages of the whole cell evenly: publisher i of k sends numbers i, i+k, i+2k, … of the cell's.
type uniform struct {
	course     *course
	next, step uint64
}

// Next counts messages and asks when so many are due, so that no error accumulates: exact to 1 ns for 50 days.
func (u *uniform) Next() time.Duration {
	due := u.course.at(float64(u.next))
	u.next += u.step
	return due
}

// poisson is one publisher's Poisson process of a k-th of the cell's rate, independent of the others': exponential gaps of mean 1, stretched
// by the cell's course (the time change of an inhomogeneous Poisson process; Çinlar, Introduction to Stochastic Processes, 1975, ch. 4.7).
type poisson struct {
	course *course
	share  float64 // k
	sum    float64 // of the gaps; after 10¹¹ messages it still tells apart hundred-thousandths of a gap
	random *rand.Rand
}

func newPoisson(c *course, task uint64, i, k int) *poisson {
	seed := [32]byte{31: 'P'} // another stream than the payload's of the same publisher
	binary.LittleEndian.PutUint64(seed[:], task)
	binary.LittleEndian.PutUint64(seed[8:], uint64(i))
	return &poisson{course: c, share: float64(k), random: rand.New(rand.NewChaCha8(seed))}
}

func (p *poisson) Next() time.Duration {
	p.sum += p.random.ExpFloat64()
	return p.course.at(p.sum * p.share)
}

// course tells when the cell's n-th message is due: the inverse of the integral of its rate. It is asked in the order of n, by one goroutine,
// and remembers where it is.
type course struct {
	rate   float64       // messages a second, always or until the stages begin
	warmup time.Duration // the stages begin then
	before float64       // messages of warm-up
	stages []stage       // over and over; none: the rate never changes, or is never above 0
	length time.Duration // of all stages, those that send nothing too
	total  float64       // messages of all stages

	// begins tells when warm-up ends, where that is found out while the load runs: false as long as it is not. nil: warmup is right.
	begins func() (time.Duration, bool)
	last   time.Duration // the latest that was said while it was not known: nothing is due before it any more

	round float64 // how often all stages have passed
	stage int     // the one that the last message was in
}

// stage is a part of a course in which the rate changes evenly.
type stage struct {
	begin  time.Duration // since the first stage began
	before float64       // messages of the stages before it
	rate   float64       // messages a second when it begins
	slope  float64       // messages a second, a second
}

// newCourse leaves out stages that send nothing: what would be due when one begins is due when it ends.
func newCourse(p plan.Publishers, warmup time.Duration) *course {
	if len(p.Profile) == 0 {
		return &course{rate: p.Rate}
	}
	c := &course{rate: p.Profile[0].Rate, warmup: warmup}
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
func (c *course) at(n float64) time.Duration {
	if c.begins != nil {
		return c.ask(n)
	}
	switch {
	case c.length == 0, n < c.before:
		return time.Duration(n * 1e9 / c.rate)
	case len(c.stages) == 0:
		return math.MaxInt64
	}
	n -= c.before
	in := math.FMA(-c.round, c.total, n) // rounded once, however long the course
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

// ask is at while it may not be known yet when warm-up ends. The message that a publisher waits for when it becomes known stays due when it
// was, as if it were not; what would have been due before it then follows at once.
func (c *course) ask(n float64) time.Duration {
	warmup, known := c.begins()
	if !known {
		c.last = time.Duration(n * 1e9 / c.rate)
		return c.last
	}
	c.begins, c.warmup, c.before = nil, warmup, c.rate*warmup.Seconds()
	return c.at(n)
}

// askFor has a schedule with stages ask when they begin, in place of the warm-up that it was made with.
func askFor(s Schedule, begins func() (time.Duration, bool)) {
	var c *course
	switch s := s.(type) {
	case *uniform:
		c = s.course
	case *poisson:
		c = s.course
	}
	if c != nil && c.length > 0 {
		c.begins = begins
	}
}

// after is how long after the stage's beginning n messages of it have been due: the root of rate·t + slope·t²/2 = n, in the form that
// loses no digits.
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
