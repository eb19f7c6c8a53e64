package change

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

// simulation describes simulated digests of 200 cells with 4 values each.
type simulation struct {
	name            string
	before          int     // runs before the latest Recent ones
	autocorrelation float64 // autocorrelation
	temporary       int     // cells with -20 % in six earlier runs
	slow            int     // earlier runs with -15 % in all cells
	effect          float64 // standard deviation of the effect of a run on all its values
	freedom         int     // degrees of freedom of Student's t-distribution of the noise; 0: normal distribution
	maxFalse        float64 // maximum share of stable digests with a false alarm; 1: only measured
	minFound        float64 // minimum share of changes of -10 % that are found within three runs; 0: only measured
	minFoundUp      float64 // the same of +10 %: the noise grows with the level, so fewer are found
}

var simulations = []simulation{
	{name: "90 earlier runs", before: 90, maxFalse: 0.05, minFound: 0.9, minFoundUp: 0.85},
	{name: "36 earlier runs", before: 36, maxFalse: 1},
	{name: "14 earlier runs", before: 14, maxFalse: 1},
	{name: "autocorrelation 0.3", before: 90, autocorrelation: 0.3, maxFalse: 0.1},
	{name: "autocorrelation 0.6", before: 90, autocorrelation: 0.6, maxFalse: 1},
	{name: "autocorrelation 0.3, 36 earlier runs", before: 36, autocorrelation: 0.3, maxFalse: 1},
	{name: "autocorrelation 0.3, 14 earlier runs", before: 14, autocorrelation: 0.3, maxFalse: 1},
	{name: "temporary regressions in 5 cells", before: 90, temporary: 5, maxFalse: 0.05, minFound: 0.9},
	{name: "temporary regressions in 10 cells", before: 90, temporary: 10, maxFalse: 0.05, minFound: 0.9},
	{name: "temporary regressions in 20 cells", before: 90, temporary: 20, maxFalse: 0.05, minFound: 0.9},
	{name: "1 slow run", before: 90, slow: 1, maxFalse: 0.05, minFound: 0.8},
	{name: "2 slow runs", before: 90, slow: 2, maxFalse: 0.05, minFound: 0.8},
	{name: "3 slow runs", before: 90, slow: 3, maxFalse: 0.05, minFound: 0.75},
	{name: "Student's t(5)", before: 90, freedom: 5, maxFalse: 1},
	{name: "Student's t(3)", before: 90, freedom: 3, maxFalse: 1},
	{name: "run effects of 1 %", before: 90, effect: 0.01, maxFalse: 1},
	{name: "run effects of 2 %", before: 90, effect: 0.02, maxFalse: 1},
	{name: "run effects of 3 %", before: 90, effect: 0.03, maxFalse: 1},
}

const cells, values, sd = 200, 4, 0.03

// hasStep reports whether the first value of a cell changes by a step in the latest runs.
func hasStep(cell int) bool { return cell >= cells/2 && cell%5 == 0 }

func (w simulation) digest(r *rand.Rand, step float64) (all []Series) {
	slow := map[int]bool{}
	for len(slow) < w.slow {
		slow[r.IntN(w.before)] = true
	}
	effects := make([]float64, w.before+Recent)
	for i := range effects {
		if w.effect > 0 {
			effects[i] = w.effect * r.NormFloat64()
		}
	}
	for cell := range cells {
		at := r.IntN(max(1, w.before-18))
		for value := range values {
			s := Series{Group: fmt.Sprint(value)}
			x := w.noise(r)
			for i := range w.before + Recent {
				x = w.autocorrelation*x + math.Sqrt(1-w.autocorrelation*w.autocorrelation)*w.noise(r)
				y := 1000 * (1 + sd*x + effects[i])
				if slow[i] {
					y *= 0.85
				}
				if cell < w.temporary && i >= at && i < at+6 {
					y *= 0.8
				}
				if value == 0 && i >= w.before && hasStep(cell) {
					y *= 1 + step
				}
				s.Runs, s.Values = append(s.Runs, i), append(s.Values, y)
			}
			all = append(all, s)
		}
	}
	return all
}

// noise returns a random value with a standard deviation of 1.
func (w simulation) noise(r *rand.Rand) float64 {
	if w.freedom == 0 {
		return r.NormFloat64()
	}
	chi := 0.0
	for range w.freedom {
		z := r.NormFloat64()
		chi += z * z
	}
	return r.NormFloat64() / math.Sqrt(chi/float64(w.freedom)) * math.Sqrt(float64(w.freedom-2)/float64(w.freedom))
}

// countFalseAlarms returns the number of stable digests with an alarm.
func (w simulation) countFalseAlarms(r *rand.Rand, digests int) (n int) {
	for range digests {
		found := Find(w.digest(r, 0), w.before+Recent-1)
		alarm := len(found.Common) > 0
		for _, points := range found.Points {
			for _, p := range points {
				alarm = alarm || p.Alarm
			}
		}
		if alarm {
			n++
		}
	}
	return n
}

// alarmsByRun returns the number of planted steps that cause an alarm by their first, second and third run.
func (w simulation) alarmsByRun(r *rand.Rand, step float64, digests int) (by [Recent]int, of int) {
	for range digests {
		all := w.digest(r, step)
		alarmed := map[int]bool{}
		for run := range Recent {
			n := w.before + run + 1
			seen := make([]Series, len(all))
			for i, s := range all {
				seen[i] = Series{s.Group, s.Runs[:n], s.Values[:n]}
			}
			for i, points := range Find(seen, n-1).Points {
				for _, p := range points {
					alarmed[i] = alarmed[i] || p.Alarm && i%values == 0 && hasStep(i/values)
				}
			}
			for _, is := range alarmed {
				if is {
					by[run]++
				}
			}
		}
		for cell := range cells {
			if hasStep(cell) {
				of++
			}
		}
	}
	return by, of
}

// maxEvents returns the smallest n such that more than n of this number of events, with probability p each, have a
// probability of at most 1 %.
func maxEvents(of int, p float64) int {
	sum := 0.0
	for n := range of {
		lg := func(x int) float64 { y, _ := math.Lgamma(float64(x + 1)); return y }
		sum += math.Exp(lg(of) - lg(n) - lg(of-n) + float64(n)*math.Log(p) + float64(of-n)*math.Log1p(-p))
		if sum >= 0.99 {
			return n
		}
	}
	return of
}

// Stable digests have at most the given share of false alarms. A simulation at its limit fails with a probability of at
// most 1 %. The short form has 60 digests with 90 earlier runs, and 30 with autocorrelation 0.3. It fails with a
// probability of 92 % if the first has false alarms in 20 % of digests, and with 91 % if the second has them in 40 %.
// With LOCKSTEP_LONG there are 400 digests of every simulation: with false alarms in 10 % of digests it fails with a
// probability of 93 % for a limit of 5 %.
func TestFalseAlarms(t *testing.T) {
	for i, w := range simulations {
		digests := map[string]int{"90 earlier runs": 60, "autocorrelation 0.3": 30}[w.name]
		if os.Getenv("LOCKSTEP_LONG") != "" {
			digests = 400
		}
		if digests == 0 {
			continue
		}
		n := w.countFalseAlarms(rand.New(rand.NewPCG(2026, uint64(i))), digests)
		t.Logf("%-38s %3d of %d stable digests have an alarm: %.1f %%", w.name+":", n, digests,
			100*float64(n)/float64(digests))
		if maxFalse := maxEvents(digests, w.maxFalse); w.maxFalse < 1 && n > maxFalse {
			t.Errorf("%s: false alarms: got %d, want at most %d", w.name, n, maxFalse)
		}
	}
}

// A change of -10 % or +10 % in a cell is found within three runs with at least the given share. A simulation at its
// limit fails with a probability of at most 1 %. The short form has 80 changes in three simulations. It fails with a
// probability of 90 % if 75 % are found for a limit of 90 %. With LOCKSTEP_LONG there are 500 of every simulation, and
// it fails with a probability of 99 % if 82 % are found.
func TestChangesAreFound(t *testing.T) {
	for i, w := range simulations {
		digests, steps := map[string]int{"90 earlier runs": 4, "temporary regressions in 20 cells": 4,
			"3 slow runs": 4}[w.name], []float64{-0.1}
		if w.minFoundUp > 0 {
			steps = append(steps, 0.1)
		}
		if os.Getenv("LOCKSTEP_LONG") != "" {
			digests, steps = 25, []float64{-0.1, 0.1, -0.15}
		}
		if digests == 0 {
			continue
		}
		for _, step := range steps {
			by, of := w.alarmsByRun(rand.New(rand.NewPCG(2027, uint64(i))), step, digests)
			share := func(run int) float64 { return 100 * float64(by[run]) / float64(of) }
			t.Logf("%-38s %+.0f %%: found by the first run in %.1f %%, the second in %.1f %%, the third in %.1f %% of %d", w.name+":", 100*step, share(0), share(1), share(2), of)
			limit := map[float64]float64{-0.1: w.minFound, 0.1: w.minFoundUp}[step]
			if minFound := of - maxEvents(of, 1-limit); limit > 0 && by[Recent-1] < minFound {
				t.Errorf("%s %+.0f %%: changes found: got %d, want at least %d", w.name, 100*step, by[Recent-1], minFound)
			}
		}
	}
}
