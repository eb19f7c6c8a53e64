package results

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"lockstep/internal/plan"
)

// reached is how much of the rate asked for may be missing, as a part of the width that a search is to come to: a rate that was not there
// cannot be told from one within its width.
const reached = 0.5

// Answer tells what came of a step of a search, and why the rate does not hold if it does not: the load was not really sent, a promise
// was broken, or the condition fails. Where the generator was at its limit, none of these is the broker's doing, and it is no failure.
func Answer(s plan.Search, step plan.Task, o plan.Outcome) (plan.Answer, string) {
	condition, err := plan.ParseCondition(s.While, step.Cell.Workload)
	switch {
	case err != nil:
		return plan.AnswerUnknown, err.Error()
	case o.Verdict == plan.Unknown:
		return plan.AnswerUnknown, strings.Join(o.Reasons, "; ")
	}
	var whys []string
	if short := shortOf(s, step.Cell.Workload, o); short != "" {
		whys = append(whys, short)
	}
	if o.Verdict == plan.Invalid {
		whys = append(whys, o.Reasons...)
	}
	if holds, why := condition.Holds(o.Values); !holds {
		whys = append(whys, why)
	}
	if len(whys) == 0 {
		return plan.AnswerHeld, ""
	}
	if bound := boundBy(o); bound != "" {
		return plan.AnswerClientBound, bound + "; " + strings.Join(whys, "; ")
	}
	return plan.AnswerFailed, strings.Join(whys, "; ")
}

// shortOf says how far the rate sent was below the rate asked for, where that is more than the search can overlook. Random arrivals vary.
func shortOf(s plan.Search, w plan.Workload, o plan.Outcome) string {
	due := w.Publishers.Due(w.Measure.D())
	sent := o.Values["send.rate"]
	slack := max(1, reached*min(s.Within, tolerance)*due)
	if w.Publishers.Arrivals == plan.ArrivalsPoisson {
		slack += manySigma * math.Sqrt(due)
	}
	switch {
	case sent.NA != "":
		return "send.rate has no number: " + sent.NA
	case due-sent.Number*w.Measure.D().Seconds() <= slack:
		return ""
	}
	return fmt.Sprintf("sent %s/s of it", grouped(sent.Number))
}

// boundBy is what held the generator back; empty if nothing did.
func boundBy(o plan.Outcome) string {
	for _, w := range o.Warnings {
		if strings.HasPrefix(w, clientBoundWarning) {
			return w
		}
	}
	return ""
}

// StepValues are what is kept of the values of a step: rates, quantiles of latencies, and what the condition compares.
func StepValues(s plan.Search, step plan.Task, o plan.Outcome) map[string]plan.Value {
	names := []string{"send.rate", "confirm.rate", "receive.rate", "lost"}
	for _, l := range []string{"send.due", "processing"} {
		for _, q := range plan.Quantiles() {
			names = append(names, l+"."+q.Name)
		}
	}
	if condition, err := plan.ParseCondition(s.While, step.Cell.Workload); err == nil {
		names = append(names, condition.Names()...)
	}
	values := map[string]plan.Value{}
	for _, name := range names {
		if v, has := o.Values[name]; has {
			values[name] = v
		}
	}
	return values
}

// Searched is the outcome of a search: that of its last step, with what the whole of it found. A search whose answer is not sure has no usable
// number, and the verdict says so; that no rate holds is an answer.
func Searched(t plan.Task, o plan.Outcome, r plan.SearchResult) plan.Outcome {
	r.Low = passed(t.Cell.Workload, r)
	o.Search, o.Values, o.Reasons, o.Warnings = &r, maps.Clone(o.Values), slices.Clone(o.Reasons), slices.Clone(o.Warnings)
	if !r.Sure {
		o.Reasons = append(o.Reasons, "the search found no sure capacity: "+r.Why)
		if o.Verdict == plan.Valid {
			o.Verdict = plan.Unknown
		}
	} else if r.Why != "" {
		o.Warnings = append(o.Warnings, "search: "+r.Why)
	}
	var flags []plan.Flag
	if r.Bound {
		flags = []plan.Flag{plan.ClientBound}
	}
	set := func(name string, n float64, known bool) {
		o.Values[name] = plan.Value{Number: n, Flags: flags}
		if !known {
			o.Values[name] = plan.Value{NA: r.Why, Flags: flags}
		}
	}
	set("capacity", r.Capacity, r.Sure)
	set("capacity.low", r.Low, r.Sure)
	set("capacity.high", r.Fails, r.Sure && r.Fails > 0)
	return o
}

// passed is the lowest rate that really went through in the verifications of what was found: sent, and received by each subscription.
func passed(w plan.Workload, r plan.SearchResult) float64 {
	least := 0.0
	for _, s := range r.Steps {
		if s.Kind != plan.StepVerify || s.Rate != r.Capacity || s.Answer != plan.AnswerHeld {
			continue
		}
		rate := min(r.Capacity, s.Values["send.rate"].Number) // what was late in warm-up may come on top
		if v, has := s.Values["receive.rate"]; has && v.NA == "" {
			rate = min(rate, v.Number/float64(max(1, w.Topology.Subscriptions)))
		}
		if least == 0 || rate < least {
			least = rate
		}
	}
	return least
}
