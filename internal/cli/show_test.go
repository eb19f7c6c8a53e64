package cli

import (
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
)

// The reason why a run ended early is printed with its tables, until it is resumed.
func TestShowPrintsTheEndOfTheRun(t *testing.T) {
	root := t.TempDir()
	run := plan.Run{ID: "r", Name: "x", Repeat: 1, Started: time.Now().UTC(), Cells: []plan.Cell{{ID: "c"}}}
	record, err := runs.Create(root, run)
	if err != nil {
		t.Fatal(err)
	}
	const want = "the run has ended: quarantined: controllers failed 2 times with cell a=1"
	for i, m := range []runs.TimelineEvent{
		{Kind: runs.TimelineEnd, Text: "quarantined", Detail: "controllers failed 2 times with cell a=1"},
		{Kind: runs.TimelineStart, Task: "c-r1", Name: "again", Attempt: 1},
		{Kind: runs.TimelineEnd, Text: "done"},
	} {
		m.At = run.Started.Add(time.Duration(i) * time.Second)
		if err := record.AddEvent(m); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if code := Ctl(t.Context(), []string{"show", "--runs", root, "r"}, nil, &out, &out); code != ExitOK ||
			strings.Contains(out.String(), want) != (i == 0) {
			t.Errorf("after event %d: code %d:\n%s", i+1, code, out.String())
		}
	}
}
