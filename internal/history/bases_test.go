package history

import (
	"strings"
	"testing"

	"lockstep/internal/plan"
)

func TestBasesOfRules(t *testing.T) {
	root := t.TempDir()
	night(t, root, 1, 2, 3, func(cell, repetition int, o *plan.Outcome) {
		o.Values["send.rate"] = plan.Value{Number: float64(1000*cell + repetition)}
		if cell == 1 && repetition == 2 {
			o.Verdict = plan.Invalid
		}
	})
	run := night(t, root, 2, 3, 1, nothing)
	run.Cells[0].Require = []plan.Rule{{Text: "lost == 0"}, {Text: "no worse than baseline by 5%"}}
	run.Cells[1].Require = []plan.Rule{{Text: "send.rate no worse than baseline release by 5%"}, {Text: "lost no worse than baseline by 5%"}}
	s := Of(root)
	if err := s.SetBaseline(plan.Baseline{Name: "nightly", Run: "night-0001"}); err != nil {
		t.Fatal(err)
	}
	all := s.Bases(run)
	if len(all) != 2 || all[0].Name != "nightly" || all[0].Why != "" || all[0].Run != "night-0001" || all[1].Name != "release" || !strings.Contains(all[1].Why, "ctl baseline set RUN") {
		t.Fatalf("%+v", all)
	}
	cells := all[0].Cells
	if len(cells) != 2 || len(cells[0].Repetitions) != 3 || len(cells[1].Repetitions) != 3 || cells[1].Repetitions[1]["lost"].NA != "invalid" {
		t.Fatalf("the cells of the baseline, with all repetitions: %+v", cells)
	}
	got := cells[1].Repetitions[2]
	if got["send.rate"].Number != 1003 || got["send.p99"].NA == "" || got["processing.p99"].Bound == 0 || len(got) != 4 {
		t.Errorf("a repetition is %+v; want what rules look at, the usual values and lost", got)
	}
	if err := s.SetBaseline(plan.Baseline{Name: "release", Run: "gone"}); err != nil {
		t.Fatal(err)
	}
	if all = s.Bases(run); !strings.Contains(all[1].Why, "the record of the baseline \"release\" cannot be read") {
		t.Errorf("%q", all[1].Why)
	}
}
