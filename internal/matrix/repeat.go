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
	maximum, missing := given.LookupPath(cue.ParsePath("max")).Int64()
	if missing != nil {
		return 1, nil
	}
	if minimum := sampling.MinRepetitions(u); err == nil && int(maximum) < minimum {
		at := given.LookupPath(cue.ParsePath("max"))
		r.doc.add(place(at), "repeat.max",
			fmt.Sprintf("%d repetitions can never end early: an interval at %g %% needs %d; give at least %d (recommended: %d), or a lower confidence: %q",
				maximum, 100*u.Confidence, minimum, minimum, 2*minimum, "ci < 5% at 80%"))
	}
	if err != nil {
		return int(maximum), nil
	}
	return int(maximum), &u
}

// validateRepeat returns an error if the stop rule refers to a value that a cell never has.
func (m *Matrix) validateRepeat(w plan.Workload) Errors {
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
		fmt.Sprintf("%s never has a number in this cell: %s; name a value of every cell, for example publish.rate", name, why))}
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
		if len(have) > 1 && !v.Traits.Has(plan.Sums) && !v.Traits.Has(plan.Maxima) &&
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
		return fmt.Sprintf("unknown group %q in the cell", group)
	}
	return w.Parts()[i].Absent(plain)
}
