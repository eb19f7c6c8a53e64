package digest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
)

const hostile = `</script><b>|*x*|</b>`

// scheduledRun writes a run of n cells with three repetitions each. edit changes the measurements.
func scheduledRun(t *testing.T, root string, n, cells int, edit func(cell int, o *plan.Outcome)) compare.Recorded {
	t.Helper()
	noise := rand.New(rand.NewPCG(7, uint64(n)))
	run := plan.Run{Version: plan.RecordFormat, ID: fmt.Sprintf("run-%04d", n), Name: "nightly", Repeat: 3,
		Axes:    []string{"mode"},
		Started: time.Date(2026, 1, 1, 2, 0, 0, 0, time.UTC).AddDate(0, 0, n)}
	for i := range cells {
		run.Cells = append(run.Cells, plan.Cell{ID: fmt.Sprintf("%012x", 0xabc000+i), Index: i,
			Workload: plan.Default(), Broker: plan.Broker{Options: []byte("{}")},
			Coordinates: []plan.Coordinate{{Axis: "mode",
				Value: fmt.Appendf(nil, "%q", fmt.Sprintf("m%d%s", i, hostile))}}})
	}
	dir, err := runs.Create(root, run)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range run.Tasks() {
		level := func(x float64) plan.Value { return plan.Value{Number: x * (1 + 0.02*noise.NormFloat64())} }
		o := plan.Outcome{Version: plan.RecordFormat, Run: run.ID, Task: task.ID, Cell: task.Cell.ID,
			Index: task.Cell.Index, Repetition: task.Repetition, Verdict: plan.Valid,
			Values: map[string]plan.Value{"publish.rate": level(1000), "consume.rate": level(1000),
				"publish.p99": level(0.010), "e2e.p99": level(0.012)},
			Agents:  []plan.AgentPart{{Agent: "a1", Host: "bench-1", Version: "1.0"}},
			Subject: plan.Subject{Product: "RabbitMQ", Version: "4.0", Settings: map[string]string{"watermark": "0.4"}}}
		edit(task.Cell.Index, &o)
		o.Subject.Fingerprint = plan.Fingerprint(o.Subject)
		if err := dir.Finish(o); err != nil {
			t.Fatal(err)
		}
	}
	outcomes, err := dir.Outcomes()
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	return compare.Recorded{Run: run, Outcomes: outcomes}
}

func made(t *testing.T, root string, last compare.Recorded) Digest {
	t.Helper()
	store := history.Of(root)
	if in, err := store.Fresh(context.Background()); err != nil || len(in.Warnings) > 0 {
		t.Fatal(err, in.Warnings)
	}
	d, err := Of(last, store)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Between two scheduled runs, only a setting of the broker changed, and one cell became slower. Exactly that cell and
// that setting are reported.
func TestAChangedSettingIsNamed(t *testing.T) {
	root := t.TempDir()
	var last compare.Recorded
	const scheduledRuns, changed = 40, 38
	for n := range scheduledRuns {
		last = scheduledRun(t, root, n, 4, func(cell int, o *plan.Outcome) {
			if n < changed {
				return
			}
			o.Subject.Settings = map[string]string{"watermark": "0.8"}
			if cell == 1 {
				o.Values["publish.rate"] = plan.Value{Number: 0.8 * o.Values["publish.rate"].Number}
			}
		})
	}
	d := made(t, root, last)
	if len(d.Shifts) != 1 {
		t.Fatalf("shifts: %+v", d.Shifts)
	}
	s := d.Shifts[0]
	if s.Cell != "mode=m1"+hostile || s.Value != "publish.rate" || s.Finding != compare.Worse ||
		s.Since != "run-0038" || s.Runs != 2 || s.Change > -0.17 || s.Change < -0.23 {
		t.Errorf("%+v", s)
	}
	if want := "watermark: 0.4 → 0.8 with run-0038"; !slices.Contains(s.Causes, want) {
		t.Errorf("causes are %q, want %q", s.Causes, want)
	}
	if d.Tested != 16 || len(d.New) > 0 || len(d.Subject) > 0 || d.Worse() != 1 {
		t.Errorf("%d series told, new cells %v, different since the run before %v, %d worse", d.Tested, d.New,
			d.Subject, d.Worse())
	}
	if marks := d.Remarks(); len(marks) != 1 || marks[0].Kind != "worse" ||
		!strings.HasSuffix(marks[0].Text, ", since run-0038") {
		t.Errorf("the remarks for drawings are %+v", marks)
	}
	var md, html, text bytes.Buffer
	for _, err := range []error{d.Markdown(&md), d.HTML(&html), d.JSON(&text)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"# nightly: 1 worse", "since run-0038, 2026-02-08 02:00 UTC",
		"watermark: 0.4 → 0.8"} {
		if !strings.Contains(strings.ReplaceAll(md.String(), "\\", ""), want) {
			t.Errorf("the Markdown lacks %q:\n%s", want, &md)
		}
	}
	if strings.Contains(html.String(), "</script><b>") || strings.Contains(md.String(), "<b>") ||
		!strings.Contains(html.String(), "watermark: 0.4 → 0.8") {
		t.Errorf("the page has users' marks, or lacks the setting:\n%s", &html)
	}
}

// Digests of an unchanged run, of the first run, and of one with a new cell and a failure.
func TestQuietScheduledRuns(t *testing.T) {
	root := t.TempDir()
	d := made(t, root, scheduledRun(t, root, 0, 2, func(int, *plan.Outcome) {}))
	if d.Title() != "nightly: no earlier runs to compare with" || len(d.New) != 2 || d.Tested != 0 {
		t.Errorf("the first run: %q, %+v", d.Title(), d)
	}
	var last compare.Recorded
	for n := 1; n < 30; n++ {
		last = scheduledRun(t, root, n, 2, func(int, *plan.Outcome) {})
	}
	if d = made(t, root, last); d.Title() != "nightly: nothing got worse" || len(d.Shifts) > 0 || len(d.New) > 0 ||
		d.Tested != 8 {
		t.Errorf("an unchanged run: %q, %+v", d.Title(), d)
	}
	last = scheduledRun(t, root, 30, 3, func(cell int, o *plan.Outcome) {
		if cell == 0 && o.Repetition == 2 {
			o.Verdict, o.Reasons = plan.Invalid, []string{"3 confirmed messages were lost"}
		}
	})
	d = made(t, root, last)
	if d.Title() != "nightly: 1 problem" || len(d.New) != 1 || !strings.Contains(d.New[0], "m2") ||
		!strings.Contains(d.Problems[0], "3 confirmed") {
		t.Errorf("a run with a new cell and a failure: %q, new %q, problems %q", d.Title(), d.New, d.Problems)
	}
}
