package report

import (
	"maps"
	"slices"
	"strings"

	"lockstep/internal/plan"
)

// Result is the result of a rule.
type Result string

// The results. A result is inconclusive if the data cannot decide the rule.
const (
	Met          Result = "met"
	Violated     Result = "violated"
	Inconclusive Result = "inconclusive"
)

// Ruling is the result of one rule of one cell (plan.Cell.Require).
type Ruling struct {
	Cell     string // the name of the cell for people
	ID       string // the id of the cell
	Rule     string
	Result   Result
	Why      string // the reason; for a rule about a baseline that is met, its smallest detectable effects
	Accepted bool   // the rule passes if its result is inconclusive
}

// Failed reports whether the ruling makes the run fail.
func (r Ruling) Failed() bool {
	return r.Result == Violated || r.Result == Inconclusive && !r.Accepted
}

func (r Ruling) String() string {
	text := string(r.Result)
	if r.Result == Inconclusive && r.Accepted {
		text += " (accepted)"
	}
	text += ": " + r.Cell + ": " + r.Rule
	if r.Why != "" {
		text += ": " + r.Why
	}
	return text
}

// Rulings judges all rules of a run, in the order of the matrix. Rates and latencies are the medians over the valid
// repetitions, as in tables. Counts and flags are those of each repetition: one loss in three repetitions is a loss. A
// rule without data is inconclusive. All rules with the same text about a baseline are judged together (regressed).
func Rulings(run plan.Run, outcomes []plan.Outcome) []Ruling {
	var all []Ruling
	cells := newBuilder(run, outcomes).cells
	regressions := map[string]map[string]Ruling{} // by rule, by cell
	for _, c := range cells {
		for _, required := range c.cell.Require {
			var r Ruling
			switch rule, is, err := plan.ParseRegression(required.Text); {
			case err != nil:
				r = Ruling{Result: Inconclusive, Why: err.Error()} // in a record of another version
			case is:
				if regressions[required.Text] == nil {
					regressions[required.Text] = regressed(run, required.Text, rule, cells)
				}
				r = regressions[required.Text][c.cell.ID]
			default:
				r = c.judge(required.Text)
			}
			r.Cell, r.ID, r.Rule, r.Accepted = c.name(), c.cell.ID, required.Text, required.Inconclusive == "pass"
			all = append(all, r)
		}
	}
	return all
}

// Failed counts the rulings that make a run fail, by result.
func Failed(all []Ruling) map[Result]int {
	n := map[Result]int{}
	for _, r := range all {
		if r.Failed() {
			n[r.Result]++
		}
	}
	return n
}

// noDataReason returns the reason why a cell has no data for rules; empty: it has data.
func (c *cell) noDataReason() string {
	switch {
	case len(c.outcomes) == 0:
		return "not run"
	case len(c.with(plan.Valid)) == 0:
		return reasons(c.outcomes)
	}
	return ""
}

// judge judges a condition in a cell, or in each of its groups.
func (c *cell) judge(rule string) Ruling {
	if why := c.noDataReason(); why != "" {
		return Ruling{Result: Inconclusive, Why: "no data: " + why}
	}
	valid, w := c.with(plan.Valid), c.cell.Workload
	if len(w.Groups) == 0 {
		return ruling(failures(rule, w, valid, func(o plan.Outcome) map[string]plan.Value { return o.Values }))
	}
	var all []plan.Failure
	for i, part := range w.Parts() {
		group := w.Groups[i].Name
		for _, f := range failures(rule, part, valid,
			func(o plan.Outcome) map[string]plan.Value { return ofGroup(o, group) }) {
			f.Why = group + ": " + f.Why
			all = append(all, f)
		}
	}
	return ruling(all)
}

// ruling combines failures. Any certain failure makes the result violated, with the certain failures as the reason.
func ruling(all []plan.Failure) Ruling {
	r := Ruling{Result: Met}
	var certain, whys []string
	for _, f := range all {
		whys = append(whys, f.Why)
		if !f.Unknown {
			certain = append(certain, f.Why)
		}
	}
	switch {
	case certain != nil:
		r = Ruling{Result: Violated, Why: strings.Join(certain, "; ")}
	case whys != nil:
		r = Ruling{Result: Inconclusive, Why: strings.Join(whys, "; ")}
	}
	return r
}

func ofGroup(o plan.Outcome, name string) map[string]plan.Value {
	for _, g := range o.Groups {
		if g.Name == name {
			return g.Values
		}
	}
	return nil
}

// failures judges one workload by the values of its valid repetitions. The failures are distinct.
func failures(rule string, w plan.Workload, valid []plan.Outcome,
	values func(plan.Outcome) map[string]plan.Value) []plan.Failure {
	condition, err := plan.ParseCondition(rule, w)
	if err != nil {
		return []plan.Failure{{Why: err.Error(), Unknown: true}} // in a record of another version
	}
	middles := medians(valid, values)
	var all []plan.Failure
	for _, o := range valid {
		own := maps.Clone(values(o))
		for name, middle := range middles {
			if _, less := own[name].LessThan(); less || own[name].NA == "" { // else this repetition has no data
				middle.Flags = own[name].Flags
				own[name] = middle
			}
		}
		for _, f := range condition.Fails(own) {
			if !slices.Contains(all, f) {
				all = append(all, f)
			}
		}
	}
	return all
}

// medians returns the medians of all values except counts, over the repetitions that have a number or an upper bound. A
// median is a lower bound if one of its values is (median).
func medians(valid []plan.Outcome, values func(plan.Outcome) map[string]plan.Value) map[string]plan.Value {
	numbers, every := map[string][]float64{}, map[string][]plan.Value{}
	for _, o := range valid {
		for name, v := range values(o) {
			every[name] = append(every[name], v)
			if v.NA == "" {
				numbers[name] = append(numbers[name], v.Number)
			}
		}
	}
	out := map[string]plan.Value{}
	for _, info := range plan.Values() {
		if info.Unit == plan.Count {
			continue
		}
		if all, less := among(numbers[info.Name], every[info.Name]); less != "" {
			out[info.Name] = plan.Value{NA: less}
		} else if len(all) > 0 {
			out[info.Name] = median(all, every[info.Name])
		}
	}
	return out
}
