package history

import (
	"math"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// TestSpreadOfComparableRuns proves that the spread ignores runs of another broker version or from other
// hosts, runs with a repetition that is invalid, flagged or without a number, and the compared runs.
func TestSpreadOfComparableRuns(t *testing.T) {
	root := t.TempDir()
	rates := []float64{1000, 1020, 980, 1010, 990}
	for n, rate := range rates {
		scheduledRun(t, root, n, 1, 3, func(_, repetition int, o *plan.Outcome) {
			o.Values["publish.rate"] = plan.Value{Number: rate + float64(repetition-2)}
		})
	}
	setBacklog := func(o *plan.Outcome) {
		o.Values["publish.rate"] = plan.Value{NA: string(plan.Backlog), Flags: []plan.Flag{plan.Backlog}}
	}
	for i := range 3 { // a backlog in one, two and three of three repetitions
		scheduledRun(t, root, 12+i, 1, 3, func(_, repetition int, o *plan.Outcome) {
			if o.Values["publish.rate"] = (plan.Value{Number: 1000}); repetition <= i+1 {
				setBacklog(o)
			}
		})
	}
	for i, change := range []func(*plan.Outcome){
		func(o *plan.Outcome) { o.Subject.Version = "4.1" },
		func(o *plan.Outcome) { o.Agents[0].Host = "bench-2" },
		func(o *plan.Outcome) { o.Verdict = plan.Invalid },
		func(o *plan.Outcome) { o.Values["publish.rate"] = plan.Value{NA: "no samples"} },
		func(o *plan.Outcome) { o.Values["publish.rate"] = plan.Value{Number: 1, Over: 3} },
		func(o *plan.Outcome) {
			o.Values["publish.rate"] = plan.Value{Number: 1, Flags: []plan.Flag{plan.ClientBound}}
		},
		func(*plan.Outcome) {}, // the compared run
	} {
		scheduledRun(t, root, len(rates)+i, 1, 3, func(_, repetition int, o *plan.Outcome) {
			if repetition == 2 {
				change(o)
			}
		})
	}
	run := scheduledRun(t, root, 20, 1, 3, unchanged) // later than the compared run
	s := Of(root)
	refresh(t, s)
	cell := run.Cells[0].ID
	all, err := s.spreads(cell, []string{"publish.rate", "lost"}, "run-0000", nil, firstStart.AddDate(0, 0, 11),
		"run-0011")
	if err != nil {
		t.Fatal(err)
	}
	got := all["publish.rate"]
	if got.Runs != 5 || got.Repetitions != 3 || math.Abs(got.Deviation-15.8113883) > 1e-6 || got.Relative == nil ||
		math.Abs(*got.Relative-0.0158143) > 1e-6 {
		t.Errorf("spread: got %+v, want 5 runs with a deviation of 15.8", got)
	}
	with, err := s.spreads(cell, []string{"publish.rate"}, "run-0000", nil, firstStart.AddDate(0, 0, 15), "run-0011")
	if err != nil || with["publish.rate"].Runs != 6 || with["publish.rate"].Backlogs != 2 {
		t.Errorf("spread with runs with a backlog: got %+v, error %v, want 6 runs with numbers, 2 with a backlog", with,
			err)
	}
	if lost := all["lost"]; lost.Runs != 8 || lost.Deviation != 0 || lost.Relative != nil {
		t.Errorf("spread of zeros: got %+v, want 8 runs without a relative deviation", lost)
	}
	all, err = s.spreads(cell, []string{"publish.rate"}, "elsewhere", nil, firstStart.AddDate(1, 0, 0))
	if err != nil || all["publish.rate"].Runs != 0 {
		t.Errorf("unknown base: got %+v, error %v, want no runs", all, err)
	}
	if all, err = s.spreads("none", []string{"publish.rate"}, "run-0000", nil, firstStart); err != nil ||
		len(all) != 0 {
		t.Errorf("unknown cell: got %+v, error %v, want none", all, err)
	}
}

// With an even number of repetitions, a backlog in half of them is enough, because the median is then not a number.
func TestBacklogsOfEvenRepetitions(t *testing.T) {
	for _, value := range []string{"publish.rate", "e2e.p99"} { // more is better, and less is better
		for _, repetitions := range []int{2, 4} {
			root := t.TempDir()
			var cell string
			for n := range 8 {
				cell = scheduledRun(t, root, n, 1, repetitions, func(_, repetition int, o *plan.Outcome) {
					o.Values[value] = plan.Value{Number: 1000 + float64(n)}
					if n == 5 || n == 6 && 2*repetition <= repetitions || n == 7 && 2*repetition < repetitions {
						o.Values[value] = plan.Value{NA: string(plan.Backlog), Flags: []plan.Flag{plan.Backlog}}
					}
				}).Cells[0].ID
			}
			s := Of(root)
			refresh(t, s)
			all, err := s.spreads(cell, []string{value}, "run-0000", nil, firstStart.AddDate(0, 0, 8))
			if got := all[value]; err != nil || got.Runs != 6 || got.Backlogs != 2 || got.Relative == nil ||
				!(got.Deviation < 10) {
				t.Errorf("%s, %d repetitions: got %+v, error %v, want 6 runs with numbers, 2 with a backlog", value,
					repetitions, got, err)
			}
		}
	}
}
