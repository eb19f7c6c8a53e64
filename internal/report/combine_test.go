package report

import (
	"slices"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// studyOf returns a run of one cell per mode, with an additional axis.
func studyOf(id string, repeat int, own string, rates ...float64) Study {
	run := plan.Run{ID: id, Name: id, Repeat: repeat, Axes: []string{"mode", own},
		Cells: []plan.Cell{{ID: "c0", Coordinates: []plan.Coordinate{{Axis: "mode", Value: raw("x")},
			{Axis: own, Value: raw(1)}}, Workload: plan.Default()}},
		Tables: []plan.Table{{Rows: []string{"mode"}, Values: []string{"publish.rate"}},
			{Rows: []string{"mode"}, Values: []string{"publish.rate"}, Highest: "publish.rate"}}}
	var outcomes []plan.Outcome
	for i, rate := range rates {
		outcomes = append(outcomes, outcome(run.Cells[0], i+1, map[string]plan.Value{"publish.rate": {Number: rate}}))
	}
	return StudyOf(run, outcomes)
}

// TestRunsAreNotMixed proves that the same cell of two runs has a separate field per run, and that repetitions are
// counted per run.
func TestRunsAreNotMixed(t *testing.T) {
	tables := Combine([]Study{studyOf("first", 3, "threads", 10, 20, 30), studyOf("second", 1, "threads", 500)},
		[]string{"A", "B"}).Build()
	if len(tables) != 2 {
		t.Fatalf("got %d tables, want each that both ask for once", len(tables))
	}
	first := tables[0]
	if want := []string{"mode", "run=A", "run=B"}; !slices.Equal(first.Head, want) {
		t.Errorf("columns %q, want %q", first.Head, want)
	}
	if row := first.Rows[0]; *row[1].Number != 20 || *row[2].Number != 500 || len(row[2].Notes) > 0 {
		t.Errorf("got %+v: want the median of the first run and the only number of the second", row)
	}
	if best := tables[1]; len(best.Rows) != 2 || best.Rows[1][1].Text != "B" || *best.Rows[1][2].Number != 500 {
		t.Errorf("the best of both runs are %+v, want a row of each", best.Rows)
	}
}

// TestRunsMayDifferInTheirAxes proves that a cell without an axis is in the same table as those that have it, and that
// the table is as wide as its heading.
func TestRunsMayDifferInTheirAxes(t *testing.T) {
	for _, table := range Combine([]Study{studyOf("first", 1, "threads", 10), studyOf("second", 1, "latency", 500)},
		[]string{"A", "B"}).Build() {
		for _, row := range table.Rows {
			if len(row) != len(table.Head) {
				t.Errorf("a row has %d fields, its heading %d", len(row), len(table.Head))
			}
		}
	}
}
