package rules

import (
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

func TestParseRegression(t *testing.T) {
	for text, want := range map[string]plan.Regression{
		"no worse than baseline by 5%": {Effect: 0.05, Confidence: 0.95},
		"publish.rate no worse than baseline by 5% at 99%": {Values: []string{"publish.rate"},
			Effect: 0.05, Confidence: 0.99},
		" publish.rate , bulk/publish.p99 no worse than baseline r-4.0 by 2.5 %": {Values: []string{"publish.rate",
			"bulk/publish.p99"}, Baseline: "r-4.0", Effect: 0.025, Confidence: 0.95},
	} {
		got, is, err := ParseRegression(text, nil)
		if !is || err != nil || !slices.Equal(got.Values, want.Values) || got.Baseline != want.Baseline ||
			far(got.Effect, want.Effect) || far(got.Confidence, want.Confidence) {
			t.Errorf("%q is %+v, %v, %v; want %+v", text, got, is, err, want)
		}
	}
	for text, wants := range map[string][]string{
		"no worse than baseline":                                {`write it as "no worse than baseline by 5%"`},
		"publish.rat, agent.cpu no worse than baseline by 100%": {`unknown value "publish.rat"; did you mean "publish.rate"?`, "agent.cpu has no better direction", "100% is not between 0% and 100%"},
		"throughput no worse than baseline by 5% at 5%": {"throughput is no single number",
			"5% is not between 50% and 100%"},
	} {
		_, is, err := ParseRegression(text, nil)
		for _, want := range wants {
			if !is || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, %v; want %q", text, is, err, want)
			}
		}
	}
	if _, is, err := ParseRegression("lost == 0 && p99 < 5ms", nil); is || err != nil {
		t.Errorf("a condition is taken for such a rule: %v", err)
	}
}
