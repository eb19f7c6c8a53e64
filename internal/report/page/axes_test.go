package page

import (
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
)

// TestTooltips proves that the tooltip of a number has its unit, error bound and flags, and that a missing number has
// its flag.
func TestTooltips(t *testing.T) {
	latency, rate := 0.0018, 20.0
	d := &drawing{axis: "threads"}
	for _, x := range []struct {
		f    report.Field
		want string
	}{
		{report.Field{Text: "1.80 ms", Number: &latency, Unit: plan.Seconds, Bound: 0.0003, Verdict: plan.Invalid,
			Flags: []plan.Flag{plan.ClockUnsafe}}, "threads=1: p99 1.80 ms ± 0.3 clock-unsafe invalid"},
		{report.Field{Text: "20.0", Number: &rate, Unit: plan.PerSecond}, "threads=1: p99 20.0 msg/s"},
		{report.Field{Text: "–", Flags: []plan.Flag{plan.Backlog}}, "threads=1: p99 – backlog"},
	} {
		s := spot{at: map[string]string{"threads": "1"}, values: map[string]report.Field{"v": x.f}}
		if got := d.describe(s, shown{"v", "p99"}); got != x.want {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
}
