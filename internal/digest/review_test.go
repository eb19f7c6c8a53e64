package digest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
)

// A scheduled run that ended early lacks cells. The others are reported.
func TestIncompleteRunIsReported(t *testing.T) {
	root := t.TempDir()
	last := scheduledRun(t, root, 0, 1, func(int, *plan.Outcome) {})
	run := last.Run
	run.ID, run.Started = "run-0001", run.Started.AddDate(0, 0, 1)
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
	d := made(t, root, compare.Recorded{Run: run, Outcomes: []plan.Outcome{o}})
	if len(d.Problems) > 0 || d.Title() != "nightly: incomplete" {
		t.Errorf("%q, problems %q: what was not run has not failed", d.Title(), d.Problems)
	}
	var text bytes.Buffer
	if err := d.Markdown(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## Incomplete", "5 of 6 tasks were not run: the run is still active, or was stopped",
		"No alarm is possible yet: 4 series have too few runs."} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
}

// halfRate is a run with half of the publish rate.
func halfRate(_ int, o *plan.Outcome) {
	o.Values["publish.rate"] = plan.Value{Number: o.Values["publish.rate"].Number / 2}
}

// The digest of an earlier run ignores later runs.
func TestLaterRunsAreIgnored(t *testing.T) {
	root := t.TempDir()
	var slow compare.Recorded
	for n := range 18 {
		edit := func(int, *plan.Outcome) {}
		if n == 14 || n == 15 {
			edit = halfRate
		}
		if r := scheduledRun(t, root, n, 1, edit); n == 15 {
			slow = r
		}
	}
	d := made(t, root, slow)
	if len(d.Shifts) != 1 || d.Shifts[0].Value != "publish.rate" || d.Shifts[0].Since != "run-0014" {
		t.Fatalf("of %d series it says %+v", d.Tested, d.Shifts)
	}
}

// lines returns the first section of a digest.
func lines(d Digest) (all []string) {
	for _, l := range d.sections()[0].Lines {
		all = append(all, l.Text)
	}
	return all
}

// After 36 normal runs, one cell has a backlog in four runs. Its consume rate is 3 % lower, and its end-to-end latency
// has no number. That is reported first.
func TestBacklogIsReportedFirst(t *testing.T) {
	root := t.TempDir()
	var last compare.Recorded
	for n := range 40 {
		last = scheduledRun(t, root, n, 4, func(cell int, o *plan.Outcome) {
			if n < 36 || cell != 1 {
				return
			}
			o.Values["consume.rate"] = plan.Value{Number: 0.97 * o.Values["consume.rate"].Number,
				Flags: []plan.Flag{plan.Backlog}}
			o.Values["e2e.p99"] = plan.Value{NA: "backlog", Flags: []plan.Flag{plan.Backlog}}
		})
	}
	d := made(t, root, last)
	want := []string{"worse: mode=m1" + hostile +
		": consume.rate, e2e.p99: numeric in 36 of 36 runs, backlog since run-0036 (4 runs)"}
	if got := lines(d); !slices.Equal(got, want) || d.Worse() != 1 || d.Title() != "nightly: 1 worse" {
		t.Errorf("%s: %q, want %q", d.Title(), got, want)
	}
}

// A disqualifying flag is reported from its second run on, unless many earlier runs had it. A number after another
// status is reported for three runs. The same status in more than a third of the cells is reported once.
func TestStatusesOfScheduledRuns(t *testing.T) {
	root := t.TempDir()
	var last compare.Recorded
	for n := range 14 {
		last = scheduledRun(t, root, n, 12, func(cell int, o *plan.Outcome) {
			flagged := map[int]bool{0: n == 13, 1: n >= 12, 2: n >= 12 || n%3 == 0, 3: true, 4: n < 12, 5: n < 9}[cell]
			switch rate := o.Values["publish.rate"]; {
			case flagged:
				rate.Flags = []plan.Flag{plan.ClientBound}
				o.Values["publish.rate"] = rate
			case cell == 6 && n == 13:
				delete(o.Values, "publish.rate")
			case cell >= 7 && n == 13:
				o.Values["publish.p99"] = plan.Value{Number: 2, Over: 7}
			}
		})
	}
	want := []string{
		"worse: 5 cells: publish.p99: numeric in 13 of 13 runs, only a bound since run-0013 (1 run)",
		"worse: mode=m1" + hostile + ": publish.rate: numeric in 12 of 12 runs, client-bound since run-0012 (2 runs)",
		"worse: mode=m6" + hostile + ": publish.rate: numeric in 13 of 13 runs, missing since run-0013 (1 run)",
		"better: mode=m4" + hostile +
			": publish.rate: client-bound in 12 of 12 runs, numeric since run-0012 (2 runs)",
	}
	if got := lines(made(t, root, last)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// One slow run of all cells is one line in its digest and in the next two. A new level of all cells is one line for the
// same time, with its first run.
func TestACommonChangeIsReportedOnce(t *testing.T) {
	root := t.TempDir()
	byRun := map[int]compare.Recorded{}
	for n := range 27 {
		byRun[n] = scheduledRun(t, root, n, 6, func(_ int, o *plan.Outcome) {
			slow := func(name string) { o.Values[name] = plan.Value{Number: 0.8 * o.Values[name].Number} }
			if n == 20 {
				slow("publish.rate")
			}
			if n >= 20 {
				slow("consume.rate")
			}
		})
	}
	for run, want := range map[int][]string{19: nil, 20: {"in 1 run"}, 21: {"in 1 run", "in 2 runs"},
		22: {"in 1 run", "in 3 runs"}, 23: nil, 24: nil, 26: nil} {
		var got []string
		for _, l := range lines(made(t, root, byRun[run])) {
			if strings.HasPrefix(l, "worse: 6 of 6 cells: ") {
				l = l[strings.LastIndex(l, ", ")+2:]
			}
			got = append(got, l)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("run %d: %q, want %q", run, got, want)
		}
	}
}

// A slow run of all cells changes four values. It is one line in three digests.
func TestASlowRunOfAllValuesIsReportedOnce(t *testing.T) {
	root := t.TempDir()
	byRun := map[int]compare.Recorded{}
	for n := range 24 {
		byRun[n] = scheduledRun(t, root, n, 6, func(cell int, o *plan.Outcome) {
			for name, by := range map[string]float64{"publish.rate": 0.8, "consume.rate": 0.8, "publish.p99": 1.25,
				"e2e.p99": 1.25} {
				if n == 20 && (name != "e2e.p99" || cell < 4) {
					o.Values[name] = plan.Value{Number: by * o.Values[name].Number}
				}
			}
		})
	}
	for run := 20; run < 24; run++ {
		d := made(t, root, byRun[run])
		got := lines(d)
		if run == 23 {
			if len(got) > 0 {
				t.Errorf("run %d: %q, want nothing", run, got)
			}
			continue
		}
		want := regexp.MustCompile(`^worse: 6 of 6 cells: Consume msg/s -\d+ %, Publish p99 \+\d+ %, Publish msg/s -\d+ %; ` +
			`4 of 6 cells: End-to-end p99 \+\d+ %, in 1 run$`)
		if len(got) != 1 || !want.MatchString(got[0]) || d.Worse() != 1 || len(d.Shifts[0].Also) != 3 {
			t.Errorf("run %d: %q, want one line like %q", run, got, want)
		}
	}
}

// Numbers of other hosts are not compared, and the digest states that.
func TestOtherHostsAreNamed(t *testing.T) {
	root := t.TempDir()
	scheduledRun(t, root, 0, 1, func(int, *plan.Outcome) {})
	last := scheduledRun(t, root, 1, 1, func(_ int, o *plan.Outcome) { o.Agents[0].Host = "bench-2" })
	d := made(t, root, last)
	if len(d.Subject) != 1 || !strings.HasPrefix(d.Subject[0], "hosts: bench-1 → bench-2") {
		t.Errorf("it says %q", d.Subject)
	}
}

// The JSON digest is stored in a schedule's history, so it is short, and counts what it leaves out.
func TestMaximumSizeOfJSON(t *testing.T) {
	root := t.TempDir()
	var last compare.Recorded
	for n := range 10 {
		edit := func(int, *plan.Outcome) {}
		if n >= 8 {
			edit = func(cell int, o *plan.Outcome) {
				if cell < 12 {
					halfRate(cell, o)
				}
			}
		}
		last = scheduledRun(t, root, n, 40, edit)
	}
	d := made(t, root, last)
	for range 300 {
		d.Problems = append(d.Problems, strings.Repeat("x", 200))
	}
	var text bytes.Buffer
	if err := d.JSON(&text); err != nil {
		t.Fatal(err)
	}
	if text.Len() > maxJSON || bytes.Count(text.Bytes(), []byte("\n")) != 1 {
		t.Errorf("it is %d bytes in %d lines", text.Len(), bytes.Count(text.Bytes(), []byte("\n")))
	}
	var said struct {
		Title    string
		Lines    []string
		Problems []string
		More     map[string]int
		Shifts   []struct{ Cell, Value string }
	}
	if err := json.Unmarshal(text.Bytes(), &said); err != nil {
		t.Fatal(err)
	}
	if said.Title != d.Title() || len(said.Lines) == 0 || len(said.Problems)+said.More["problems"] != 300 ||
		said.More["problems"] == 0 || len(said.Shifts)+said.More["shifts"] != 12 {
		t.Errorf("%q, %d lines, %d problems, more: %v", said.Title, len(said.Lines), len(said.Problems), said.More)
	}
}

// A broker that was down changes the status of every cell. The output for programs still has its lines.
func TestManyCellsWithOneStatus(t *testing.T) {
	d := Digest{Run: "run-0009"}
	for n := range 600 {
		d.Statuses = append(d.Statuses, Status{Cells: []string{fmt.Sprintf("broker=rabbit mode=confirm-window nodes=3 threads=25 size=%d", n)},
			Count: 1, Values: []string{"publish.rate"}, Finding: compare.Worse,
			StatusChange: history.StatusChange{Before: "numeric", Status: "invalid", Since: "run-0009"}})
	}
	d.mergeStatuses()
	var text bytes.Buffer
	if err := d.JSON(&text); err != nil {
		t.Fatal(err)
	}
	var said struct {
		Lines    []string
		Statuses []struct{ Count int }
	}
	if err := json.Unmarshal(text.Bytes(), &said); err != nil {
		t.Fatal(err)
	}
	if text.Len() > maxJSON || len(said.Lines) == 0 || len(said.Statuses) != 1 || said.Statuses[0].Count != 600 {
		t.Errorf("%d bytes, %d lines, statuses %v", text.Len(), len(said.Lines), said.Statuses)
	}
}
