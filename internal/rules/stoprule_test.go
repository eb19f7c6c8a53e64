package rules

import (
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

func TestParseStopRule(t *testing.T) {
	for text, want := range map[string]plan.StopRule{
		"ci < 5%":                            {Within: 0.05, Confidence: 0.95},
		" ci(publish.p99)<2.5 % ":            {Value: "publish.p99", Within: 0.025, Confidence: 0.95},
		"ci( bulk/publish.p99 ) < 5% at 90%": {Value: "bulk/publish.p99", Within: 0.05, Confidence: 0.9},
		"ci < 10% at 99.9 %":                 {Within: 0.1, Confidence: 0.999},
	} {
		want.Rule = text
		got, err := ParseStopRule(text, nil)
		if err != nil || got.Value != want.Value || far(got.Within, want.Within) ||
			far(got.Confidence, want.Confidence) || got.Rule != text {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, wants := range map[string][]string{
		"":          {`"" is no condition`, `write it as "ci < 5%"`},
		"ci > 5%":   {"is no condition"},
		"p99 < 5ms": {"is no condition"},
		"ci(publish.rat) < 0% at 40%": {`unknown value "publish.rat"; did you mean "publish.rate"?`,
			"0% is not between 0% and 100%", "40% is not between 50% and 100%"},
		"ci() < 5%":              {`unknown value ""`},
		"ci(throughput) < five%": {"throughput is no single number", "five% is not between"},
	} {
		_, err := ParseStopRule(text, nil)
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v; want %q", text, err, want)
			}
		}
	}
	if u := (plan.StopRule{}); u.Of(plan.Workload{}) != "publish.rate" || u.Of(plan.Workload{Search: &plan.Search{}}) != "capacity" {
		t.Error("without a value it is the rate, and of a search its capacity")
	}
}

func far(a, b float64) bool { return a-b > 1e-12 || b-a > 1e-12 }
