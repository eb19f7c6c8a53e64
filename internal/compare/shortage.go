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

// Shortages checks the comparison along every axis that readers compare in a table: its columns, or without several of
// these its first row axis. It assumes Compare with the usual
// values and the default Alpha.
func Shortages(run plan.Run) (all []Shortage) {
	have := run.Repeat
	if run.Until != nil {
		have = min(have, sampling.MinRepetitions(*run.Until))
	}
	add := func(axis string, tests int) {
		if slices.ContainsFunc(all, func(s Shortage) bool { return s.By == axis }) {
			return
		}
		if needed := stats.MinRepetitions(DefaultAlpha, tests); tests > 0 && have < needed {
			all = append(all, Shortage{By: axis, Tests: tests, Have: have, Needed: needed})
		}
	}
	for _, table := range run.Tables {
		compared := 0
		for _, axis := range table.Columns {
			tests := testsAlong(run, axis)
			add(axis, tests)
			compared += tests
		}
		if compared == 0 && len(table.Rows) > 0 {
			add(table.Rows[0], testsAlong(run, table.Rows[0]))
		}
	}
	return all
}

// testsAlong returns the number of tests of a comparison along an axis.
func testsAlong(run plan.Run, axis string) (tests int) {
	sides := map[string]int{} // by the coordinates on the other axes, and value
	for _, c := range run.Cells {
		if c.Workload.Search != nil { // a search repeats by itself
			continue
		}
		if _, has := c.Coordinate(axis); !has {
			continue
		}
		others, _, _ := Options{By: axis}.key(c)
		for _, name := range Usual() {
			if slices.ContainsFunc(c.Workload.Parts(), func(w plan.Workload) bool { return w.Absent(name) == "" }) {
				sides[others+" "+name]++
			}
		}
	}
	for _, n := range sides {
		tests += n - 1
	}
	return tests
}
