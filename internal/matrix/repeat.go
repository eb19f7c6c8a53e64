package matrix

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"

	"lockstep/internal/plan"
	"lockstep/internal/sampling"
)

var untilPath = cue.ParsePath("repeat.until")

// repeat returns the number of repetitions, or their maximum and the stop rule.
func (r *runReader) repeat() (n int, until *plan.StopRule) {
	given := r.doc.root.LookupPath(cue.ParsePath("repeat"))
	if n, err := given.Int64(); err == nil {
		return int(n), nil
	}
	text, err := given.LookupPath(cue.ParsePath("until")).String()
	if err != nil { // errors were reported, or until is missing
		return 1, nil
	}
	u, err := plan.ParseStopRule(text)
	if err != nil {
		r.doc.add(place(r.doc.root.LookupPath(untilPath)), "repeat.until", err.Error())
	}
	most, missing := given.LookupPath(cue.ParsePath("max")).Int64()
	if missing != nil {
		return 1, nil
	}
	if least := sampling.Least(u); err == nil && int(most) < least {
		at := given.LookupPath(cue.ParsePath("max"))
		r.doc.add(place(at), "repeat.max",
			fmt.Sprintf("%d can never end early: an interval at %g %% takes %d repetitions; give at least %d (%d is a good one), or a lower confidence: %q",
				most, 100*u.Confidence, least, least, 2*least, "ci < 5% at 80%"))
	}
	if err != nil {
		return int(most), nil
	}
	return int(most), &u
}

// unrepeatable returns an error if the stop rule refers to a value that a cell never has.
func (m *Matrix) unrepeatable(w plan.Workload) Errors {
	u := m.base.Until
	if u == nil {
		return nil
	}
	name := u.Of(w)
	why := absent(name, w)
	if why == "" {
		return nil
	}
	return Errors{errorAt(m.untilAt, "repeat.until",
		fmt.Sprintf("%s never has a number here: %s; name a value that every cell has, as publish.rate", name, why))}
}

// absent returns why a cell with this workload never has a number for a value, which may be that of a group. It returns
// "" if the cell can have one.
func absent(name string, w plan.Workload) (why string) {
	group, plain := plan.SplitGroup(name)
	if group == "" {
		var have []string // groups that can have a number
		for i, part := range w.Parts() {
			reason := part.Absent(plain)
			if why = cmp.Or(why, reason); reason == "" && len(w.Groups) == 0 {
				return ""
			} else if reason == "" {
				have = append(have, w.Groups[i].Name)
			}
		}
		v, _ := plan.ValueNamed(plain)
		if len(have) > 1 && !v.Traits.Has(plan.Sums) && !v.Traits.Has(plan.Greatest) &&
			!strings.HasPrefix(plain, "broker.") {
			return fmt.Sprintf("each group has its own; name one: %q", have[0]+"/"+plain)
		}
		if len(have) > 0 {
			return ""
		}
		return why
	}
	i := slices.IndexFunc(w.Groups, func(g plan.Group) bool { return g.Name == group })
	if i < 0 {
		return fmt.Sprintf("there is no group %q in the cell", group)
	}
	return w.Parts()[i].Absent(plain)
}
