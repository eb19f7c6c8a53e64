package controller

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// search runs a task that searches for its capacity. Each step is an attempt of the task that is judged separately, and
// all steps lead to one outcome. Failed attempts of a step are repeated by the cell's policy, and only the attempt that
// counts is the answer. Each step is stored when it has ended, so that the next leader continues after it.
func (x *execution) search(ctx context.Context, t plan.Task, n int) error {
	s := *t.Cell.Workload.Search
	found, again := x.searches[t.ID], x.retries[t.ID]
	few := "" // why there are too few agents for a step
	for {
		m, more := newCapacitySearch(s, found.Steps).next()
		if !more {
			break
		}
		if len(found.Steps) > 0 {
			if err := wire.Wait(x.between, x.run.Settle.D()); err != nil {
				return err
			}
		}
		measure := s.Step
		if m.full {
			measure = t.Cell.Workload.Measure
		}
		number := len(found.Steps) + 1
		r, retries, err := x.measure(ctx, t.Step(m.rate, measure), n,
			fmt.Sprintf("step %d: %s (%s)", number, perSecond(m.rate), m.kind), nil)
		again = append(again, retries...)
		if err != nil {
			return err
		}
		if r.attempt == "" {
			if len(found.Steps) == 0 {
				return x.outcome(ctx, withRetries(outcomeWithout(t, "", r.failure), again))
			}
			few = r.failure
			break
		}
		step := answer(s, r, m)
		e := wire.RunEvent{Kind: wire.StepEnded, Task: t.ID, Attempt: r.attempt, N: n, Step: &step, Outcome: &r.outcome}
		if err := x.event(ctx, e); err != nil {
			return err
		}
		x.state.Blamed, x.state.Crashes = "", nil // a later crash belongs to another step
		x.nothingInFlight(ctx)
		found = found.With(step, r.outcome)
	}
	result := newCapacitySearch(s, found.Steps).result()
	result.Steps = found.Steps
	if few != "" {
		result.Sure, result.Why = false, few
	}
	found.Last.Started = found.Started
	return x.outcome(ctx, withRetries(judge.Searched(t, found.Last, result), again))
}

func answer(s plan.Search, r result, m trial) plan.Step {
	step := plan.Step{Rate: m.rate, Attempt: r.attempt, Kind: m.kind, Measure: r.task.Cell.Workload.Measure,
		Values: judge.StepValues(s, r.task, r.outcome)}
	if r.outcome.Verdict == plan.Invalid {
		step.Broken = r.outcome.Reasons
	}
	step.Answer, step.Why = judge.Answer(s, r.task, r.outcome)
	return step
}

// maxRetreats is how often verifications may fail before the search gives up.
const maxRetreats = 5

// minFailures is how often a rate must fail, without holding in between, to be the upper end of the interval.
const minFailures = 3

// lowestPart of the first rate is the lowest rate that is tried. It is at least 1/s, unless the first rate is lower.
const lowestPart = 1.0 / 1024

// capacitySearch is the state of a search. It is a pure function of the results: the same trials lead to the same next
// trial. The capacity lies between lo, the highest rate that held, and hi, the lowest rate above lo that failed.
//
//   - Bracket: double the rate while it holds; halve it while no rate holds.
//   - Bisect: try the geometric mean, as the interval must become small relative to the rate. Each trial halves the
//     logarithm of the interval.
//   - Check: repeat hi twice. The upper end rests on this single failure, and each of about 15 trials may fail by
//     accident. One check would find too few of these accidents; to check every failure would cost more. If the rate
//     holds now, the search continues above it.
//   - Verify: repeat lo with the cell's own measurement, until it has held Search.Repeats times. A single failure may
//     be an accident and is repeated. After a second failure, results of short trials no longer count. The search goes
//     down in growing steps, and all further trials have full length.
//   - A trial that failed while something besides the broker was a limit (client-bound, shared-host, host-busy) is
//     repeated. Only the second such result counts.
//
// The search ends: every trial counts, up to Search.Steps. Before they are used up, the search verifies the current lo.
type capacitySearch struct {
	search        plan.Search
	trials        int
	held          []float64
	failures      map[float64]int       // by rate, since a rate at or above it last held
	bound         map[float64]plan.Flag // by failed rate: the limit besides the broker at its last failure
	verified      int                   // how often lo has held in verification
	verifications map[float64]verifications
	full          bool // all trials have the length of verifications
	down          int  // steps down since the last rate that held, with full
	retreats      int
	unclear       int  // consecutive results without usable numbers
	doubtful      bool // the last trial failed with a limit besides the broker, for the first time
	last          trial
	why           string // reason for the failure of the lowest failed rate
}

// verifications counts all verifications of a rate, in the whole search.
type verifications struct{ held, run int }

type trial struct {
	rate float64
	kind plan.StepKind
	full bool // measured for the cell's duration instead of the step's
}

func newCapacitySearch(s plan.Search, steps []plan.Step) *capacitySearch {
	c := &capacitySearch{search: s, failures: map[float64]int{}, bound: map[float64]plan.Flag{},
		verifications: map[float64]verifications{}}
	for _, step := range steps {
		c.add(step)
	}
	return c
}

func (c *capacitySearch) add(s plan.Step) {
	c.trials++
	c.last = trial{s.Rate, s.Kind, c.full || s.Kind == plan.StepVerify}
	if s.Answer == plan.AnswerUnknown {
		c.unclear++
		return
	}
	c.unclear = 0
	if s.Answer.Limit() != "" && !c.doubtful {
		c.doubtful = true
		return
	}
	c.doubtful = false
	holds := s.Answer == plan.AnswerHeld
	if s.Kind == plan.StepVerify {
		v := c.verifications[s.Rate]
		if v.run++; holds {
			v.held++
		}
		c.verifications[s.Rate] = v
	}
	switch {
	case holds && s.Kind == plan.StepVerify:
		c.verified++
	case holds:
		c.held = append(c.held, s.Rate)
		maps.DeleteFunc(c.failures, func(f float64, _ int) bool { return f <= s.Rate }) // they were accidents
		c.verified, c.down = 0, 0
	default:
		c.fails(s)
	}
}

func (c *capacitySearch) fails(s plan.Step) {
	if hi := c.hi(); hi == 0 || s.Rate <= hi {
		c.why = s.Why
	}
	c.failures[s.Rate]++
	if c.bound[s.Rate] = s.Answer.Limit(); c.bound[s.Rate] != "" {
		c.failures[s.Rate]++ // the trial was repeated
	}
	switch {
	case s.Kind == plan.StepVerify && c.failures[s.Rate] > 1:
		c.full, c.held, c.verified, c.down = true, nil, 0, c.retreats
		c.retreats++
	case s.Kind != plan.StepVerify && s.Kind != plan.StepCheck && c.full:
		c.down++
	}
}

// lo returns the highest rate that held; 0: none.
func (c *capacitySearch) lo() float64 {
	return slices.Max(append(c.held, 0))
}

// hi returns the lowest failed rate above lo; 0: none.
func (c *capacitySearch) hi() float64 {
	lo, hi := c.lo(), 0.0
	for f := range c.failures {
		if f > lo && (hi == 0 || f < hi) {
			hi = f
		}
	}
	return hi
}

// narrow reports whether the interval is small enough, or has no rate inside that could be tried.
func (c *capacitySearch) narrow() bool {
	lo, hi := c.lo(), c.hi()
	middle := c.middle()
	return lo > 0 && hi > 0 && (hi/lo-1 <= c.search.Within || middle <= lo || middle >= hi)
}

func (c *capacitySearch) middle() float64 { return c.round(math.Sqrt(c.lo() * c.hi())) }

// round makes a rate readable. It moves it by at most a small fraction of the required precision (Within).
func (c *capacitySearch) round(rate float64) float64 {
	if rate <= 0 {
		return rate
	}
	unit := math.Pow(10, math.Floor(math.Log10(rate*c.search.Within/5)))
	if unit >= 1 {
		return math.Round(rate/unit) * unit
	}
	return math.Round(rate*math.Round(1/unit)) / math.Round(1/unit) // exact decimal fraction
}

func (c *capacitySearch) lowest() float64 {
	return min(c.search.From, max(1, c.search.From*lowestPart))
}

// next returns the next trial; false: the search has ended.
func (c *capacitySearch) next() (trial, bool) {
	lo, hi, left := c.lo(), c.hi(), c.search.Steps-c.trials
	verify := trial{lo, plan.StepVerify, true}
	switch {
	case left <= 0 || c.unclear > 1 || c.retreats > maxRetreats || lo > 0 && c.verified >= c.search.Repeats:
		return trial{}, false
	case c.unclear == 1 || c.doubtful:
		return c.last, true
	case lo > 0 && (c.verified > 0 || left <= c.search.Repeats-c.verified):
		return verify, true
	case lo == 0 && hi == 0:
		return trial{min(c.search.From, c.search.Max), plan.StepBracket, c.full}, true
	case lo == 0:
		return c.below(hi)
	case hi == 0 && lo < c.search.Max:
		return trial{min(2*lo, c.search.Max), plan.StepBracket, c.full}, true
	case hi > 0 && !c.narrow():
		return trial{c.middle(), plan.StepBisect, c.full}, true
	case hi > 0 && c.failures[hi] < minFailures:
		return trial{hi, plan.StepCheck, c.full}, true
	}
	return verify, true
}

// below returns a step down while no rate holds: to half or, after a failed verification, by a factor that grows to 2.
func (c *capacitySearch) below(hi float64) (trial, bool) {
	if hi <= c.lowest() {
		return trial{hi, plan.StepCheck, c.full}, c.failures[hi] < minFailures
	}
	rate := hi / 2
	if c.full {
		rate = c.round(hi / min(2, 1+c.search.Within*math.Pow(2, float64(c.down))))
	}
	return trial{max(rate, c.lowest()), plan.StepBracket, c.full}, true
}

func (c *capacitySearch) result() plan.SearchResult {
	lo, hi := c.lo(), c.hi()
	v := c.verifications[lo]
	r := plan.SearchResult{Capacity: lo, Verified: v.held, Verifications: v.run, Sure: lo > 0 &&
		c.verified >= c.search.Repeats, Bound: c.bound[hi]}
	for f, n := range c.failures {
		if f > lo && n > 1 && r.Bound == "" && (r.Fails == 0 || f < r.Fails) {
			r.Fails = f
		}
	}
	limited := func(what string) string {
		return fmt.Sprintf("the limit of %d steps was reached before the %s", c.search.Steps, what)
	}
	switch {
	case c.unclear > 1:
		r.Why = fmt.Sprintf("the step at %s returned no usable numbers, twice", perSecond(c.last.rate))
	case c.retreats > maxRetreats:
		r.Why = fmt.Sprintf("rates that were sustained in single steps failed verification %d times", c.retreats)
	case lo == 0 && r.Bound != "":
		r.Why = fmt.Sprintf("%s at %s: the capacity of the broker is unknown: %s", r.Bound, perSecond(hi), c.why)
	case lo == 0 && hi > c.lowest():
		r.Why = fmt.Sprintf("no sustained rate found within the limit of %d steps; the lowest rate tried is %s: %s", c.search.Steps, perSecond(hi), c.why)
	case lo == 0 && hi == 0:
		r.Why = fmt.Sprintf("none of %d steps returned usable numbers: %s", c.search.Steps, c.why)
	case lo == 0 && c.failures[hi] < 2:
		r.Why = limited("failure at " + perSecond(hi) + " was verified: " + c.why)
	case lo == 0:
		r.Sure = true
		r.Why = fmt.Sprintf("no rate is sustained, down to %s: %s", perSecond(hi), c.why)
	case c.verified < c.search.Repeats:
		r.Why = limited("verification was complete")
	case r.Bound != "":
		r.Why = fmt.Sprintf("%s at %s: capacity is at least %s", r.Bound, perSecond(hi), perSecond(lo))
	case hi == 0 && lo >= c.search.Max:
		r.Why = fmt.Sprintf("%s is sustained, the maximum rate of the search: capacity is at least that", perSecond(lo))
	case hi == 0 || !c.narrow():
		r.Why = limited("required precision")
	case c.failures[hi] < minFailures:
		r.Why = limited("failure at " + perSecond(hi) + " was verified")
	}
	return r
}

func perSecond(rate float64) string { return display.Number(rate) + "/s" }
