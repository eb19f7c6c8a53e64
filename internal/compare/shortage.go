package compare

import (
	"slices"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/sampling"
	"example.org/lockstep/lockstep/internal/stats"
)

// Shortage is a comparison along an axis for which a run has too few repetitions: no difference, however large, could
// be significant.
type Shortage struct {
	By     string // the axis
	Tests  int
	Have   int // repetitions
	Needed int
}

// Shortages checks the comparison along every axis that is a column of the run's tables, because readers compare
// columns. It assumes Compare with the usual values and the default Alpha.
func Shortages(run plan.Run) (all []Shortage) {
	have := run.Repeat
	if run.Until != nil {
		have = min(have, sampling.MinRepetitions(*run.Until))
	}
	for _, table := range run.Tables {
		for _, axis := range table.Columns {
			if slices.ContainsFunc(all, func(s Shortage) bool { return s.By == axis }) {
				continue
			}
			sides := map[string]int{} // by the coordinates on the other axes, and value
			for _, c := range run.Cells {
				if c.Workload.Search != nil { // a search repeats by itself
					continue
				}
				others, _, _ := Options{By: axis}.key(c)
				for _, name := range Usual() {
					if slices.ContainsFunc(c.Workload.Parts(),
						func(w plan.Workload) bool { return w.Absent(name) == "" }) {
						sides[others+" "+name]++
					}
				}
			}
			tests := 0
			for _, n := range sides {
				tests += n - 1
			}
			if needed := stats.MinRepetitions(DefaultAlpha, tests); tests > 0 && have < needed {
				all = append(all, Shortage{By: axis, Tests: tests, Have: have, Needed: needed})
			}
		}
	}
	return all
}
