package history

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/lockstep/lockstep/internal/plan"
)

func TestBasesOfRules(t *testing.T) {
	root := t.TempDir()
	scheduledRun(t, root, 1, 2, 3, func(cell, repetition int, o *plan.Outcome) {
		o.Values["publish.rate"] = plan.Value{Number: float64(1000*cell + repetition)}
		if cell == 1 && repetition == 2 {
			o.Verdict = plan.Invalid
		}
	})
	run := scheduledRun(t, root, 2, 3, 1, unchanged)
	run.Cells[0].Require = []plan.Rule{{Text: "lost == 0"}, {Text: "no worse than baseline by 5%"}}
	run.Cells[1].Require = []plan.Rule{{Text: "publish.rate no worse than baseline release by 5%"},
		{Text: "lost no worse than baseline by 5%"}}
	s := Of(root)
	if err := s.SetBaseline(plan.Baseline{Name: "nightly", Run: "run-0001"}); err != nil {
		t.Fatal(err)
	}
	all := s.Bases(run)
	if len(all) != 2 || all[0].Name != "nightly" || all[0].Why != "" || all[0].Run != "run-0001" ||
		all[1].Name != "release" || !strings.Contains(all[1].Why, "ctl history baseline set RUN") {
		t.Fatalf("baselines of the rules: got %+v, want nightly, and release with the reason why it is missing", all)
	}
	cells := all[0].Cells
	if len(cells) != 2 || len(cells[0].Repetitions) != 3 || len(cells[1].Repetitions) != 3 ||
		cells[1].Repetitions[1]["lost"].NA != "invalid" {
		t.Fatalf("cells of the baseline: got %+v, want 2 with 3 repetitions each", cells)
	}
	got := cells[1].Repetitions[2]
	if got["publish.rate"].Number != 1003 || got["publish.p99"].NA == "" || got["e2e.p99"].Bound == 0 || len(got) != 4 {
		t.Errorf("values of a repetition: got %+v, want those of the rules, the usual ones and lost", got)
	}
	if err := s.SetBaseline(plan.Baseline{Name: "release", Run: "gone"}); err != nil {
		t.Fatal(err)
	}
	if all = s.Bases(run); !strings.Contains(all[1].Why, "cannot read the record of the baseline \"release\"") {
		t.Errorf("baseline without a record: got %q, want \"cannot read the record\"", all[1].Why)
	}
}

// A baseline is independent of its folder: the numbers and spreads are the same in a history that contains only the
// stored baseline and the outcomes of the other runs.
func TestABaselineWithoutItsFolder(t *testing.T) {
	root := t.TempDir()
	own, other := Of(root), Of(t.TempDir())
	var baseline plan.BaselineRecord
	for n := range 6 {
		run := scheduledRun(t, root, n, 2, 3, func(cell, repetition int, o *plan.Outcome) {
			o.Values["publish.rate"] = plan.Value{Number: float64(1000*cell + 10*n + repetition)}
			o.Groups = []plan.GroupOutcome{{Name: "bulk", Verdict: plan.Valid,
				Values: map[string]plan.Value{"publish.rate": {Number: float64(500 + n)}}}}
			o.Events = []plan.Event{{Kind: plan.EventCores, Agent: "a1", Detail: "8"}, {Kind: "other"}}
			if cell == 1 && repetition == 2 {
				o.Verdict = plan.Unknown
			}
		})
		_, outcomes, err := own.Record(run.ID)
		if err == nil && n == 0 {
			baseline, _, err = NewBaseline("", "me@host", run, outcomes)
			outcomes = baseline.Outcomes
		}
		if err = errors.Join(err, other.Put(run, outcomes)); err != nil {
			t.Fatal(err)
		}
	}
	refresh(t, own)
	if err := own.SetBaseline(baseline.Baseline); err != nil {
		t.Fatal(err)
	}
	run := scheduledRun(t, t.TempDir(), 6, 2, 3, unchanged)
	run.Cells[0].Require = []plan.Rule{{Text: "publish.rate, bulk/publish.rate no worse than baseline by 5%"}}
	want, got := own.Bases(run)[0], other.Base(run, baseline)
	if d := cmp.Diff(want, got); d != "" || len(got.Cells) != 2 || got.Cells[0].Spreads["publish.rate"].Runs != 6 ||
		got.Cells[0].Hosts[0] != "bench-1 (8 cores)" {
		t.Errorf("baseline without its folder: got %+v, want that of the folder (-want +got): %s", got, d)
	}
}
