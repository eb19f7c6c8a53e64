package matrices

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/runs"
)

// TestNightlyIsConclusiveInItsSixthRun simulates runs of nightly.cue whose values differ by 1 % between runs and by 1 %
// between repetitions. The first is made the baseline. Its rule is inconclusive in the next four runs, met in the
// sixth, and violated in a sixth that is worse by a third.
func TestNightlyIsConclusiveInItsSixthRun(t *testing.T) {
	text, err := os.ReadFile("nightly.cue")
	if err != nil {
		t.Fatal(err)
	}
	m, err := matrix.Load("nightly.cue", text, matrix.Narrow{})
	if err != nil {
		t.Fatal(err)
	}
	expanded, err := m.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	store := history.Of(root)
	noise := rand.New(rand.NewPCG(3, 3))
	began := time.Date(2026, 1, 1, 2, 0, 0, 0, time.UTC)
	nightly := func(id string, day int, rate float64) (plan.Run, []plan.Outcome) {
		run := expanded
		run.ID, run.Version, run.Started = id, plan.RecordFormat, began.AddDate(0, 0, day)
		run.Bases = store.Bases(run)
		record, err := runs.Create(root, run)
		if err != nil {
			t.Fatal(err)
		}
		effect := map[string]float64{}
		for _, task := range run.Tasks() {
			values := map[string]plan.Value{}
			for _, v := range []struct { // fixed order, so that a seed gives the same runs
				name  string
				level float64
			}{{"publish.rate", 1000 * rate}, {"consume.rate", 1000 * rate}, {"publish.p50", 0.001 / rate}} {
				key := task.Cell.ID + v.name
				if effect[key] == 0 {
					effect[key] = 1 + 0.01*noise.NormFloat64()
				}
				values[v.name] = plan.Value{Number: v.level * effect[key] * (1 + 0.01*noise.NormFloat64())}
			}
			o := plan.Outcome{Version: plan.RecordFormat, Run: run.ID, Task: task.ID, Cell: task.Cell.ID,
				Index: task.Cell.Index, Repetition: task.Repetition, Verdict: plan.Valid,
				Values: values, Agents: []plan.AgentPart{{Agent: "a1", Host: "bench-1"}},
				Subject: plan.Subject{Product: "NATS", Version: "2.12"}}
			o.Subject.Fingerprint = plan.Fingerprint(o.Subject)
			if err := record.Finish(o); err != nil {
				t.Fatal(err)
			}
		}
		outcomes, err := record.Outcomes()
		if err != nil {
			t.Fatal(err)
		}
		if err := record.Close(); err != nil {
			t.Fatal(err)
		}
		if in, err := store.Fresh(context.Background()); err != nil || len(in.Warnings) > 0 {
			t.Fatal(err, in.Warnings)
		}
		return run, outcomes
	}
	results := func(run plan.Run, outcomes []plan.Outcome) (n map[report.Result]int, why string) {
		n = map[report.Result]int{}
		for _, r := range report.Rulings(run, outcomes) {
			n[r.Result]++
			why = r.Why
			if r.Failed() != (r.Result == report.Violated) {
				t.Errorf("%s: the rule of nightly.cue passes while it is inconclusive: %v", run.ID, r)
			}
		}
		return n, why
	}
	for day := range 5 {
		n, why := results(nightly(fmt.Sprintf("run-%d", day+1), day, 1))
		want := fmt.Sprintf("the run-to-run spread is unknown: %d of 5 earlier runs", day)
		if day == 0 {
			want = `there is no baseline "nightly"`
			if err := store.SetBaseline(plan.Baseline{Name: "nightly", Run: "run-1", Matrix: "nightly"}); err != nil {
				t.Fatal(err)
			}
		}
		if n[report.Inconclusive] != 6 || !strings.Contains(why, want) {
			t.Errorf("run %d: %v, %q; want %q", day+1, n, why, want)
		}
	}
	if n, why := results(nightly("run-6", 5, 1)); n[report.Met] != 6 ||
		!strings.Contains(why, "smallest detectable effect") {
		t.Errorf("the sixth run: %v, %q", n, why)
	}
	if n, why := results(nightly("run-6-slower", 5, 0.67)); n[report.Violated] != 6 {
		t.Errorf("a sixth run that is slower by a third: %v, %q", n, why)
	}
}
