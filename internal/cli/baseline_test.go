package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
)

// twoCells writes the record of a run of two cells, one repetition each, with an outcome per given verdict.
func twoCells(t *testing.T, root string, verdicts ...plan.Verdict) *runs.Run {
	t.Helper()
	cell := func(id string) plan.Cell {
		return plan.Cell{ID: id, Workload: plan.Default(),
			Broker: plan.Broker{Name: "b", Driver: "loopback", Options: []byte("{}")}}
	}
	run, err := runs.Create(root, plan.Run{Version: plan.RecordFormat, ID: "run-1", Name: "two cells", Repeat: 1,
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Cells:   []plan.Cell{cell("c0ffee"), cell("decaf0")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Close() })
	for i, v := range verdicts {
		task := run.Plan().Tasks()[i]
		if err := run.Finish(plan.Outcome{Version: plan.RecordFormat, Run: "run-1", Task: task.ID, Cell: task.Cell.ID,
			Repetition: 1, Verdict: v}); err != nil {
			t.Fatal(err)
		}
	}
	return run
}

// A run without comparable values cannot be a baseline. A run with some is one, with a remark. The name must be valid
// in rules.
func TestBaselinesNeedAValidRepetition(t *testing.T) {
	for name, x := range map[string]struct {
		verdicts       []plan.Verdict
		args           []string
		refused, about string
	}{
		"none":    {nil, nil, "no valid repetition", ""},
		"invalid": {[]plan.Verdict{plan.Invalid, plan.Unknown}, nil, "no valid repetition", ""},
		"half":    {[]plan.Verdict{plan.Valid}, nil, "", "1 of 2 tasks have an outcome"},
		"partly":  {[]plan.Verdict{plan.Valid, plan.Invalid}, nil, "", "1 of 2 cells have a valid repetition"},
		"whole":   {[]plan.Verdict{plan.Valid, plan.Valid}, []string{"--name", "release-4.0"}, "", ""},
		"unnamed": {[]plan.Verdict{plan.Valid, plan.Valid}, []string{"--name", "a b<"}, "no rule could name it", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			twoCells(t, root, x.verdicts...)
			c := historyCommand()
			var stderr bytes.Buffer
			c.SetOut(&bytes.Buffer{})
			c.SetErr(&stderr)
			c.SetArgs(append([]string{"baseline", "set", "--runs", root, "run-1"}, x.args...))
			c.SilenceErrors, c.SilenceUsage = true, true
			err := c.ExecuteContext(t.Context())
			all, listed := history.Of(root).Baselines()
			switch {
			case listed != nil:
				t.Fatal(listed)
			case x.refused == "" && (err != nil || len(all) != 1):
				t.Errorf("%v, baselines %+v", err, all)
			case x.refused != "" && (err == nil || !strings.Contains(err.Error(), x.refused) || len(all) > 0):
				t.Errorf("%v, baselines %+v; want %q", err, all, x.refused)
			}
			if !strings.Contains(stderr.String(), x.about) || x.about == "" && stderr.Len() > 0 {
				t.Errorf("got %q, want %q", stderr.String(), x.about)
			}
		})
	}
}

// Changes on the command line are reported at the end of a rerun, too.
func TestARerunWithOtherRepetitionsDiffersAtItsEnd(t *testing.T) {
	record := twoCells(t, t.TempDir(), plan.Valid, plan.Valid)
	r := rerun{plan: record.Plan()}
	r.plan.Repeat = 6
	var out bytes.Buffer
	if err := r.after(&out, record); err != nil ||
		!strings.Contains(out.String(), "differed from the bundle: repetitions: 6, now 1") ||
		strings.Contains(out.String(), "nothing differed") {
		t.Errorf("%v: %s", err, &out)
	}
}

func TestBaselineRemoveConfirms(t *testing.T) {
	root := t.TempDir()
	if err := history.Of(root).SetBaseline(plan.Baseline{Name: "b", Run: "run-1"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"baseline b removed\n", `no baseline "b" in the folder ` + root} {
		var out strings.Builder
		Ctl(t.Context(), []string{"history", "baseline", "remove", "b", "--runs", root}, nil, &out, &out)
		if !strings.HasPrefix(out.String(), want) {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	}
}
