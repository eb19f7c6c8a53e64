package digest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"lockstep/internal/compare"
	"lockstep/internal/history/change"
	"lockstep/internal/plan"
	"lockstep/internal/runs"
	"lockstep/internal/stats"
)

// A night that was cut short has cells that were never run: what there is of it is told all the same.
func TestANightThatWasCutShortIsTold(t *testing.T) {
	root := t.TempDir()
	last := night(t, root, 0, 1, func(int, *plan.Outcome) {})
	run := last.Run
	run.ID, run.Started = "night-0001", run.Started.AddDate(0, 0, 1)
	never := run.Cells[0]
	never.ID, never.Index = "0123456789ab", 1
	run.Cells = append(slices.Clone(run.Cells), never)
	dir, err := runs.Create(root, run)
	if err != nil {
		t.Fatal(err)
	}
	o := last.Outcomes[0]
	o.Run, o.Task = run.ID, run.Tasks()[0].ID
	if err := dir.Finish(o); err != nil {
		t.Fatal(err)
	}
	d := made(t, root, compare.Recorded{Run: run, Outcomes: []plan.Outcome{o}}, nil)
	if len(d.Problems) > 0 || d.Title() != "nightly: not finished" {
		t.Errorf("%q, problems %q: what was not run has not failed", d.Title(), d.Problems)
	}
	var text bytes.Buffer
	if err := d.Markdown(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## Not finished", "5 of 6 tasks were not run: the run still goes on, or was stopped", "No change can be told yet: 4 series"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
}

// halfRate is a night whose send rate is half, by numbers that are doubtful.
func halfRate(_ int, o *plan.Outcome) {
	o.Values["send.rate"] = plan.Value{Number: o.Values["send.rate"].Number / 2, Flags: []plan.Flag{plan.ClientBound}}
}

// The digest of an earlier night looks back from there; and what is doubtful about numbers is said where they are called worse.
func TestWhatCameLaterIsNotLookedAt(t *testing.T) {
	root := t.TempDir()
	var slow compare.Recorded
	for n := range 18 {
		edit := func(int, *plan.Outcome) {}
		if n == 14 || n == 15 {
			edit = halfRate
		}
		if r := night(t, root, n, 1, edit); n == 15 {
			slow = r
		}
	}
	d := made(t, root, slow, nil)
	if len(d.Shifts) != 1 || d.Shifts[0].Value != "send.rate" || d.Shifts[0].Since != "night-0014" {
		t.Fatalf("of %d series it says %+v", d.Told, d.Shifts)
	}
	if line := d.Shifts[0].Line(); !strings.HasSuffix(line, ", flagged client-bound") {
		t.Error(line)
	}
}

// Numbers from other hosts are not compared, and that is said.
func TestOtherHostsAreNamed(t *testing.T) {
	root := t.TempDir()
	night(t, root, 0, 1, func(int, *plan.Outcome) {})
	last := night(t, root, 1, 1, func(_ int, o *plan.Outcome) { o.Agents[0].Host = "bench-2" })
	d := made(t, root, last, nil)
	if len(d.Subject) != 1 || !strings.HasPrefix(d.Subject[0], "hosts: bench-1 → bench-2") {
		t.Errorf("it says %q", d.Subject)
	}
}

// An outlier among the newest runs, which the alarm leaves out, is in no number of the level.
func TestAnOutlierIsNoLevel(t *testing.T) {
	series := []float64{1000, 1010, 990, 1005, 995, 1002, 998, 1001, 1003, 999, 1004, 996}
	for _, last := range [][]float64{{800, 100, 800}, {800, 800, 100}} {
		alarms, _ := change.Alarms([][]float64{append(slices.Clone(series), last...)})
		if len(alarms) != 1 || alarms[0].After != 800 {
			t.Fatalf("%v: %+v", last, alarms)
		}
		if folder, level := newLevel(append(slices.Clone(series), last...), alarms[0]); folder != 3 || level != 800 {
			t.Errorf("%v: level %v in %d runs", last, level, folder)
		}
	}
}

// Where a baseline was asked and nothing can be told, the title does not say that all is well.
func TestNothingToldIsNotNothingWorse(t *testing.T) {
	d := Digest{Matrix: "m", Against: &compare.Comparison{Values: []compare.Value{{Rows: []compare.Row{{Changes: []compare.Change{{Finding: compare.Inconclusive}}}}}}}}
	if title := d.Title(); title != "m: nothing could be told" {
		t.Error(title)
	}
	if about := d.about(); strings.Contains(about, "0 series") {
		t.Error(about)
	}
}

// The digest for programs goes into a schedule's history, beside other comparisons: it is short, and counts what it leaves out.
func TestTheDigestForProgramsAlwaysFits(t *testing.T) {
	root := t.TempDir()
	base := night(t, root, 0, 40, func(int, *plan.Outcome) {})
	last := night(t, root, 1, 40, halfRate)
	d := made(t, root, last, &base)
	for range 300 {
		d.Problems = append(d.Problems, strings.Repeat("x", 200))
	}
	var text bytes.Buffer
	if err := d.JSON(&text); err != nil {
		t.Fatal(err)
	}
	if text.Len() > mostJSON || bytes.Count(text.Bytes(), []byte("\n")) != 1 {
		t.Errorf("it is %d bytes in %d lines", text.Len(), bytes.Count(text.Bytes(), []byte("\n")))
	}
	var said struct {
		Title    string
		Lines    []string
		Problems []string
		More     map[string]int
		Against  struct{ Tests int }
	}
	if err := json.Unmarshal(text.Bytes(), &said); err != nil {
		t.Fatal(err)
	}
	if said.Title != d.Title() || len(said.Lines) == 0 || len(said.Problems)+said.More["problems"] != 300 || said.More["problems"] == 0 {
		t.Errorf("%q, %d lines, %d problems, more: %v", said.Title, len(said.Lines), len(said.Problems), said.More)
	}
}

// What differs from the baseline is told with its numbers, and without the repetitions.
func TestTheDigestForProgramsNamesWhatDiffers(t *testing.T) {
	a, b := compare.Sample{Summary: stats.Summary{N: 9, Median: 10}}, compare.Sample{Summary: stats.Summary{N: 9, Median: 5}}
	d := Digest{Matrix: "m", Baseline: "old", Against: &compare.Comparison{Sides: []compare.Side{{Mark: "A"}, {Mark: "B"}}, Values: []compare.Value{{Name: "send.rate", Rows: []compare.Row{{Cell: "abc", Name: "mode=x", Sides: []compare.Sample{a, b},
		Changes: []compare.Change{{Finding: compare.Worse, Ratio: &stats.Change{Estimate: 0.5}, Adjusted: 0.01}}}}}}}}
	var text bytes.Buffer
	if err := d.JSON(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"findings":{"worse":1}`, `"cell":"mode=x","id":"abc","value":"send.rate"`, `"before":10,"after":5,"change":-0.5,"p":0.01`, `"lines":["Against the baseline old: worse: mode=x`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %s in\n%s", want, &text)
		}
	}
}
