package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockstep/internal/plan"
)

// Ruling is what became of one rule of one cell (plan.Cell.Require).
type Ruling struct {
	Cell string // for people
	ID   string // the cell's
	Rule string
	Why  string // it is not met, or there is nothing to judge by; empty: it is met
}

func (r Ruling) String() string {
	if r.Why == "" {
		return fmt.Sprintf("pass: %s: %s", r.Cell, r.Rule)
	}
	return fmt.Sprintf("FAIL: %s: %s: %s", r.Cell, r.Rule, r.Why)
}

// Rulings judges every rule of a run, in the order of the matrix. Rates, latencies and what else is no count are their medians over the valid
// repetitions, as in tables; counts and flags are those of each: one loss in three repetitions is a loss. A rule without data is not met.
// One about a baseline looks at the repetitions themselves, by the tests of package compare.
func Rulings(run plan.Run, outcomes []plan.Outcome) []Ruling {
	var all []Ruling
	cells := newBuilder(run, outcomes).cells
	regressions := map[string]map[string]string{} // by rule, by cell
	for _, c := range cells {
		for _, text := range c.cell.Require {
			r := Ruling{Cell: c.name(), ID: c.cell.ID, Rule: text}
			switch rule, is, err := plan.ParseRegression(text); {
			case err != nil:
				r.Why = err.Error() // of a record that was made elsewhere
			case is:
				if regressions[text] == nil {
					regressions[text] = regressed(run, text, rule, cells)
				}
				r.Why = regressions[text][c.cell.ID]
			default:
				r.Why = c.breaks(text)
			}
			all = append(all, r)
		}
	}
	return all
}

// Broken counts the rules that are not met.
func Broken(all []Ruling) (n int) {
	for _, r := range all {
		if r.Why != "" {
			n++
		}
	}
	return n
}

// lacks says why there is nothing to judge a cell by.
func (c *cell) lacks() string {
	switch {
	case len(c.outcomes) == 0:
		return "no data: not run"
	case len(c.with(plan.Valid)) == 0:
		return "no data: " + reasons(c.outcomes)
	}
	return ""
}

// breaks says why the cell does not meet a rule.
func (c *cell) breaks(rule string) string {
	if why := c.lacks(); why != "" {
		return why
	}
	valid, w := c.with(plan.Valid), c.cell.Workload
	if len(w.Groups) == 0 {
		return breaks(rule, w, valid, func(o plan.Outcome) map[string]plan.Value { return o.Values })
	}
	var whys []string
	for i, part := range w.Parts() {
		group := w.Groups[i].Name
		if why := breaks(rule, part, valid, func(o plan.Outcome) map[string]plan.Value { return ofGroup(o, group) }); why != "" {
			whys = append(whys, group+": "+why)
		}
	}
	return strings.Join(whys, "; ")
}

func ofGroup(o plan.Outcome, name string) map[string]plan.Value {
	for _, g := range o.Groups {
		if g.Name == name {
			return g.Values
		}
	}
	return nil
}

// breaks judges one workload by the values of its valid repetitions.
func breaks(rule string, w plan.Workload, valid []plan.Outcome, values func(plan.Outcome) map[string]plan.Value) string {
	condition, err := plan.ParseCondition(rule, w)
	if err != nil {
		return err.Error() // of a record that was made elsewhere
	}
	middles := medians(valid, values)
	var whys []string
	for _, o := range valid {
		own := maps.Clone(values(o))
		for name, middle := range middles {
			if _, less := own[name].LessThan(); less || own[name].NA == "" { // else this repetition has no data
				middle.Flags = own[name].Flags
				own[name] = middle
			}
		}
		for _, why := range condition.Fails(own) {
			if !slices.Contains(whys, why) {
				whys = append(whys, why)
			}
		}
	}
	return strings.Join(whys, "; ")
}

// medians are the middles of all values that are no counts, over the repetitions that have a number or are known to be less than one. A middle is a lower
// bound where that of a repetition may be above it.
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
