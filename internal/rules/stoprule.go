package rules

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
)

const untilForm = `write it as "ci < 5%", "ci(publish.p99) < 5%" or "ci(publish.p99) < 5% at 90%"`

var untilPattern = regexp.MustCompile(`^\s*ci\s*(?:\(([^()]*)\)\s*)?<\s*(\S+?)\s*%\s*(?:at\s+(\S+?)\s*%\s*)?$`)

// ParseStopRule parses "ci(VALUE) < N% at C%". The value and the confidence are optional. The error names all
// mistakes. metrics are those of the run.
func ParseStopRule(text string, metrics plan.Metrics) (plan.StopRule, error) {
	u := plan.StopRule{Rule: text, Confidence: plan.DefaultConfidence}
	m := untilPattern.FindStringSubmatch(text)
	if m == nil {
		return u, fmt.Errorf("%q is no condition for the end of repetitions; %s", text, untilForm)
	}
	var problems []string
	if strings.Contains(text, "(") {
		u.Value = strings.TrimSpace(m[1])
		if why := notAValue(u.Value, metrics); why != "" {
			problems = append(problems, why)
		}
	}
	var why string
	if u.Within, why = percentage(m[2], 0); why != "" {
		problems = append(problems, why+"; give the maximum deviation of the median, for example 5%")
	}
	if m[3] != "" {
		if u.Confidence, why = percentage(m[3], 50); why != "" {
			problems = append(problems, why+"; give a confidence, for example 95%")
		}
	}
	if problems != nil {
		return u, errors.New(strings.Join(problems, "; "))
	}
	return u, nil
}

// percentage parses a percentage strictly between above and 100, and returns it as a fraction.
func percentage(text string, above float64) (part float64, why string) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n > above && n < 100) {
		return 0, fmt.Sprintf("%s%% is not between %g%% and 100%%", text, above)
	}
	return n / 100, ""
}

// notAValue returns why a name is not that of a value with a number; empty if it is.
func notAValue(name string, metrics plan.Metrics) string {
	info, known := metrics.ValueNamed(name)
	switch {
	case known && info.Unit != plan.Text:
		return ""
	case known:
		return fmt.Sprintf("%s is no single number; take publish.rate or consume.rate", name)
	}
	names := metrics.Names()
	_, plain := plan.SplitGroup(name)
	return fmt.Sprintf("unknown value %q", name) + plan.DidYouMean(plain, names) +
		" (docs/reference/values.md lists them: " + strings.Join(slices.Compact(names[:3]), ", ") + ", …)"
}
