package controller

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

func newSearch() plan.Search {
	return plan.Search{For: plan.SearchRate, From: 1000, Max: 10_000_000, Within: 0.02,
		Step: plan.Duration(time.Second), Repeats: 3, Steps: 60}
}

// responder returns the answer to a trial. n is the number of earlier trials.
type responder func(m trial, n int) plan.Answer

func answerOf(ok bool) plan.Answer {
	if ok {
		return plan.AnswerHeld
	}
	return plan.AnswerFailed
}

// runSearch runs a search. respond returns the answers to its trials.
func runSearch(t *testing.T, s plan.Search, respond responder) (plan.SearchResult, []plan.Step) {
	t.Helper()
	var steps []plan.Step
	for {
		m, more := newCapacitySearch(s, steps).next()
		if !more {
			break
		}
		if m.rate <= 0 || m.rate > s.Max || m.rate < min(s.From, 1)*lowestPart || math.IsNaN(m.rate) {
			t.Fatalf("rate of step %d: got %v, want more than 0, at most %v", len(steps)+1, m.rate, s.Max)
		}
		if len(steps) > s.Steps {
			t.Fatalf("the search has not ended after %d steps, want at most %d", len(steps), s.Steps)
		}
		steps = append(steps, plan.Step{Rate: m.rate, Kind: m.kind, Answer: respond(m, len(steps)),
			Why: "p99 is 1 s, not < 50ms"})
	}
	return newCapacitySearch(s, steps).result(), steps
}

func count(steps []plan.Step, kind plan.StepKind) (n int) {
	for _, s := range steps {
		if s.Kind == kind {
			n++
		}
	}
	return n
}

// maxSteps returns the maximum number of steps of a search for a sharp limit between the first rate and the maximum.
func maxSteps(s plan.Search, limit float64) int {
	bracket := int(math.Ceil(math.Log2(limit/s.From))) + 2
	bisect := int(math.Ceil(math.Log2(math.Ln2/math.Log1p(s.Within)))) + 1
	return bracket + bisect + 2 + s.Repeats
}

// A sharp limit at any rate is found with the required precision, in at most the steps of the formula, and verified.
func TestSearchFindsASharpLimit(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		s := newSearch()
		s.Within = []float64{0.001, 0.01, 0.02, 0.1, 1}[random.IntN(5)]
		s.From = math.Exp(random.Float64() * 10)
		limit := s.From * math.Exp(random.Float64()*6)
		r, steps := runSearch(t, s, func(m trial, _ int) plan.Answer { return answerOf(m.rate <= limit) })
		if r.Verified != 3 || r.Capacity > limit || r.Fails <= limit || r.Fails/r.Capacity-1 > s.Within*1.0001 ||
			r.Why != "" {
			t.Fatalf("limit %v from %v within %v: got %+v, want the limit in the interval, 3 verifications", limit,
				s.From, s.Within, r)
		}
		if want := maxSteps(s, limit); len(steps) > want {
			t.Fatalf("limit %v from %v within %v: got %d steps, want at most %d", limit, s.From, s.Within, len(steps),
				want)
		}
		if n := count(steps, plan.StepVerify); n != 3 {
			t.Fatalf("got %d verifications, want 3", n)
		}
	}
}

func TestSearchAtTheEdges(t *testing.T) {
	for _, x := range []struct {
		name           string
		limit          float64
		change         func(*plan.Search)
		capacity, more float64 // capacity range
		verified       int
		why            string
	}{
		{"below the first rate", 300, nil, 294, 300, 3, ""},
		{"far below the first rate", 1.5, nil, 1.4, 1.5, 3, ""},
		{"never holds", 0, nil, 0, 0, 0, "no rate is sustained, down to 1/s: p99 is 1 s"},
		{"above the maximum", 1e12, nil, 1e7, 1e7, 3, "10,000,000/s is sustained, the maximum rate of the search"},
		{"maximum below the first rate", 1e12, func(s *plan.Search) { s.Max = 500 }, 500, 500, 3,
			"the maximum rate of the search"},
		{"few steps", 50_000, func(s *plan.Search) { s.Steps = 10 }, 32_000, 32_000, 3,
			"was reached before the required precision"},
		{"too few steps", 1, func(s *plan.Search) { s.Steps = 6 }, 0, 0, 0,
			"no sustained rate found within the limit of 6 steps"},
		{"no step left to check the lowest rate", 0, func(s *plan.Search) { s.Steps = 11 }, 0, 0, 0,
			"the limit of 11 steps was reached before the failure at 1/s was verified"},
		{"first rate below one", 3, func(s *plan.Search) { s.From = 0.1 }, 2.9, 3, 3, ""},
	} {
		s := newSearch()
		if x.change != nil {
			x.change(&s)
		}
		r, steps := runSearch(t, s, func(m trial, _ int) plan.Answer { return answerOf(m.rate <= x.limit) })
		if none := strings.HasPrefix(r.Why, "no rate is sustained"); r.Sure != (none || r.Verified > 0) {
			t.Errorf("%s: sure: got %v, want %v: %+v", x.name, r.Sure, none || r.Verified > 0, r)
		}
		if r.Capacity < x.capacity || r.Capacity > x.more || r.Verified != x.verified ||
			!strings.Contains(r.Why, x.why) || (r.Why == "") != (x.why == "") {
			t.Errorf("%s: got %+v after %d steps, want capacity %v to %v, %d verifications, %q", x.name, r, len(steps),
				x.capacity, x.more, x.verified, x.why)
		}
	}
}

// One accidental failure, at any trial, lowers the result by at most the required interval, and the interval contains
// the limit.
func TestSearchToleratesOneAccidentalFailure(t *testing.T) {
	const limit = 20_000
	sharp := func(m trial, _ int) plan.Answer { return answerOf(m.rate <= limit) }
	_, steps := runSearch(t, newSearch(), sharp)
	for accident := range steps {
		r, _ := runSearch(t, newSearch(), func(m trial, n int) plan.Answer {
			return answerOf(m.rate <= limit &&
				n != accident)
		})
		failed := 0
		if steps[accident].Kind == plan.StepVerify {
			failed = 1
		}
		if !r.Sure || r.Verified != 3 || r.Verifications != 3+failed || r.Capacity < limit/1.02 || r.Capacity > limit ||
			r.Fails <= limit {
			t.Errorf("accidental failure of step %d of %d: got %+v, want a sure result that contains %d", accident+1,
				len(steps), r, limit)
		}
	}
}

// With a noisy, gradual limit, the result is verified. It is a rate that nearly always holds, and not far below that.
func TestSearchWithAGradualLimit(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	ends := 0
	for range 500 {
		// always holds up to 18,000, half of the time at 20,000, rarely at 22,000
		r, _ := runSearch(t, newSearch(), func(m trial, _ int) plan.Answer {
			return answerOf(random.Float64() < 1/(1+math.Exp((m.rate-20_000)/300)))
		})
		if r.Verified < 3 {
			continue
		}
		ends++
		if r.Capacity < 17_000 || r.Capacity > 21_500 {
			t.Errorf("capacity: got %v, want 17,000 to 21,500", r.Capacity)
		}
	}
	if ends < 490 {
		t.Errorf("verified searches: got %d of 500, want at least 490", ends)
	}
}

// A rate that is sustained only for a short time is not the capacity: the search continues below it with long steps.
func TestSearchRetreatsFromShortLivedRates(t *testing.T) {
	for _, lasting := range []float64{19_500, 17_000, 10_000, 900, 3} {
		r, steps := runSearch(t, newSearch(), func(m trial, _ int) plan.Answer {
			return answerOf(m.rate <= lasting || m.rate <= 20_000 && !m.full)
		})
		if r.Verified != 3 || r.Capacity > lasting || r.Capacity < lasting/1.02 || len(steps) > 60 {
			t.Errorf("sustainable rate %v: got %+v after %d steps, want a capacity just below it", lasting, r,
				len(steps))
		}
	}
}

// Answers are random with any probabilities. The search ends within its maximum of steps. A sure result was held as
// often as required, with at most one failure.
func TestSearchAlwaysEnds(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	answers := []plan.Answer{plan.AnswerHeld, plan.AnswerFailed, plan.Answer(plan.SharedHost), plan.AnswerUnknown}
	for range 1500 {
		s := newSearch()
		s.Steps = 1 + random.IntN(200)
		s.Repeats = 1 + random.IntN(10)
		s.Within = math.Pow(10, -3*random.Float64())
		var weights [4]float64
		for i := range weights {
			weights[i] = random.Float64()
		}
		weights[3] *= 0.1
		r, steps := runSearch(t, s, func(trial, int) plan.Answer {
			x := random.Float64() * (weights[0] + weights[1] + weights[2] + weights[3])
			for i, w := range weights {
				if x -= w; x < 0 {
					return answers[i]
				}
			}
			return plan.AnswerHeld
		})
		if len(steps) > s.Steps {
			t.Fatalf("got %d steps, want at most %d", len(steps), s.Steps)
		}
		held, failed := 0, 0 // verifications at the end
		for i := len(steps) - 1; i >= 0 && steps[i].Kind == plan.StepVerify && steps[i].Rate == r.Capacity; i-- {
			switch steps[i].Answer {
			case plan.AnswerHeld:
				held++
			case plan.AnswerFailed:
				failed++
			}
		}
		if r.Capacity > 0 && r.Sure && (held != s.Repeats || failed > 1) || r.Verified > r.Verifications {
			t.Fatalf("got %+v although %d of the last verifications held and %d failed: %+v", r, held, failed, steps)
		}
		failures := 0
		for _, step := range steps {
			if step.Rate == r.Fails && step.Answer != plan.AnswerHeld {
				failures++
			}
		}
		if r.Fails > 0 && failures < 2 {
			t.Fatalf("failed trials at the upper end: got %d, want at least 2: %+v: %+v", failures, r, steps)
		}
		if r.Why == "" && (r.Verified < s.Repeats || r.Fails == 0) {
			t.Fatalf("got %+v, which is incomplete without a reason", r)
		}
	}
}

// A limit of the load generator is never reported as the limit of the broker.
func TestSearchReportsLimitsOfTheLoadGenerator(t *testing.T) {
	for _, flag := range []plan.Flag{plan.ClientBound, plan.SharedHost, plan.HostBusy} {
		limit := plan.Answer(flag)
		r, _ := runSearch(t, newSearch(), func(m trial, _ int) plan.Answer {
			if m.rate > 180_000 {
				return limit
			}
			return plan.AnswerHeld
		})
		if string(r.Bound) != string(limit) || r.Fails != 0 || r.Verified != 3 ||
			!strings.HasPrefix(r.Why, string(limit)) || !strings.Contains(r.Why, "capacity is at least 17") {
			t.Errorf("limit %s: got %+v, want it as the bound, a capacity of about 180,000, 3 verifications", limit, r)
		}
	}
}

// A short limit of the load generator, at any step, does not change the result.
func TestSearchToleratesAShortLimitOfTheLoadGenerator(t *testing.T) {
	for moment := range 15 {
		r, _ := runSearch(t, newSearch(), func(m trial, n int) plan.Answer {
			if n == moment {
				return plan.Answer(plan.ClientBound)
			}
			return answerOf(m.rate <= 20_000)
		})
		if r.Verified != 3 || r.Bound != "" || r.Capacity < 20_000/1.02 || r.Capacity > 20_000 {
			t.Errorf("client-bound at step %d: got %+v, want a capacity of about 20,000 without a bound", moment+1, r)
		}
	}
}

// A step without usable numbers is repeated once. A second one ends the search.
func TestSearchRepeatsAStepWithoutAnswer(t *testing.T) {
	limit := func(m trial) plan.Answer { return answerOf(m.rate <= 5000) }
	r, steps := runSearch(t, newSearch(), func(m trial, n int) plan.Answer {
		if n == 4 {
			return plan.AnswerUnknown
		}
		return limit(m)
	})
	if r.Verified != 3 || steps[5].Rate != steps[4].Rate || steps[5].Kind != steps[4].Kind {
		t.Errorf("one step without numbers: got %+v, %+v, want the step repeated, 3 verifications", r, steps)
	}
	r, steps = runSearch(t, newSearch(), func(m trial, n int) plan.Answer {
		if n >= 4 {
			return plan.AnswerUnknown
		}
		return limit(m)
	})
	if len(steps) != 6 || r.Verified != 0 || !strings.Contains(r.Why, "returned no usable numbers, twice") {
		t.Errorf("two steps without numbers: got %d steps, %+v, want 6, no verification, and the reason", len(steps), r)
	}
}

// Trials below a sharp limit fail accidentally with a given probability. The result is sure, and its interval contains
// the limit, in at least 90 % of the searches.
func TestSearchIntervalContainsTheLimitDespiteAccidents(t *testing.T) {
	for _, p := range []float64{0, 0.02, 0.05, 0.1} {
		random := rand.New(rand.NewPCG(1, uint64(1000*p)))
		const searches = 2000
		contained, sure, trials, logError := 0, 0, 0, 0.0
		for range searches {
			limit := 15_000 + random.Float64()*10_000
			r, steps := runSearch(t, newSearch(), func(m trial,
				_ int) plan.Answer {
				return answerOf(m.rate <= limit && random.Float64() >= p)
			})
			trials += len(steps)
			if r.Capacity > 0 {
				logError += math.Log(r.Capacity / limit)
			}
			if r.Sure {
				sure++
			}
			if r.Sure && r.Capacity <= limit && (r.Fails == 0 || r.Fails > limit) {
				contained++
			}
		}
		t.Logf("accidental failures in %.0f %% of trials: %.1f %% sure, %.1f %% contain the limit, "+
			"mean error of the capacity %+.1f %%, %.1f trials", 100*p,
			100*float64(sure)/searches, 100*float64(contained)/searches, 100*(math.Exp(logError/searches)-1),
			float64(trials)/searches)
		if contained < searches*9/10 {
			t.Errorf("accidental failures in %.0f %% of trials: limit in %d of %d intervals, want at least 90 %%", 100*p,
				contained, searches)
		}
	}
}
