package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
)

// large is a plan with many cells.
func large() plan.Run {
	run := plan.Run{Name: "large", Repeat: 1, Agents: 2, Axes: []string{"queue", "n"}}
	at := func(queue string, n int) []plan.Coordinate {
		q, _ := json.Marshal(queue)
		x, _ := json.Marshal(n)
		return []plan.Coordinate{{Axis: "queue", Value: q}, {Axis: "n", Value: x}}
	}
	for n := range 1500 {
		queue := []string{"消息队列", "🐇", "plain"}[n%3]
		run.Cells = append(run.Cells, plan.Cell{ID: fmt.Sprintf("%012d", n), Index: n, Coordinates: at(queue, n),
			Workload: plan.Default()})
	}
	for n := range 1200 {
		x := plan.Excluded{Coordinates: at("🐇", n), Kind: "skipped", Reason: "by the pattern {n: >1499}"}
		if n%12 == 0 {
			x = plan.Excluded{Coordinates: at("plain", 7), Kind: "n/a", Reason: "loop\x1b[2J cannot do that"}
		}
		run.Excluded = append(run.Excluded, x)
	}
	return run
}

// TestPlanOfManyCells proves that a long plan is summarised, and that --all lists it.
func TestPlanOfManyCells(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := writePlan(&b, large(), false); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/plan.txt", b.String())
	var all strings.Builder
	if err := writePlan(&all, large(), true); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(all.String(), "\n"); n < 2700 || n > 2720 {
		t.Errorf("%d lines for 1,500 cells and 1,200 combinations that are left out", n)
	}
	if strings.ContainsRune(all.String(), '\x1b') {
		t.Error("control characters of a record reach the terminal")
	}
}

// TestTimeOfEnoughRepetitions proves that the note about too few repetitions uses the minimum number of adaptive
// repetitions.
func TestTimeOfEnoughRepetitions(t *testing.T) {
	until, err := rules.ParseStopRule("ci < 5%", nil)
	if err != nil {
		t.Fatal(err)
	}
	run := plan.Run{Repeat: 12, Until: &until, Tables: []plan.Table{{Columns: []string{"mode"}}}}
	for n := range 20 {
		w := plan.Default()
		w.Measure, w.Warmup = plan.Duration(10*time.Second), 0
		at := []plan.Coordinate{{Axis: "mode", Value: json.RawMessage(fmt.Sprint(n % 2))},
			{Axis: "n", Value: json.RawMessage(fmt.Sprint(n / 2))}}
		run.Cells = append(run.Cells, plan.Cell{ID: fmt.Sprint(n), Index: n, Coordinates: at, Workload: w})
	}
	once := 20 * plan.Estimate(run.Cells[0].Workload)
	want := fmt.Sprintf("require 7, the matrix has 6; repeat: 7 takes about %v instead of %v", (7 * once).Round(time.Second),
		(6 * once).Round(time.Second))
	if notes := repetitionNotes(run); len(notes) != 1 || !strings.Contains(notes[0], want) {
		t.Errorf("%q, want %q", notes, want)
	}
}
