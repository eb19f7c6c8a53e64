package rules

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
)

const regressionForm = `write it as "no worse than baseline by 5%" or "publish.rate, publish.p99 no worse than baseline NAME by 5% at 95%"`

var regressionPattern = regexp.MustCompile(`^\s*(?:(\S+(?:\s*,\s*[^\s,]+)*)\s+)?no\s+worse\s+than\s+baseline(?:\s+(\S+))?\s+by\s+(\S+?)\s*%(?:\s+at\s+(\S+?)\s*%)?\s*$`)

// ParseRegression parses such a rule. is is false if the text is not meant as a comparison with a baseline. The error
// names all mistakes. metrics are those of the run.
func ParseRegression(text string, metrics plan.Metrics) (r plan.Regression, is bool, err error) {
	words := strings.Fields(text)
	if !slices.Contains(words, "worse") && !slices.Contains(words, "baseline") {
		return r, false, nil
	}
	m := regressionPattern.FindStringSubmatch(text)
	if m == nil {
		return r, true, errors.New("it names no value to compare with a baseline; " + regressionForm)
	}
	r = plan.Regression{Baseline: m[2], Confidence: plan.DefaultConfidence}
	var problems []string
	for name := range strings.SplitSeq(m[1], ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		info, _ := metrics.ValueNamed(name)
		switch why := notAValue(name, metrics); {
		case why != "":
			problems = append(problems, why)
		case info.Better == plan.NeitherBetter:
			problems = append(problems,
				name+" has no better direction; use another value, or a condition such as "+name+
					" < …")
		}
		r.Values = append(r.Values, name)
	}
	var why string
	if r.Effect, why = percentage(m[3], 0); why != "" {
		problems = append(problems, why+"; give the maximum regression, for example 5%")
	}
	if m[4] != "" {
		if r.Confidence, why = percentage(m[4], 50); why != "" {
			problems = append(problems, why+"; give a confidence, for example 95%")
		}
	}
	if problems != nil {
		return r, true, errors.New(strings.Join(problems, "; "))
	}
	return r, true, nil
}

// Regressions returns the comparisons in a run's rules, each text once, by the name of their baseline.
func Regressions(r plan.Run) map[string][]plan.Regression {
	all := map[string][]plan.Regression{}
	seen := map[string]bool{}
	for _, c := range r.Cells {
		for _, required := range c.Require {
			if seen[required.Text] {
				continue
			}
			seen[required.Text] = true
			if rule, is, err := ParseRegression(required.Text, r.Metrics); is && err == nil {
				name := r.BaselineOf(rule)
				all[name] = append(all[name], rule)
			}
		}
	}
	return all
}
