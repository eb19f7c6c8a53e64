package compare

import (
	"slices"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// TestShortages proves that the announcement before a run agrees with the result of Compare after it.
func TestShortages(t *testing.T) {
	for n := range 18 {
		repeat, tests := 1+n/2, 20
		w := newWorld(1, repeat, 0.01)
		run := w.run("a", cells(10), half)
		if n%2 == 1 { // with a rate, the latency from the intended send time is compared, too
			tests = 30
			for i := range run.Run.Cells {
				run.Run.Cells[i].Workload.Publishers.Rate = 1000
			}
			for _, o := range run.Outcomes {
				o.Values["publish.intended.p99"] = o.Values["publish.p99"]
			}
		}
		run.Run.Tables = []plan.Table{{Rows: []string{"window"}, Columns: []string{"broker"}},
			{Rows: []string{"window"}, Columns: []string{"broker"}}, {Rows: []string{"broker", "window"}}}
		for i := range run.Run.Cells { // the runs of world only have publish.rate and publish.p99
			run.Run.Cells[i].Workload.Consumers.Nodes = 0
		}
		got := Shortages(run.Run)
		needed := map[int]int{20: 6, 30: 7}[tests]
		if want := []Shortage{{"broker", tests, repeat, needed}}; repeat < needed != slices.Equal(got, want) ||
			repeat >= needed && got != nil {
			t.Errorf("%d tests, %d repetitions: %+v", tests, repeat, got)
		}
		run.Run.Tables = []plan.Table{{Rows: []string{"broker", "window"}}}
		if again := Shortages(run.Run); !slices.Equal(again, got) {
			t.Errorf("%d repetitions, the axis in rows: %+v, want %+v", repeat, again, got)
		}
		if n := mustCompare(t, Options{By: "broker"}, run).Found(); (n[Inconclusive] == tests) != (got != nil) {
			t.Errorf("%d repetitions: shortages %+v, findings %v", repeat, got, n)
		}
	}
}
