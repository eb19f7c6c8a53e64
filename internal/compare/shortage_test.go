package compare

import (
	"slices"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// TestShortages proves that the announcement before a run agrees with the result of Compare after it.
func TestShortages(t *testing.T) {
	for repeat := 1; repeat <= 9; repeat++ {
		w := newWorld(1, repeat, 0.01)
		run := w.run("a", cells(10), half)
		run.Run.Tables = []plan.Table{{Rows: []string{"window"}, Columns: []string{"broker"}},
			{Rows: []string{"window"}, Columns: []string{"broker"}}, {Rows: []string{"broker", "window"}}}
		for i := range run.Run.Cells { // the runs of world only have publish.rate and publish.p99
			run.Run.Cells[i].Workload.Consumers.Nodes = 0
		}
		got := Shortages(run.Run)
		if want := []Shortage{{"broker", 20, repeat, 6}}; repeat < 6 != slices.Equal(got, want) || repeat >= 6 &&
			got != nil {
			t.Errorf("%d repetitions: %+v", repeat, got)
		}
		if n := mustCompare(t, Options{By: "broker"}, run).Found(); (n[Inconclusive] == 20) != (got != nil) {
			t.Errorf("%d repetitions: shortages %+v, findings %v", repeat, got, n)
		}
	}
}
