package matrix

import (
	"fmt"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
)

// takeRules removes the rules from a filled template, because they belong to the cell and not to its workload. listed
// is true if they are a list.
func takeRules(tree map[string]any) (rules []plan.Rule, listed bool) {
	given := tree["require"]
	delete(tree, "require")
	all, listed := given.([]any)
	if !listed && given != nil {
		all = []any{given}
	}
	for _, one := range all { // a string or #Rule, according to the schema
		r := plan.Rule{Text: fmt.Sprint(one)}
		if fields, is := one.(map[string]any); is {
			r.Text = fmt.Sprint(fields["rule"])
			if fields["inconclusive"] == "pass" {
				r.Inconclusive = "pass"
			}
		}
		rules = append(rules, r)
	}
	return rules, listed
}

// validateRules returns errors for invalid rules, and for rules that no outcome of this workload can meet.
func validateRules(rules []plan.Rule, listed bool, w plan.Workload, metrics plan.Metrics) (all []problem) {
	for i, rule := range rules {
		wrong := unmet(rule.Text, w, metrics)
		if slices.ContainsFunc(rules[:i], func(r plan.Rule) bool { return r.Text == rule.Text }) {
			wrong = []string{" is duplicated; remove one"}
		}
		for k := range wrong {
			wrong[k] = fmt.Sprintf("%q%s", rule.Text, wrong[k])
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

// unmet returns why no outcome of this workload can meet a rule.
func unmet(rule string, w plan.Workload, metrics plan.Metrics) (wrong []string) {
	if r, is, err := rules.ParseRegression(rule, metrics); is {
		if err != nil {
			return []string{": " + err.Error()}
		}
		for _, name := range r.Values {
			if why := absent(name, w); why != "" {
				wrong = append(wrong, fmt.Sprintf(": %s never has a number in this cell: %s", name, why))
			}
		}
		return wrong
	}
	for _, part := range w.Parts() {
		if why := unmeasured(rule, part, metrics); why != "" {
			return []string{": " + why} // other groups have the same error, or none
		}
	}
	return nil
}
