package judge

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
)

// reached limits how much of the intended rate may be missing, as a fraction of the search's final width. A larger
// shortfall would exceed the resolution of the search.
const reached = 0.5

// manySigma is the number of standard deviations by which a Poisson process must fall short of its mean to be
// significant. By chance this happens once in 30,000 steps.
const manySigma = 4

// Answer returns the result of a step of a search, and the reasons if the rate does not hold. A rate does not hold if
// the load was not fully sent, a guarantee was broken, or the condition is not known to hold. A broken guarantee always
// is a failure of the broker. Any other failure of a cell with limitations gets the flag of the first limitation as
// answer.
func Answer(s plan.Search, step plan.Task, o plan.Outcome) (plan.Answer, string) {
	condition, err := rules.ParseCondition(s.While, step.Cell.Workload, step.Metrics)
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
	if n := o.Values["unsent"].Number; n > 0 && step.Cell.Workload.Publishers.Lifetime == (plan.Lifetime{}) {
		whys = append(whys, fmt.Sprintf("backlog: %s due and not sent", messages(uint64(n))))
	}
	if o.Verdict == plan.Invalid {
		whys = append(whys, o.Reasons...)
	}
	if holds, why := condition.Holds(ofSamples(o.Values)); !holds {
		whys = append(whys, why)
	}
	why := strings.Join(whys, "; ")
	switch {
	case len(whys) == 0:
		return plan.AnswerHeld, ""
	case o.Verdict == plan.Invalid:
		return plan.AnswerFailed, why
	case len(o.Limitations) > 0:
		return plan.Answer(o.Limitations[0].Flag), o.Limitations[0].String() + "; " + why
	}
	return plan.AnswerFailed, why
}

// ofSamples returns the values with quantiles of the samples, even if these are few. Steps are short, and verification
// finds rates that held by chance.
func ofSamples(values map[string]plan.Value) map[string]plan.Value {
	values = maps.Clone(values)
	for name, v := range values {
		if v.Sample > 0 {
			v.Number, v.Over = v.Sample, 0
			values[name] = v
		}
	}
	return values
}

// shortOf returns by how much the publish rate was below the intended rate, if it was significant. Random arrivals
// vary. A stall at the end of the measurement leaves out messages that were due. The rate of a step is therefore known
// to 50 ms only. The verification, which is as long as the cell's measurement, finds rates that held within this slack.
func shortOf(s plan.Search, w plan.Workload, o plan.Outcome) string {
	due := w.Publishers.Due(w.Measure.D())
	sent := o.Values["publish.rate"]
	slack := max(1, reached*min(s.Within, Tolerance)*due) + due*edge.Seconds()/w.Measure.D().Seconds()
	if w.Publishers.Arrivals == plan.ArrivalsPoisson {
		slack += manySigma * math.Sqrt(due)
	}
	switch {
	case sent.NA != "":
		return "publish.rate has no number: " + sent.NA
	case due-sent.Number*w.Measure.D().Seconds() <= slack:
		return ""
	}
	return fmt.Sprintf("actual publish rate %s/s", display.Number(sent.Number))
}

// StepValues returns the values of a step that are recorded: rates, quantiles of latencies, and the values of the
// condition.
func StepValues(s plan.Search, step plan.Task, o plan.Outcome) map[string]plan.Value {
	names := []string{"publish.rate", "confirm.rate", "consume.rate", "lost"}
	for _, l := range []string{"publish.intended", "e2e"} {
		for _, q := range plan.Quantiles() {
			names = append(names, l+"."+q.Name)
		}
	}
	if condition, err := rules.ParseCondition(s.While, step.Cell.Workload, step.Metrics); err == nil {
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

// Searched returns the outcome of a search: that of its last step, with the search result. If the result is not sure,
// there is no usable number and the verdict is unknown. "No rate holds" can be a sure result. A guarantee broken in any
// step makes the outcome invalid, because guarantees apply at every rate.
func Searched(t plan.Task, o plan.Outcome, r plan.SearchResult) plan.Outcome {
	r.Low = passed(t.Cell.Workload, r)
	o.Search, o.Values, o.Reasons, o.Warnings = &r, maps.Clone(o.Values), slices.Clone(o.Reasons),
		slices.Clone(o.Warnings)
	addBrokenGuarantees(&o, r.Steps)
	if !r.Sure {
		o.Reasons = append(o.Reasons, "the search found no verified capacity: "+r.Why)
		if o.Verdict == plan.Valid {
			o.Verdict = plan.Unknown
		}
	} else if r.Why != "" {
		o.Warnings = append(o.Warnings, "search: "+r.Why)
	}
	var flags []plan.Flag
	if r.Bound != "" {
		flags = []plan.Flag{r.Bound}
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

// addBrokenGuarantees puts the guarantees that were broken in any step first among the reasons, with their rates.
func addBrokenGuarantees(o *plan.Outcome, steps []plan.Step) {
	var all []string
	for _, s := range steps {
		for _, why := range s.Broken {
			all = append(all, "at "+display.Number(s.Rate)+"/s: "+why)
		}
	}
	if len(all) == 0 {
		return
	}
	if last := steps[len(steps)-1]; len(last.Broken) > 0 { // o has the reasons of the last step already
		o.Reasons = slices.DeleteFunc(o.Reasons, func(why string) bool { return slices.Contains(last.Broken, why) })
	}
	o.Verdict, o.Reasons = plan.Invalid, append(addNew(nil, all...), o.Reasons...)
}

// passed returns the lowest rate that was actually reached in the verifications of the result: published, and consumed
// by each subscription.
func passed(w plan.Workload, r plan.SearchResult) float64 {
	lowest := 0.0
	for _, s := range r.Steps {
		if s.Kind != plan.StepVerify || s.Rate != r.Capacity || s.Answer != plan.AnswerHeld {
			continue
		}
		rate := min(r.Capacity, s.Values["publish.rate"].Number) // messages delayed from warm-up can raise the rate
		if v, has := s.Values["consume.rate"]; has && v.NA == "" {
			rate = min(rate, v.Number/float64(max(1, w.Topology.Subscriptions)))
		}
		if lowest == 0 || rate < lowest {
			lowest = rate
		}
	}
	return lowest
}
