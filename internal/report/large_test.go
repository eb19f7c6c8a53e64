package report

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// large returns a run whose cells have different coordinates on both axes. A table with an axis in rows and one in
// columns has the square of their number as fields.
func large(cells int) plan.Run {
	run := plan.Run{ID: "r", Name: "large", Repeat: 1, Axes: []string{"x", "y"}}
	for i := range cells {
		run.Cells = append(run.Cells, plan.Cell{ID: fmt.Sprint("c", i), Index: i, Workload: plan.Default(),
			Coordinates: []plan.Coordinate{{Axis: "x", Value: raw(i)}, {Axis: "y", Value: raw(i)}}})
	}
	return run
}

// TestLargeTablesAreNotShown proves that the memory of tables does not depend on products of numbers in a plan, which
// any client may submit.
func TestLargeTablesAreNotShown(t *testing.T) {
	const omitted = "not shown: the tables of the run have more than 200000 fields"
	run := large(400)
	square := plan.Table{Rows: []string{"x"}, Columns: []string{"y"}, Values: []string{"lost"}}
	small := plan.Table{Rows: []string{"x", "y"}, Values: []string{"lost"}}
	for name, x := range map[string]struct {
		cells  int
		tables []plan.Table
		shown  int // number of tables with rows
	}{
		"small":       {400, []plan.Table{square, small}, 2},
		"many":        {400, []plan.Table{small, square, square, small}, 2},
		"large":       {1000, []plan.Table{square}, 0},
		"best":        {1000, []plan.Table{{Rows: []string{"x"}, Highest: "lost", Values: make([]string, 250)}}, 0},
		"one per row": {1100, []plan.Table{{Split: []string{"x"}, Rows: []string{"y"}, Values: []string{"lost"}}}, 990},
	} {
		run := large(x.cells)
		run.Tables = x.tables
		shown := 0
		tables := Build(run, nil)
		for _, table := range tables {
			if len(table.Rows) > 0 {
				shown++
			} else if len(table.Remarks) != 1 || !strings.HasPrefix(table.Remarks[0], omitted) {
				t.Errorf("%s: remarks of a table without rows: got %q, want %q", name, table.Remarks, omitted)
			}
		}
		if shown != x.shown || len(tables) > x.shown+2 {
			t.Errorf("%s: tables with rows: got %d of %d, want %d", name, shown, len(tables), x.shown)
		}
	}
	run.Tables = []plan.Table{square}
	run.Cells[0].Coordinates[0].Value = raw(strings.Repeat("long", 500))
	files, err := Files(run, nil)
	for name, text := range files {
		if name != "tables.csv" && name != "junit.xml" && !strings.Contains(string(text), omitted) {
			t.Errorf("%s: got no remark in:\n%.1000s", name, text)
		}
	}
	if err != nil || len(files) != 5 {
		t.Errorf("Files: got %d, error %v, want 5", len(files), err)
	}
}

// TestGroupsOfManyExcludedCombinations covers the product of excluded combinations and names of groups.
func TestGroupsOfManyExcludedCombinations(t *testing.T) {
	run := large(1)
	for i := range 1000 {
		run.Cells[0].Workload.Groups = append(run.Cells[0].Workload.Groups, plan.Group{Name: fmt.Sprint("g", i)})
	}
	for excluded, want := range map[int]int{100: 100_000, 1000: 0} {
		run.Excluded = make([]plan.Excluded, excluded)
		if parted, _ := perGroup(run, nil); len(parted.Excluded) != want || len(parted.Cells) != 1000 {
			t.Errorf("%d excluded combinations of 1,000 groups: got %d, with %d cells, want %d, with 1000 cells", excluded,
				len(parted.Excluded), len(parted.Cells), want)
		}
	}
}

// TestCSVIsBounded covers notes, which each line repeats. Agents and brokers determine their text.
func TestCSVIsBounded(t *testing.T) {
	run := large(1)
	run.Tables = []plan.Table{{Rows: run.Axes, Values: make([]string, 100)}}
	_, err := Files(run, []plan.Outcome{{Cell: "c0", Repetition: 1, Verdict: plan.Invalid,
		Reasons: []string{strings.Repeat("r", 1<<20)}}})
	if !errors.Is(err, plan.ErrTooLarge) {
		t.Errorf("100 lines with a note of 1 MiB: got error %v, want %v", err, plan.ErrTooLarge)
	}
}
