package compare

import (
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// names returns the reported differences: cell and value.
func names(c Comparison) (all []string) {
	c.changes(func(v *Value, x *Change, _ *Row, _ int) {
		if x.Finding != NoDifference && x.Finding != Inconclusive {
			all = append(all, string(x.Finding)+" "+v.Name)
		}
	})
	return all
}

// rounds returns the number of simulations.
func rounds(quick int) int {
	if os.Getenv("LOCKSTEP_LONG") != "" {
		return 20 * quick
	}
	return quick
}

// atMost fails if got of n rounds is improbable (less than 1/1000) for an event with a probability of at most p.
func atMost(t *testing.T, what string, got, n int, p float64) {
	t.Helper()
	t.Logf("%s: %d of %d (%.1f %%)", what, got, n, 100*float64(got)/float64(n))
	if deviation := 3.1 * math.Sqrt(p*(1-p)*float64(n)); float64(got) > p*float64(n)+deviation {
		t.Errorf("%s: %d of %d, want at most %.0f %%", what, got, n, 100*p)
	}
}

// TestUnchangedRunsAreNotReported compares runs with noise of 1 % per repetition and with random effects of the run. If
// the spread of five runs is known, a difference is reported in at most 5 % of pairs. With four runs, none is reported,
// and each change states this.
func TestUnchangedRunsAreNotReported(t *testing.T) {
	for _, x := range []struct{ each, common float64 }{{0, 0}, {0.01, 0}, {0.02, 0}, {0.03, 0}, {0, 0.02}, {0, 0.03},
		{0, 0.05}, {0.02, 0.03}} {
		n, reported, violated := rounds(30), 0, 0
		for seed := range uint64(n) {
			w := newWorld(1000+seed, 8, 0.01)
			w.each, w.common = x.each, x.common
			a := w.run("a", cells(10), nil)
			known, b := w.earlier(a, 5), w.run("b", a.Run.Cells, nil)
			c := mustCompare(t, Options{Spread: known}, a, b)
			if len(names(c)) > 0 {
				reported++
			}
			if slices.ContainsFunc(c.NoWorse(), func(d Decision) bool { return d.Violated }) {
				violated++
			}
			few := w.earlier(a, 4)
			c = mustCompare(t, Options{Spread: few}, a, b)
			if n := c.Found(); n[Inconclusive] != 40 ||
				c.Values[1].Rows[9].Changes[0].Why != "the run-to-run spread is unknown: 4 of 5 earlier runs" {
				t.Fatalf("with four earlier runs: %v, %q", n, c.Values[1].Rows[9].Changes[0].Why)
			}
		}
		what := fmt.Sprintf("effects of the run of %.0f %% per cell and %.0f %% common, 20 cells, 2 values, 8 repetitions", 100*x.each, 100*x.common)
		atMost(t, what+", a difference is reported", reported, n, 0.05)
		atMost(t, what+", the rule is violated", violated, n, 0.05)
	}
}

// TestSpreadThatIsTooSmallIsSeen proves that the check of TestUnchangedRunsAreNotReported can fail: if the known spread
// is smaller than the real one, most pairs are reported.
func TestSpreadThatIsTooSmallIsSeen(t *testing.T) {
	const pairs = 20
	reported := 0
	for seed := range uint64(pairs) {
		w := newWorld(seed, 8, 0.01)
		known := w.earlier(w.run("a", cells(10), nil), 30)
		w.each = 0.05
		if len(names(mustCompare(t, Options{Spread: known}, w.run("a", cells(10), nil),
			w.run("b", cells(10), nil)))) > 0 {
			reported++
		}
	}
	if reported < pairs*9/10 {
		t.Errorf("reported in %d of %d pairs, though the runs differ by more than the spread", reported, pairs)
	}
}

// TestInterleavedIsNoise proves that random halves of one run do not differ. With noise of 20 %, the minimum effect
// filters nothing, so only the correction for multiple tests has an effect.
func TestInterleavedIsNoise(t *testing.T) {
	for _, noise := range []float64{0.05, 0.2} {
		n, reported := rounds(40), 0
		for seed := range uint64(n) {
			w := newWorld(seed, 8, noise)
			w.common = 0.05 // affects both sides
			if len(names(mustCompare(t, Options{By: "broker"}, w.run("a", cells(10), nil)))) > 0 {
				reported++
			}
		}
		atMost(t, fmt.Sprintf("noise of %.0f %%, 20 cells, 2 values, 8 repetitions: a difference is reported",
			100*noise), reported, n, 0.05)
	}
}

// TestARuleRarelyPassesWhatIsWorse proves that "no worse by 5 %" at 95 % is met in at most 5 % of runs whose rate or
// latency is worse by 10 or 20 %, for any noise.
func TestARuleRarelyPassesWhatIsWorse(t *testing.T) {
	for _, noise := range []float64{0.05, 0.1, 0.2} {
		for _, factor := range []float64{0.9, 0.8} {
			n, met, violated, unchanged := rounds(200), 0, 0, 0
			for seed := range uint64(n) {
				w := newWorld(seed, 8, noise)
				a := w.run("a", cells(1), nil)
				known := w.earlier(a, 5)
				b := w.run("b", a.Run.Cells, func(c plan.Cell, value string) float64 {
					if c.Index == 0 && value == "publish.rate" {
						return factor
					}
					return 1
				})
				for _, d := range mustCompare(t, Options{Spread: known}, a, b).NoWorse() {
					switch changed := d.Value.Name == "publish.rate" && d.Row.Cell == a.Run.Cells[0].ID; {
					case changed && d.Met:
						met++
					case changed && d.Violated:
						violated++
					case !changed && d.Met:
						unchanged++
					}
				}
			}
			t.Logf("noise %.0f %%, %+.0f %%: violated in %.0f %%; values that have not changed meet the rule in %.0f %%", 100*noise, 100*(factor-1), 100*float64(violated)/float64(n), 100*float64(unchanged)/float64(3*n))
			atMost(t,
				fmt.Sprintf("noise of %.0f %%, true change %+.0f %%, 8 repetitions, 5 earlier runs: the rule is met",
					100*noise, 100*(factor-1)), met, n, 0.05)
		}
	}
}

// TestARuleDecidesWhatItCan proves that with little noise between runs a worse value is violated and an unchanged one
// is met. The smallest detectable effect is the margin that an unchanged value meets in 80 % of runs.
func TestARuleDecidesWhatItCan(t *testing.T) {
	n, met, violated, ofDetectable, decisions := rounds(100), 0, 0, 0, 0
	for seed := range uint64(n) {
		w := newWorld(seed, 8, 0.01)
		w.each = 0.005
		a := w.run("a", cells(1), nil)
		known := w.earlier(a, 20)
		same, worse := w.run("b", a.Run.Cells, nil), w.run("b", a.Run.Cells, func(_ plan.Cell, value string) float64 {
			return map[string]float64{"publish.rate": 0.85, "publish.p99": 1.15}[value]
		})
		for _, d := range mustCompare(t, Options{Spread: known}, a, same).NoWorse() {
			decisions++
			if d.Met {
				met++
			}
			for _, again := range mustCompare(t, Options{Spread: known, Effect: d.Detectable,
				Values: []string{d.Value.Name}}, a, same).NoWorse() {
				if again.Row.Cell == d.Row.Cell && again.Met {
					ofDetectable++
				}
			}
		}
		for _, d := range mustCompare(t, Options{Spread: known}, a, worse).NoWorse() {
			if d.Violated {
				violated++
			}
		}
	}
	t.Logf("run effects of 0.5 %%, 20 earlier runs: unchanged is met in %d of %d, -15 %% violated in %d; a margin of the smallest detectable effect is met in %d", met, decisions, violated, ofDetectable)
	if met < decisions*95/100 || violated < decisions*95/100 {
		t.Errorf("of %d decisions %d are met without a change, and %d violated with one of 15 %%", decisions, met,
			violated)
	}
	if part := float64(ofDetectable) / float64(decisions); part < 0.74 || part > 0.86 {
		t.Errorf("a margin of the smallest detectable effect is met in %.0f %%, want 80 %%", 100*part)
	}
}

// TestPlantedShiftsAreNamed makes latencies of some cells worse and one rate better, and checks that exactly those are
// reported.
func TestPlantedShiftsAreNamed(t *testing.T) {
	planted := func(c plan.Cell, value string) float64 {
		window := c.Workload.Publishers.MaxInFlight
		switch {
		case value == "publish.p99" && c.Broker.Name == "rabbit" && window < 103:
			return 1.4
		case value == "publish.rate" && c.Broker.Name == "rabbit" && window == 105:
			return 1.2
		}
		return 1
	}
	want := []string{"better publish.rate", "worse publish.p99", "worse publish.p99", "worse publish.p99"}
	for _, by := range []string{"broker", ""} {
		pairs, exact := rounds(20), 0
		for seed := range uint64(pairs) {
			w := newWorld(seed, 8, 0.03)
			w.each = 0.01
			var c Comparison
			if by != "" {
				w.each, w.common = 0, 0.1
				c = mustCompare(t, Options{By: by}, w.run("a", cells(10), planted))
			} else {
				a := w.run("a", cells(10), nil)
				c = mustCompare(t, Options{Spread: w.earlier(a, 30)}, a, w.run("b", a.Run.Cells, planted))
			}
			if slices.Equal(names(c), want) {
				exact++
			}
		}
		t.Logf("by %q, 8 repetitions, noise of 3 %%: exactly the four planted changes are named in %d of %d", by, exact,
			pairs)
		if exact < pairs*85/100 {
			t.Errorf("by %q: exactly the planted changes are named in %d of %d pairs", by, exact, pairs)
		}
	}
}

// TestMeansBetweenRunsHoldTheTruth proves that the interval of a geometric mean is right although all cells of a run
// change together.
func TestMeansBetweenRunsHoldTheTruth(t *testing.T) {
	n, outside := rounds(100), 0
	for seed := range uint64(n) {
		w := newWorld(seed, 4, 0.01)
		w.common = 0.03
		a := w.run("a", cells(5), nil)
		if c := mustCompare(t, Options{Spread: w.earlier(a, 8)}, a,
			w.run("b", a.Run.Cells, nil)); !c.Values[0].Means[0].Interval.Contains(1) {
			outside++
		}
	}
	atMost(t, "common run effects of 3 %, 10 cells: the interval of the mean misses the truth", outside, n, 0.05)
}

// TestSmallChangesAreNotNamed proves that a change of 2 %, which is significant with little noise, is not reported.
func TestSmallChangesAreNotNamed(t *testing.T) {
	w := newWorld(1, 10, 0.002)
	run := w.run("a", cells(3), func(c plan.Cell, _ string) float64 {
		return map[string]float64{"nats": 1, "rabbit": 1.02}[c.Broker.Name]
	})
	c := mustCompare(t, Options{By: "broker"}, run)
	if n := c.Found(); n[NoDifference] != 6 {
		t.Errorf("named although below 5 %%: %v", n)
	}
	if x := c.Values[0].Rows[0].Changes[0]; x.Adjusted > 0.05 || x.Ratio.Estimate < 1.015 {
		t.Errorf("2 %% with noise of 0.2 %% have to be seen: %+v", x)
	}
	if n := mustCompare(t, Options{By: "broker", Effect: 0.01}, run).Found(); n[Better] != 3 || n[Worse] != 3 {
		t.Errorf("with a minimum effect of 1 %% rates are better and latencies worse in all cells, found %v", n)
	}
}
