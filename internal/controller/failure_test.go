package controller

import (
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

func TestRetriedFailures(t *testing.T) {
	skewed := map[string]plan.Value{"publish.rate": {Number: 1, Flags: []plan.Flag{plan.Skewed}}}
	for _, x := range []struct {
		name  string
		o     plan.Outcome
		words string
		kind  plan.FailureKind
		why   string
	}{
		{"valid", plan.Outcome{Verdict: plan.Valid}, "", "", ""},
		{"skewed", plan.Outcome{Verdict: plan.Valid, Values: skewed}, "", plan.FailedSkewed,
			"the agents did not start together"},
		{"failed", plan.Outcome{Verdict: plan.Unknown, Failure: plan.FailedConnect,
			Reasons: []string{"the task failed: no"}}, "no", plan.FailedConnect, "no"},
		{"lost at the end", plan.Outcome{Verdict: plan.Unknown, Failure: plan.FailedAgentLost,
			Reasons: []string{"agent a lost"}}, "", plan.FailedAgentLost, "agent a lost"},
		{"broken guarantee", plan.Outcome{Verdict: plan.Invalid, Failure: plan.FailedAgentLost, Values: skewed}, "no",
			"", ""},
		{"without a kind of failure", plan.Outcome{Verdict: plan.Unknown}, "no", "", ""},
	} {
		if kind, why := failureOf(x.o, x.words); kind != x.kind || why != x.why {
			t.Errorf("%s: got kind %q, reason %q, want %q, %q", x.name, kind, why, x.kind, x.why)
		}
	}
}
