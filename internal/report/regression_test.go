package report

import (
	"fmt"
	"strings"
	"testing"

	"lockstep/internal/plan"
)

// compared is a run of one cell and its baseline, by the rates of their repetitions.
func compared(rule string, before, now []float64) (plan.Run, []plan.Outcome) {
	run := plan.Run{ID: "new", Name: "nightly", Repeat: len(now), Cells: []plan.Cell{{ID: "c1", Require: []plan.Rule{{Text: rule}}}}}
	base := plan.Base{Name: "nightly", Run: "old", Cells: []plan.BaseCell{{ID: "c1"}}}
	for _, rate := range before {
		base.Cells[0].Repetitions = append(base.Cells[0].Repetitions, map[string]plan.Value{"send.rate": {Number: rate}, "send.p99": {NA: "no"}})
	}
	run.Bases = []plan.Base{base}
	var outcomes []plan.Outcome
	for i, rate := range now {
		outcomes = append(outcomes, plan.Outcome{Task: fmt.Sprintf("c1-r%d", i+1), Cell: "c1", Repetition: i + 1, Verdict: plan.Valid, Values: map[string]plan.Value{"send.rate": {Number: rate}, "send.p99": {NA: "no"}}})
	}
	return run, outcomes
}

func TestNoWorseThanBaseline(t *testing.T) {
	level := func(middle float64) []float64 {
		return []float64{0.99 * middle, middle, 1.01 * middle, 0.995 * middle, 1.005 * middle}
	}
	const usual, named = "no worse than baseline by 5%", "send.rate no worse than baseline by 5% at 95%"
	for name, x := range map[string]struct {
		rule        string
		before, now []float64
		change      func(*plan.Run, []plan.Outcome)
		why         string // empty: it is met
	}{
		"the same":               {usual, level(1000), level(1000), nil, ""},
		"better":                 {named, level(1000), level(2000), nil, ""},
		"worse by less":          {named, level(1000), level(970), nil, ""},
		"worse":                  {usual, level(1000), level(900), nil, "send.rate is worse than in run old: typically -10 % over all pairs of repetitions, medians 1,000 → 900"},
		"worse, not surely":      {named, level(1000), []float64{900, 1100, 850, 1000, 900}, nil, ""},
		"too few repetitions":    {named, level(1000), []float64{900, 900}, nil, "too few; with 4 on either side it can"},
		"no number":              {"send.p99 no worse than baseline by 5%", level(1000), level(1000), nil, "no data: send.p99 has no number now, or none in run old"},
		"no baseline":            {usual, level(1000), level(1000), func(r *plan.Run, _ []plan.Outcome) { r.Bases = nil }, `there is no baseline "nightly": ctl baseline set RUN`},
		"another baseline":       {"no worse than baseline r4 by 5%", level(1000), level(1000), nil, `there is no baseline "r4"`},
		"a cell that it has not": {usual, level(1000), level(1000), func(r *plan.Run, _ []plan.Outcome) { r.Bases[0].Cells[0].ID = "other" }, "has no valid repetition of this cell"},
		"failed": {usual, level(1000), level(1000), func(_ *plan.Run, all []plan.Outcome) {
			for i := range all {
				all[i].Verdict, all[i].Reasons = plan.Unknown, []string{"it broke"}
			}
		}, "no data: it broke"},
		"no number any more": {usual, level(1000), level(1000), func(r *plan.Run, _ []plan.Outcome) {
			for _, values := range r.Bases[0].Cells[0].Repetitions {
				values["send.p99"] = plan.Value{Number: 0.001}
			}
		}, "no data: send.p99 has no number: no"},
		"nothing to compare": {usual, level(1000), level(1000), func(r *plan.Run, all []plan.Outcome) {
			for i := range all {
				all[i].Values["send.rate"] = plan.Value{NA: "no"}
			}
			for _, values := range r.Bases[0].Cells[0].Repetitions {
				values["send.rate"] = plan.Value{NA: "no"}
			}
		}, "no data: none of its values has a number"},
	} {
		run, outcomes := compared(x.rule, x.before, x.now)
		if x.change != nil {
			x.change(&run, outcomes)
		}
		got := Rulings(run, outcomes)
		if len(got) != 1 || (x.why == "") != (got[0].Why == "") || !strings.Contains(got[0].Why, x.why) {
			t.Errorf("%s: %q, want %q", name, got, x.why)
		}
	}
}

// All cells of a rule are one family: what one cell alone would show may be chance among many.
func TestRegressionsOfManyCellsAreOneFamily(t *testing.T) {
	run, outcomes := compared("send.rate no worse than baseline by 5%", []float64{1000, 1001, 1002, 1003, 1004}, []float64{900, 901, 902, 903, 904})
	if got := Rulings(run, outcomes); got[0].Why == "" {
		t.Fatalf("alone: %v", got)
	}
	cell, base, own := run.Cells[0], run.Bases[0].Cells[0], outcomes
	for i := 2; i <= 10; i++ {
		cell.ID, base.ID = fmt.Sprintf("c%d", i), fmt.Sprintf("c%d", i)
		run.Cells, run.Bases[0].Cells = append(run.Cells, cell), append(run.Bases[0].Cells, base)
		for _, o := range own {
			o.Cell = cell.ID
			outcomes = append(outcomes, o)
		}
	}
	got := Rulings(run, outcomes)
	if len(got) != 10 || !strings.Contains(got[0].Why, "too few; with 6 on either side it can") {
		t.Errorf("of ten: %v", got[0])
	}
}

// How far a cell is from what was asked for is told beside the tables, and in a strict matrix as a problem.
func TestCellsThatAreNotKnownAreNamed(t *testing.T) {
	until, err := plan.ParseUntil("ci < 5%")
	if err != nil {
		t.Fatal(err)
	}
	run, outcomes := compared("lost == 0", nil, []float64{1000, 2000, 1000, 2000, 1000, 2000})
	run.Until = &until
	const want = "cell c1: ci of send.rate is ±33.3 % after 6 repetitions, wanted: ci < 5%"
	if w, p := Warnings(run, outcomes), Problems(run, outcomes); len(w) != 1 || w[0] != want || len(p) != 0 {
		t.Errorf("warnings %q, problems %q", w, p)
	}
	if run.Strict = true; len(Problems(run, outcomes)) != 1 || len(Warnings(run, outcomes)) != 0 {
		t.Errorf("strict: %q, %q", Problems(run, outcomes), Warnings(run, outcomes))
	}
	run.Strict, run.Repeat = false, 10
	if got := Problems(run, outcomes); len(got) != 1 || got[0] != "4 of at most 10 tasks were not run" || Summary(run, outcomes) != "at most 10 tasks: 6 valid, 0 invalid, 0 unknown, 4 not run" {
		t.Errorf("broken off: %q, %q", got, Summary(run, outcomes))
	}
	for i := range outcomes {
		outcomes[i].Values["send.rate"] = plan.Value{Number: 1000}
	}
	if got := Problems(run, outcomes); len(got) != 0 || Summary(run, outcomes) != "6 tasks: 6 valid, 0 invalid, 0 unknown" {
		t.Errorf("known early: %q, %q", got, Summary(run, outcomes))
	}
}
