package report

import (
	"fmt"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
)

// compared returns a run of one cell and its baseline, given by the rates of their repetitions, after nine earlier runs
// whose medians differed by 1 %.
func compared(rule string, before, now []float64) (plan.Run, []plan.Outcome) {
	run := plan.Run{ID: "new", Name: "nightly", Repeat: len(now),
		Cells: []plan.Cell{{ID: "c1", Require: []plan.Rule{{Text: rule}}}}}
	relative := 0.01
	spread := plan.RunSpread{Runs: 9, Repetitions: 5, Deviation: 10, Relative: &relative}
	base := plan.Base{Name: "nightly", Run: "old",
		Cells: []plan.BaseCell{{ID: "c1", Spreads: map[string]plan.RunSpread{"publish.rate": spread,
			"publish.p99": spread}}}}
	for _, rate := range before {
		base.Cells[0].Repetitions = append(base.Cells[0].Repetitions,
			map[string]plan.Value{"publish.rate": {Number: rate}, "publish.p99": {NA: "no"}})
	}
	run.Bases = []plan.Base{base}
	var outcomes []plan.Outcome
	for i, rate := range now {
		outcomes = append(outcomes, plan.Outcome{Task: fmt.Sprintf("c1-r%d", i+1), Cell: "c1", Repetition: i + 1,
			Verdict: plan.Valid, Values: map[string]plan.Value{"publish.rate": {Number: rate},
				"publish.p99": {NA: "no"}}})
	}
	return run, outcomes
}

func level(middle float64) []float64 {
	return []float64{0.99 * middle, middle, 1.01 * middle, 0.995 * middle, 1.005 * middle}
}

func TestNoWorseThanBaseline(t *testing.T) {
	const usual, named = "no worse than baseline by 5%", "publish.rate no worse than baseline by 5% at 95%"
	spread := func(s plan.RunSpread) func(*plan.Run, []plan.Outcome) {
		return func(r *plan.Run, _ []plan.Outcome) { r.Bases[0].Cells[0].Spreads["publish.rate"] = s }
	}
	wide := 0.04
	for name, x := range map[string]struct {
		rule        string
		before, now []float64
		change      func(*plan.Run, []plan.Outcome)
		result      Result
		why         string
	}{
		"the same": {usual, level(1000), level(1000), nil, Met,
			"smallest detectable effect: publish.rate 3.8 %"},
		"better":        {named, level(1000), level(2000), nil, Met, ""},
		"worse by less": {named, level(1000), level(980), nil, Met, ""},
		"worse by some": {named, level(1000), level(950), nil, Inconclusive,
			"publish.rate -5.0 % against run old (medians 1,000 → 950), at worst -7.5 % at 95 % (smallest detectable effect 3.8 %)"},
		"worse": {usual, level(1000), level(850), nil, Violated,
			"publish.rate -15 % against run old (medians 1,000 → 850, p = 2.5e-05, smallest detectable effect 3.8 %)"},
		"the same, with noise": {usual, level(1000), level(1000),
			spread(plan.RunSpread{Runs: 9, Repetitions: 5, Relative: &wide}), Inconclusive,
			"smallest detectable effect 14 %"},
		"first runs": {usual, level(1000), level(500), spread(plan.RunSpread{Runs: 2}), Inconclusive,
			"publish.rate: the run-to-run spread is unknown: 2 of 5 earlier runs; run the matrix until"},
		"no number": {"publish.p99 no worse than baseline by 5%", level(1000), level(1000), nil,
			Inconclusive, "no data: publish.p99 has no number in this run and in run old"},
		"no baseline": {usual, level(1000), level(1000), func(r *plan.Run, _ []plan.Outcome) { r.Bases = nil },
			Inconclusive, `no data: there is no baseline "nightly": ctl history baseline set RUN`},
		"another baseline": {"no worse than baseline r4 by 5%", level(1000), level(1000), nil, Inconclusive,
			`there is no baseline "r4"`},
		"a cell that it has not": {usual, level(1000), level(1000),
			func(r *plan.Run, _ []plan.Outcome) { r.Bases[0].Cells[0].ID = "other" }, Inconclusive,
			`the baseline "nightly" (run old) has no valid repetition of this cell`},
		"failed": {usual, level(1000), level(1000), func(_ *plan.Run, all []plan.Outcome) {
			for i := range all {
				all[i].Verdict, all[i].Reasons = plan.Unknown, []string{"it broke"}
			}
		}, Inconclusive, "no data: it broke"},
		"one failed": {usual, level(1000), level(500), func(_ *plan.Run, all []plan.Outcome) {
			all[2].Verdict, all[2].Reasons = plan.Unknown, []string{"it broke"}
		}, Inconclusive, "publish.rate: this run: 1 of 5 repetitions failed: it broke"},
		"one of the baseline failed": {usual, level(1000), level(500), func(r *plan.Run, _ []plan.Outcome) {
			r.Bases[0].Cells[0].Repetitions[1]["publish.rate"] = plan.Value{NA: "invalid"}
		}, Inconclusive, "publish.rate: run old: 1 of 5 repetitions no number: invalid"},
		"a lower bound": {"publish.rate, publish.p99 no worse than baseline by 5%", level(1000), level(1000),
			func(r *plan.Run, all []plan.Outcome) {
				for i, values := range r.Bases[0].Cells[0].Repetitions {
					values["publish.p99"], all[i].Values["publish.p99"] = plan.Value{Number: 0.001},
						plan.Value{Number: 0.001, Over: 3}
				}
				r.Bases[0].Cells[0].Spreads["publish.p99"] = plan.RunSpread{}
			}, Inconclusive, "publish.p99: this run: 5 of 5 repetitions only a lower bound; " +
				"the run-to-run spread is unknown: 0 of 5 earlier runs; more runs cannot decide"},
		"flagged": {usual, level(1000), level(500), func(_ *plan.Run, all []plan.Outcome) {
			all[2].Values["publish.rate"] = plan.Value{Number: 500, Flags: []plan.Flag{plan.ClientBound}}
		}, Inconclusive, "publish.rate: this run: client-bound"},
		"other hosts": {usual, level(1000), level(500), func(r *plan.Run, all []plan.Outcome) {
			r.Bases[0].Cells[0].Hosts = []string{"h1", "h2"}
			for i := range all {
				all[i].Agents = []plan.AgentPart{{Host: "h2"}, {Host: "h3"}}
			}
		}, Inconclusive, "publish.rate: measured from other hosts: h1, h2 and h2, h3"},
		"no number any more": {usual, level(1000), level(1000), func(r *plan.Run, _ []plan.Outcome) {
			for _, values := range r.Bases[0].Cells[0].Repetitions {
				values["publish.p99"] = plan.Value{Number: 0.001}
			}
		}, Inconclusive, "publish.p99: this run: 5 of 5 repetitions no number: no"},
		"a backlog": {usual, level(1000), level(1000), func(r *plan.Run, all []plan.Outcome) {
			for i, values := range r.Bases[0].Cells[0].Repetitions {
				values["publish.p99"], all[i].Values["publish.p99"] = plan.Value{Number: 0.001},
					plan.Value{NA: "backlog"}
			}
		}, Violated, "publish.p99: backlog in 5 of 5 repetitions, and in 0 of 5 of run old"},
		"nothing to compare": {usual, level(1000), level(1000), func(r *plan.Run, all []plan.Outcome) {
			for i := range all {
				all[i].Values["publish.rate"] = plan.Value{NA: "no"}
			}
			for _, values := range r.Bases[0].Cells[0].Repetitions {
				values["publish.rate"] = plan.Value{NA: "no"}
			}
		}, Inconclusive, "no data: none of its values is a number"},
	} {
		run, outcomes := compared(x.rule, x.before, x.now)
		if x.change != nil {
			x.change(&run, outcomes)
		}
		got := Rulings(run, outcomes)
		if len(got) != 1 || got[0].Result != x.result || !strings.Contains(got[0].Why, x.why) {
			t.Errorf("%s: %q, want %s: %q", name, got, x.result, x.why)
		}
	}
}

// All cells of a rule are one family of tests: a result that is significant for one cell may be chance among many.
func TestRegressionsOfManyCellsAreOneFamily(t *testing.T) {
	run, outcomes := compared("publish.rate no worse than baseline by 5%", level(1000), level(898))
	if got := Rulings(run, outcomes); got[0].Result != Violated {
		t.Fatalf("alone: %v", got)
	}
	cell, base, own := run.Cells[0], run.Bases[0].Cells[0], outcomes
	for i := 2; i <= 50; i++ {
		cell.ID, base.ID = fmt.Sprintf("c%d", i), fmt.Sprintf("c%d", i)
		run.Cells, run.Bases[0].Cells = append(run.Cells, cell), append(run.Bases[0].Cells, base)
		for _, o := range own {
			o.Cell = cell.ID
			outcomes = append(outcomes, o)
		}
	}
	if got := Rulings(run, outcomes); len(got) != 50 || got[0].Result != Inconclusive {
		t.Errorf("of fifty: %v", got[0])
	}
}

// A cell that misses the required precision is reported below the tables, and is a problem in a strict matrix.
func TestCellsThatAreNotKnownAreNamed(t *testing.T) {
	until, err := rules.ParseStopRule("ci < 5%", nil)
	if err != nil {
		t.Fatal(err)
	}
	run, outcomes := compared("lost == 0", nil, []float64{1000, 2000, 1000, 2000, 1000, 2000})
	run.Until = &until
	const want = "cell c1: ci of publish.rate is ±33 % after 6 repetitions, wanted: ci < 5%"
	if w, p := Warnings(run, outcomes), Problems(run, outcomes); len(w) != 1 || w[0] != want || len(p) != 0 {
		t.Errorf("warnings %q, problems %q", w, p)
	}
	if run.Strict = true; len(Problems(run, outcomes)) != 1 || len(Warnings(run, outcomes)) != 0 {
		t.Errorf("strict: %q, %q", Problems(run, outcomes), Warnings(run, outcomes))
	}
	run.Strict, run.Repeat = false, 10
	if got := Problems(run, outcomes); len(got) != 1 || got[0] != "4 of at most 10 tasks were not run" ||
		Summary(run, outcomes) != "at most 10 tasks: 6 valid, 0 invalid, 0 failed, 4 not run" {
		t.Errorf("broken off: %q, %q", got, Summary(run, outcomes))
	}
	for i := range outcomes {
		outcomes[i].Values["publish.rate"] = plan.Value{Number: 1000}
	}
	if got := Problems(run, outcomes); len(got) != 0 ||
		Summary(run, outcomes) != "6 tasks: 6 valid, 0 invalid, 0 failed" {
		t.Errorf("known early: %q, %q", got, Summary(run, outcomes))
	}
}

// TestGoldenEarlierRuns proves that tables state how many earlier runs were available to the rules, with a remedy if
// there are too few.
func TestGoldenEarlierRuns(t *testing.T) {
	var text strings.Builder
	for _, x := range []struct{ spread, available, earlier int }{{9, 14, 14}, {5, 5, 14}, {3, 3, 14}, {3, 3, 3}} {
		run, outcomes := compared("no worse than baseline by 10%", level(1000), level(1000))
		base := &run.Bases[0]
		base.Available, base.Earlier = x.available, x.earlier
		for name, spread := range base.Cells[0].Spreads {
			spread.Runs = x.spread
			base.Cells[0].Spreads[name] = spread
		}
		for i, values := range base.Cells[0].Repetitions {
			values["consume.rate"], outcomes[i].Values["consume.rate"] = values["publish.rate"], values["publish.rate"]
		}
		base.Cells[0].Spreads["consume.rate"] = base.Cells[0].Spreads["publish.rate"]
		files, err := Files(run, outcomes)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "%d of %d earlier runs available, %d from these hosts\n", x.available, x.earlier, x.spread)
		for line := range strings.Lines(string(files["tables.txt"])) {
			if strings.Contains(line, "no worse than") {
				text.WriteString("  " + line)
			}
		}
	}
	golden(t, "earlier-runs.txt", []byte(text.String()))
}
