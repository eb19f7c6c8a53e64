package test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	records "example.org/lockstep/lockstep/internal/record"
)

const betweenTwoAgents = `
axes: mode: ["confirm-each"]
repeat: 3
cell: {axis: _, publishers: {mode: axis.mode, rate: 200, persistent: false}, warmup: "300ms", measure: "2s"}
`

// betweenClocks runs a cell on two agent processes: a1 publishes, a2 consumes. Each has the given error of its clock
// (see clock.Variable), or the host's clock if it is empty.
func betweenClocks(t *testing.T, a1, a2, cell string) []plan.Outcome {
	t.Helper()
	own := func(text string) []string { return []string{clock.Variable + "=" + text} }
	f := newFleetOf(t, map[string][]string{"a1": own(a1), "a2": own(a2)}, "a1", "a2")
	if code := f.run(cell).ExitCode(); code != 0 {
		t.Fatalf("ctl exited with %d, want 0", code)
	}
	return f.outcomes()
}

// With wrong clocks, the end-to-end latency is the same as with right clocks, within the stated bound. The error may be
// on either side, of any size, and may drift.
func TestWrongClocksGiveTheRightLatency(t *testing.T) {
	parallel(t)
	right := betweenClocks(t, "", "", betweenTwoAgents)
	for _, o := range right {
		if v := o.Values["e2e.p50"]; v.Bound != 0 || len(o.Clocks) > 0 || slices.Contains(v.Flags, plan.ClockUnsafe) {
			t.Errorf("two agents of one host: %+v, pairs %+v; want a bound of nothing", v, o.Clocks)
		}
	}
	want, spread := middle(right, "e2e.p50")
	t.Logf("right clocks: end-to-end p50 %.3f ms, repetitions %.3f ms apart", want*1e3, spread*1e3)
	for _, c := range []struct {
		name, a1, a2 string
		wrong, drift float64 // seconds; ppm
	}{
		{"sender an hour ahead", "+1h", "", 3600, 0},
		{"both, drifting apart", "-3s,drift=-60ppm", "+250ms,drift=40ppm", 3.25, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrong := betweenClocks(t, c.a1, c.a2, betweenTwoAgents)
			got, apart := middle(wrong, "e2e.p50")
			bound, drift := 0.0, math.Inf(1)
			for _, o := range wrong {
				bound = max(bound, o.Values["e2e.p50"].Bound)
				if len(o.Clocks) != 1 {
					t.Fatalf("pairs %+v, want one", o.Clocks)
				}
				if d := o.Clocks[0].Drift; math.Abs(d-c.drift) < math.Abs(drift-c.drift) {
					drift = d
				}
				if s := o.Values["start.skew"]; s.NA != "" || long() && s.Number > 0.2 {
					t.Errorf("start skew %+v", s)
				}
			}
			t.Logf("%s: end-to-end p50 %.3f ms ± %.3f, repetitions %.3f ms apart; drift %.0f ppm", c.name, got*1e3,
				bound*1e3, apart*1e3, drift)
			if bound <= 0 || long() && bound > 0.05 {
				t.Errorf("a bound of %v s: want one that says something", bound)
			}
			limit := c.wrong / 2
			if long() {
				limit = bound + spread + apart // differences between repetitions are not caused by clocks
			}
			if off := math.Abs(got - want); off > limit {
				t.Errorf("p50 %.3f ms, and %.3f ms with right clocks: more than %.3f ms apart", got*1e3, want*1e3,
					limit*1e3)
			}
			if long() && math.Abs(drift-c.drift) > 60 {
				t.Errorf("drift %.0f ppm, want %.0f", drift, c.drift)
			}
		})
	}
}

// middle returns the median of a value over outcomes, and the difference of the extremes.
func middle(outcomes []plan.Outcome, value string) (median, spread float64) {
	var all []float64
	for _, o := range outcomes {
		all = append(all, o.Values[value].Number)
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)-1] - all[0]
}

// A step of a clock during the measurement is recorded with its size, and only end-to-end latencies are flagged.
func TestClockStepInMidTask(t *testing.T) {
	t.Parallel()
	o := betweenClocks(t, "", "+1h,step=100ms@90s", `
axes: mode: ["confirm-each"]
cell: {axis: _, publishers: {mode: axis.mode, rate: 200, persistent: false}, warmup: "0s", measure: "100s"}
`)[0]
	var told []plan.Event
	for _, e := range o.Events {
		if e.Kind == records.EventClockStep {
			told = append(told, e)
		}
	}
	size := func(e plan.Event) time.Duration {
		_, after, _ := strings.Cut(e.Detail, "stepped by ")
		d, _ := time.ParseDuration(strings.Fields(after + " 0")[0])
		return d
	}
	tolerance := 90 * time.Millisecond
	if long() {
		tolerance = 30 * time.Millisecond
	}
	if len(told) != 1 || told[0].Agent != "a2" || told[0].At < 0 ||
		(size(told[0])-100*time.Millisecond).Abs() > tolerance {
		t.Errorf("steps %+v, want one of 100 ms on agent a2", told)
	}
	if !strings.Contains(strings.Join(o.Warnings, "\n"), "stepped by") {
		t.Errorf("warnings %q do not report the step", o.Warnings)
	}
	if v := o.Values["e2e.p99"]; !slices.Contains(v.Flags, plan.ClockUnsafe) || v.Bound < 0.07 {
		t.Errorf("end-to-end p99 %+v, want clock-unsafe with a bound of the step", v)
	}
	if v := o.Values["publish.p99"]; slices.Contains(v.Flags, plan.ClockUnsafe) || v.Bound != 0 {
		t.Errorf("publish p99 %+v, want it untouched", v)
	}
}
