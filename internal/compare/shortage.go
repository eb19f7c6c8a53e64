package compare

import (
	"slices"

	"lockstep/internal/plan"
	"lockstep/internal/sampling"
	"lockstep/internal/stats"
)

// Shortage is a comparison along an axis for which a run has too few repetitions: no difference, however large, could
// be shown.
type Shortage struct {
	By     string // the axis
	Tests  int
	Have   int // repetitions
	Needed int
}

// Shortages looks at every axis in the columns of the run's tables, whose values stand beside each other there: Compare
// along it, with the usual values and the default Alpha.
func Shortages(run plan.Run) (all []Shortage) {
	have := run.Repeat
	if run.Until != nil {
		have = min(have, sampling.Least(*run.Until))
	}
	for _, table := range run.Tables {
		for _, axis := range table.Columns {
			if slices.ContainsFunc(all, func(s Shortage) bool { return s.By == axis }) {
				continue
			}
			sides := map[string]int{} // by the place on the other axes, and value
			for _, c := range run.Cells {
				if c.Workload.Search != nil { // it repeats by itself what it finds
					continue
				}
				others := slices.DeleteFunc(slices.Clone(c.Coordinates),
					func(x plan.Coordinate) bool { return x.Axis == axis })
				for _, name := range Usual() {
					if slices.ContainsFunc(c.Workload.Parts(),
						func(w plan.Workload) bool { return w.Absent(name) == "" }) {
						sides[place(others)+" "+name]++
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
