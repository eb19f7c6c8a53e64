package matrix

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/internal/plan"
)

// takeRules takes what is required of the values out of a filled template: it is the cell's, and no part of its workload.
func takeRules(tree map[string]any) (rules []string) {
	given := tree["require"]
	delete(tree, "require")
	switch given := given.(type) {
	case string:
		rules = []string{given}
	case []any: // of strings, says the schema
		for _, one := range given {
			rules = append(rules, fmt.Sprint(one))
		}
	}
	return rules
}

// unfulfillable says what is wrong with rules, and with those that no outcome of this workload could meet: all of it at one place.
func unfulfillable(rules []string, w plan.Workload) []problem {
	var wrong []string
	for i, rule := range rules {
		if slices.Contains(rules[:i], rule) {
			wrong = append(wrong, fmt.Sprintf("%q is in the list already", rule))
			continue
		}
		if r, is, err := plan.ParseRegression(rule); is {
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("%q: %s", rule, err))
			}
			for _, name := range r.Values {
				if why := absent(name, w); why != "" && err == nil {
					wrong = append(wrong, fmt.Sprintf("%q: %s never has a number here: %s", rule, name, why))
				}
			}
			continue
		}
		for _, part := range w.Parts() {
			if why := unmeasured(rule, part); why != "" {
				wrong = append(wrong, fmt.Sprintf("%q: %s", rule, why))
				break // the other groups would say the same, or nothing
			}
		}
	}
	if wrong == nil {
		return nil
	}
	return []problem{{"require", strings.Join(wrong, "; ")}}
}
