package matrix

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/internal/plan"
)

// takeRules takes what is required of the values out of a filled template: it is the cell's, and no part of its workload. listed tells whether it is a list of rules.
func takeRules(tree map[string]any) (rules []string, listed bool) {
	given := tree["require"]
	delete(tree, "require")
	switch given := given.(type) {
	case string:
		return []string{given}, false
	case []any: // of strings, says the schema
		for _, one := range given {
			rules = append(rules, fmt.Sprint(one))
		}
	}
	return rules, true
}

// unfulfillable says what is wrong with rules, and with those that no outcome of this workload could meet: each at its place.
func unfulfillable(rules []string, listed bool, w plan.Workload) (all []problem) {
	for i, rule := range rules {
		wrong := unmet(rule, w)
		if slices.Contains(rules[:i], rule) {
			wrong = []string{" is in the list already"}
		}
		for k := range wrong {
			wrong[k] = fmt.Sprintf("%q%s", rule, wrong[k])
		}
		path := "require"
		if listed {
			path += fmt.Sprintf("[%d]", i)
		}
		if len(wrong) > 0 {
			all = append(all, problem{path, strings.Join(wrong, "; ")})
		}
	}
	return all
}

// unmet says why no outcome of this workload could meet a rule.
func unmet(rule string, w plan.Workload) (wrong []string) {
	if r, is, err := plan.ParseRegression(rule); is {
		if err != nil {
			return []string{": " + err.Error()}
		}
		for _, name := range r.Values {
			if why := absent(name, w); why != "" {
				wrong = append(wrong, fmt.Sprintf(": %s never has a number here: %s", name, why))
			}
		}
		return wrong
	}
	for _, part := range w.Parts() {
		if why := unmeasured(rule, part); why != "" {
			return []string{": " + why} // the other groups would say the same, or nothing
		}
	}
	return nil
}
