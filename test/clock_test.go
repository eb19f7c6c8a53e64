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

const twoAgentCell = `
axes: mode: ["confirm-each"]
repeat: 3
cell: {axis: _, publishers: {mode: axis.mode, rate: 200, persistent: false}, warmup: "300ms", measure: "2s"}
`

// runWithClocks runs a cell on two agent processes: a1 publishes, a2 consumes. Each has the given error of its clock
// (see clock.Variable), or the host's clock if it is empty.
func runWithClocks(t *testing.T, a1, a2, cell string) []plan.Outcome {
	t.Helper()
	own := func(text string) []string { return []string{clock.Variable + "=" + text} }
	f := newFleetOf(t, map[string][]string{"a1": own(a1), "a2": own(a2)}, "a1", "a2")
	if code := f.run(cell).ExitCode(); code != 0 {
		t.Fatalf("ctl run: got exit code %d, want 0", code)
	}
	return f.outcomes()
}

// With wrong clocks, the end-to-end latency is the same as with correct clocks, within the stated bound. The clock of
// either agent may be wrong, by any offset and with any drift.
func TestWrongClocksGiveTheRightLatency(t *testing.T) {
	parallel(t)
	right := runWithClocks(t, "", "", twoAgentCell)
	for _, o := range right {
		if v := o.Values["e2e.p50"]; v.Bound != 0 || len(o.Clocks) > 0 || slices.Contains(v.Flags, plan.ClockUnsafe) {
			t.Errorf("two agents of one host: got e2e.p50 %+v and clock pairs %+v, want bound 0 and no pairs", v,
				o.Clocks)
		}
	}
	want, spread := medianAndSpread(right, "e2e.p50")
	t.Logf("correct clocks: e2e.p50 %.3f ms, range of repetitions %.3f ms", want*1e3, spread*1e3)
	for _, c := range []struct {
		name, a1, a2 string
		wrong, drift float64 // seconds; ppm
	}{
		{"publisher 1 h ahead", "+1h", "", 3600, 0},
		{"offsets and drifts of both", "-3s,drift=-60ppm", "+250ms,drift=40ppm", 3.25, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrong := runWithClocks(t, c.a1, c.a2, twoAgentCell)
			got, apart := medianAndSpread(wrong, "e2e.p50")
			bound, drift := 0.0, math.Inf(1)
			for _, o := range wrong {
				bound = max(bound, o.Values["e2e.p50"].Bound)
				if len(o.Clocks) != 1 {
					t.Fatalf("clock pairs: got %+v, want 1", o.Clocks)
				}
				if d := o.Clocks[0].Drift; math.Abs(d-c.drift) < math.Abs(drift-c.drift) {
					drift = d
				}
				if s := o.Values["start.skew"]; s.NA != "" || long() && s.Number > 0.2 {
					t.Errorf("start.skew: got %+v, want a value of at most 0.2 s", s)
				}
			}
			t.Logf("%s: e2e.p50 %.3f ms ± %.3f, range of repetitions %.3f ms; drift %.0f ppm", c.name, got*1e3,
				bound*1e3, apart*1e3, drift)
			if bound <= 0 || long() && bound > 0.05 {
				t.Errorf("bound of e2e.p50: got %v s, want above 0 and at most 0.05", bound)
			}
			limit := c.wrong / 2
			if long() {
				limit = bound + spread + apart // differences between repetitions are not caused by clocks
			}
			if off := math.Abs(got - want); off > limit {
				t.Errorf("e2e.p50: got %.3f ms, want %.3f ms as with correct clocks, ± %.3f ms", got*1e3, want*1e3,
					limit*1e3)
			}
			if long() && math.Abs(drift-c.drift) > 60 {
				t.Errorf("drift: got %.0f ppm, want %.0f ± 60", drift, c.drift)
			}
		})
	}
}

// medianAndSpread returns the median of a value over outcomes, and the difference of the extremes.
func medianAndSpread(outcomes []plan.Outcome, value string) (median, spread float64) {
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
	o := runWithClocks(t, "", "+1h,step=100ms@90s", `
axes: mode: ["confirm-each"]
cell: {axis: _, publishers: {mode: axis.mode, rate: 200, persistent: false}, warmup: "0s", measure: "100s"}
`)[0]
	var reported []plan.Event
	for _, e := range o.Events {
		if e.Kind == records.EventClockStep {
			reported = append(reported, e)
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
	if len(reported) != 1 || reported[0].Agent != "a2" || reported[0].At < 0 ||
		(size(reported[0])-100*time.Millisecond).Abs() > tolerance {
		t.Errorf("clock steps: got %+v, want one of 100 ms on agent a2", reported)
	}
	if !strings.Contains(strings.Join(o.Warnings, "\n"), "stepped by") {
		t.Errorf("warnings: got %q, want one about the step", o.Warnings)
	}
	if v := o.Values["e2e.p99"]; !slices.Contains(v.Flags, plan.ClockUnsafe) || v.Bound < 0.07 {
		t.Errorf("e2e.p99: got %+v, want flag clock-unsafe and a bound of at least 0.07 s", v)
	}
	if v := o.Values["publish.p99"]; slices.Contains(v.Flags, plan.ClockUnsafe) || v.Bound != 0 {
		t.Errorf("publish.p99: got %+v, want no flag clock-unsafe and bound 0", v)
	}
}
