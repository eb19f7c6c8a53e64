package controller

import (
	"fmt"
	"math"
	"slices"

	"lockstep/internal/plan"
)

// maxRetreats is how often a rate may fail in its verification before the search gives up.
const maxRetreats = 5

// lowestPart of the first rate, or 1 message a second if that is more, is the lowest rate that is tried.
const lowestPart = 1.0 / 1024

// hunt is the state of a search, made of the answers so far alone: the same steps give the same next one. It keeps what held and what
// failed; the capacity lies between the highest that held (lo) and the lowest above it that failed (hi).
//
//   - Bracket: double while it holds, halve while none does.
//   - Bisect: the geometric middle, since the interval is to become small in proportion; each step halves its logarithm wherever it lies.
//   - Check: the lowest rate that failed once more. A step that fails by accident would make the capacity too low, and nothing else would
//     notice; one that holds by accident is found out by the verification. Checking the one failure on which the answer rests costs
//     one step, where trying every failure again would cost one for each. If it holds now, it was an accident, and the search goes on above.
//   - A step that fails while the generator was at its limit says nothing, and is done again; only the second one counts.
//   - Verify: lo, for the cell's own measurement, as often as the search repeats. If it fails once, it has failed for good, and what held in
//     short steps counts no more: the search goes down, ever faster, and on with steps of full length.
//
// It ends: every step counts, and there are at most Search.Steps. Before they are used up, what was found by then is verified.
type hunt struct {
	plan.Search
	steps    int
	held     []float64
	failed   []float64
	bound    map[float64]bool // of the failed ones: the generator's fault, the last time
	sure     map[float64]bool // of the failed ones: more than once, or in a verification
	verified int              // times that lo has held in verification
	full     bool             // steps are as long as verifications
	down     int              // steps down since the last that held, with full
	retreats int
	unclear  int  // answers that were none, at the end
	doubtful bool // the last step was client-bound, for the first time
	last     move
	why      string // of the lowest rate that failed
}

// move is a step to be done.
type move struct {
	rate float64
	kind plan.StepKind
	full bool // for the cell's own measurement rather than the step's
}

// newHunt is the state after some steps.
func newHunt(s plan.Search, steps []plan.Step) *hunt {
	h := &hunt{Search: s, bound: map[float64]bool{}, sure: map[float64]bool{}}
	for _, step := range steps {
		h.take(step)
	}
	return h
}

// take learns of an answer.
func (h *hunt) take(s plan.Step) {
	h.steps++
	h.last = move{s.Rate, s.Kind, h.full || s.Kind == plan.StepVerify}
	if s.Answer == plan.AnswerUnknown {
		h.unclear++
		return
	}
	h.unclear = 0
	if s.Answer == plan.AnswerClientBound && !h.doubtful {
		h.doubtful = true
		return
	}
	h.doubtful = false
	switch holds := s.Answer == plan.AnswerHeld; {
	case holds && s.Kind == plan.StepVerify:
		h.verified++
	case holds:
		h.holds(s.Rate)
	default:
		h.fails(s)
	}
}

// holds takes in a rate that held. What failed at or below it was an accident, or a matter of other rates.
func (h *hunt) holds(rate float64) {
	h.held = append(h.held, rate)
	h.failed = slices.DeleteFunc(h.failed, func(f float64) bool { return f <= rate && !h.final(f) })
	h.verified, h.down = 0, 0
}

// final tells whether a rate failed in a verification: that stays, whatever shorter steps say.
func (h *hunt) final(rate float64) bool { return h.sure[rate] && h.full }

func (h *hunt) fails(s plan.Step) {
	if hi := h.hi(); hi == 0 || s.Rate <= hi {
		h.why = s.Why
	}
	if !slices.Contains(h.failed, s.Rate) {
		h.failed = append(h.failed, s.Rate)
	}
	h.bound[s.Rate] = s.Answer == plan.AnswerClientBound
	switch s.Kind {
	case plan.StepCheck:
		h.sure[s.Rate] = true
	case plan.StepVerify:
		h.sure[s.Rate], h.full, h.verified = true, true, 0
		h.held, h.down = nil, h.retreats
		h.retreats++
	default:
		if h.full {
			h.down++
		}
	}
}

// lo is the highest rate that held; 0: none did.
func (h *hunt) lo() float64 {
	if len(h.held) == 0 {
		return 0
	}
	return slices.Max(h.held)
}

// hi is the lowest rate that failed, of those above lo; 0: none did.
func (h *hunt) hi() float64 {
	lo, hi := h.lo(), 0.0
	for _, f := range h.failed {
		if f > lo && (hi == 0 || f < hi) {
			hi = f
		}
	}
	return hi
}

// narrow tells whether the interval is small enough, or has no rate inside that could be tried.
func (h *hunt) narrow() bool {
	lo, hi := h.lo(), h.hi()
	middle := h.middle()
	return lo > 0 && hi > 0 && (hi/lo-1 <= h.Within || middle <= lo || middle >= hi)
}

func (h *hunt) middle() float64 { return h.round(math.Sqrt(h.lo() * h.hi())) }

// round makes a rate readable without moving it by more than a fraction of what the search is to find out.
func (h *hunt) round(rate float64) float64 {
	if rate <= 0 {
		return rate
	}
	unit := math.Pow(10, math.Floor(math.Log10(rate*h.Within/5)))
	if unit >= 1 {
		return math.Round(rate/unit) * unit
	}
	return math.Round(rate*math.Round(1/unit)) / math.Round(1/unit) // a decimal fraction without binary dust
}

func (h *hunt) lowest() float64 { return min(h.From, max(1, h.From*lowestPart)) }

// next is the step to be done, or false at the end.
func (h *hunt) next() (move, bool) {
	lo, hi, left := h.lo(), h.hi(), h.Steps-h.steps
	verify := move{lo, plan.StepVerify, true}
	switch {
	case left <= 0 || h.unclear > 1 || h.retreats > maxRetreats || lo > 0 && h.verified >= h.Repeats:
		return move{}, false
	case h.unclear == 1 || h.doubtful:
		return h.last, true
	case lo > 0 && (h.verified > 0 || left <= h.Repeats-h.verified):
		return verify, true
	case lo == 0 && hi == 0:
		return move{min(h.From, h.Most), plan.StepBracket, h.full}, true
	case lo == 0:
		return h.below(hi)
	case hi == 0 && lo < h.Most:
		return move{min(2*lo, h.Most), plan.StepBracket, h.full}, true
	case hi > 0 && !h.narrow():
		return move{h.middle(), plan.StepBisect, h.full}, true
	case hi > 0 && !h.sure[hi]:
		return move{hi, plan.StepCheck, h.full}, true
	}
	return verify, true
}

// below is a step down where nothing holds yet: to the half or, after a failed verification, first by a little and then by more and more.
func (h *hunt) below(hi float64) (move, bool) {
	if hi <= h.lowest() {
		return move{}, false
	}
	rate := hi / 2
	if h.full {
		rate = h.round(hi / min(2, 1+h.Within*math.Pow(2, float64(h.down))))
	}
	return move{max(rate, h.lowest()), plan.StepBracket, h.full}, true
}

// result is what the search has found at its end.
func (h *hunt) result() plan.SearchResult {
	lo, hi := h.lo(), h.hi()
	r := plan.SearchResult{Capacity: lo, Verified: h.verified, Sure: lo > 0 && h.verified >= h.Repeats}
	if hi > 0 {
		r.Bound = h.bound[hi]
		if !r.Bound {
			r.Fails = hi
		}
	}
	switch {
	case h.unclear > 1:
		r.Why = fmt.Sprintf("the step at %s gave no usable numbers, twice", perSecond(h.last.rate))
	case h.retreats > maxRetreats:
		r.Why = fmt.Sprintf("what held in single steps failed in its verification, %d times", h.retreats)
	case lo == 0 && r.Bound:
		r.Why = fmt.Sprintf("client-bound at %s: nothing is known of the broker: %s", perSecond(hi), h.why)
	case lo == 0 && hi > h.lowest():
		r.Why = fmt.Sprintf("no rate was found to hold within the limit of %d steps; the lowest that was tried is %s: %s", h.Steps, perSecond(hi), h.why)
	case lo == 0:
		r.Sure = true
		r.Why = fmt.Sprintf("no rate holds, down to %s: %s", perSecond(hi), h.why)
	case h.verified < h.Repeats:
		r.Why = fmt.Sprintf("the limit of %d steps came before the verification was complete", h.Steps)
	case r.Bound:
		r.Why = fmt.Sprintf("client-bound at %s: capacity is at least %s", perSecond(hi), perSecond(lo))
	case hi == 0 && lo >= h.Most:
		r.Why = fmt.Sprintf("it holds at %s, the most that is tried: capacity is at least that", perSecond(lo))
	case hi == 0 || !h.narrow():
		r.Why = fmt.Sprintf("the limit of %d steps came before the interval was as small as asked", h.Steps)
	}
	return r
}

func perSecond(rate float64) string { return plan.Grouped(rate) + "/s" }
