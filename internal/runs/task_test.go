package runs

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// A failed attempt is stored with its outcome. Copying the same record again from the beginning changes nothing.
func TestFailedAttemptIsStored(t *testing.T) {
	root := t.TempDir()
	task := someRun("run-1").Tasks()[0]
	failed := plan.FailedAttempt{Name: "first", Kind: plan.FailedAgentLost,
		Reason: "agent a was lost in measure, amqp://u:hunter2@h/"}
	lost := judge.Judge(task, record.NewMerged(), judge.Facts{Failure: failed.Reason, Kind: failed.Kind})
	copied := func(snapshots int, second bool) *Run {
		t.Helper()
		r := create(t, root, "run-1")
		if err := r.BeginAttempt(task.ID, "first"); !errors.Is(err, ErrDone) {
			if err != nil {
				t.Fatal(err)
			}
			for i := range snapshots {
				if err := r.Append(task.ID, record.Snapshot{Agent: "a", Seq: uint64(i + 1),
					At: int64(i + 1)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !second {
			return r
		}
		if err := r.EndAttempt("first", lost); err != nil {
			t.Fatal(err)
		}
		if r.Done(task.ID) {
			t.Fatal("an attempt that does not count makes the task done")
		}
		if err := r.BeginAttempt(task.ID, "second"); err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := copied(2, false)
	first.Close()
	path := filepath.Join(first.Dir(), "tasks", task.ID, snapshotFile)
	text, err := os.ReadFile(path)
	if err == nil { // killed while writing a line
		err = os.WriteFile(path, append(text, []byte(`{"agent":"a","seq":3,`)...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	copied(3, true).Close()
	last := copied(3, true) // again, with the second attempt started
	kept := filepath.Join(last.Dir(), "tasks", task.ID+".attempt1")
	text, err = os.ReadFile(filepath.Join(kept, snapshotFile))
	if lines := strings.Count(string(text), "\n"); err != nil || lines != 3 ||
		strings.Contains(string(text), `"seq":3,{`) {
		t.Errorf("the first attempt has %d snapshots, %v; want 3, each once:\n%s", lines, err, text)
	}
	if _, err := os.Stat(filepath.Join(last.Dir(), "tasks", task.ID+".attempt2")); err == nil {
		t.Error("copying again made an attempt of its own")
	}
	if err := last.BeginAttempt(task.ID, "first"); !errors.Is(err, ErrDone) {
		t.Errorf("an attempt that is kept was begun again: %v", err)
	}
	o := judge.Judge(task, record.NewMerged(), judge.Facts{})
	o.Attempt, o.FailedAttempts = 2, []plan.FailedAttempt{failed}
	if err := last.Finish(o); err != nil {
		t.Fatal(err)
	}
	stored, err := last.Outcomes()
	if err != nil || len(stored) != 1 || !strings.Contains(strings.Join(stored[0].Warnings, "\n"),
		"attempt 1 of this task is not counted: agent-lost: agent a was lost") {
		t.Errorf("the outcome is %+v, %v", stored, err)
	}
	again, err := last.Rejudge(task.ID)
	if err != nil || again.Attempt != 2 || len(again.FailedAttempts) != 1 ||
		strings.Join(again.Warnings, "\n") != strings.Join(stored[0].Warnings, "\n") {
		t.Errorf("judged again: %+v, %v", again, err)
	}
	var failedAttempt plan.Outcome
	text, err = os.ReadFile(filepath.Join(kept, outcomeFile))
	if err == nil {
		err = json.Unmarshal(text, &failedAttempt)
	}
	if err != nil || failedAttempt.Verdict != plan.Unknown || failedAttempt.Failure != plan.FailedAgentLost {
		t.Errorf("of the first attempt is kept %+v, %v", failedAttempt, err)
	}
	for _, file := range []string{filepath.Join(kept, outcomeFile),
		filepath.Join(last.Dir(), "tasks", task.ID, outcomeFile)} {
		if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "hunter2") {
			t.Errorf("%s contains a password, or is not there (%v)", file, err)
		}
	}
}

// Steps of a search are attempts of its task: each keeps its record, none counts as interrupted, and the outcome can be
// computed again from the last one.
func TestSearchKeepsTheRecordOfEveryStep(t *testing.T) {
	r := create(t, t.TempDir(), "run-1")
	task := r.Plan().Tasks()[0]
	begin := func(attempt string) {
		if err := r.BeginAttempt(task.ID, attempt); err != nil {
			t.Fatal(err)
		}
	}
	begin("broken-off")
	if err := r.Append(task.ID, record.Snapshot{Agent: "a", Seq: 1, At: 7}); err != nil {
		t.Fatal(err)
	}
	begin("one")
	if err := r.Append(task.ID, record.Snapshot{Agent: "a", Seq: 1, At: 8}); err != nil {
		t.Fatal(err)
	}
	begin("two")
	m := record.NewMerged()
	last := task.Step(500, plan.Duration(time.Second))
	o := judge.Searched(task, judge.Judge(last, m,
		judge.Facts{Started: time.Unix(1, 0).UTC(), Ended: time.Unix(2, 0).UTC()}),
		plan.SearchResult{Why: "out of steps", Steps: []plan.Step{
			{Rate: 1000, Attempt: "one", Kind: plan.StepBracket, Answer: plan.AnswerFailed},
			{Rate: 500, Attempt: "two", Kind: plan.StepBracket, Answer: plan.AnswerHeld,
				Measure: plan.Duration(time.Second)}}})
	if err := r.Finish(o); err != nil {
		t.Fatal(err)
	}
	stored, err := r.Outcomes()
	if err != nil || len(stored) != 1 {
		t.Fatal(stored, err)
	}
	if w := strings.Join(stored[0].Warnings, "\n"); strings.Count(w, "was interrupted") != 1 ||
		!strings.Contains(w, "attempt 1 ") {
		t.Errorf("the warnings are %q, want one on the attempt that was broken off", w)
	}
	if text, err := os.ReadFile(filepath.Join(r.Dir(), "tasks", task.ID+".attempt2", "snapshots.jsonl")); err != nil ||
		!strings.Contains(string(text), `"at":8`) {
		t.Errorf("the record of the first step: %s, %v", text, err)
	}
	again, err := r.Rejudge(task.ID)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := canonical(t, again), canonical(t, stored[0]); a != b {
		t.Errorf("judged again:\n%s\nstored:\n%s", a, b)
	}
}

// A search that ends for lack of agents has the outcome of its last complete step. Its record is the record of that
// step, although another attempt began after it.
func TestSearchThatEndsEarlyHasTheRecordOfItsLastStep(t *testing.T) {
	for _, lost := range []string{"the attempt ended", "the attempt was interrupted"} {
		t.Run(lost, func(t *testing.T) {
			r := create(t, t.TempDir(), "run-1")
			task := r.Plan().Tasks()[0]
			for _, attempt := range []string{"one", "two"} {
				if err := r.BeginAttempt(task.ID, attempt); err != nil {
					t.Fatal(err)
				}
				s := recorded(task)
				if attempt == "two" { // it sent fewer messages
					s.Windows = s.Windows[:1]
				}
				if err := r.Append(task.ID, s); err != nil {
					t.Fatal(err)
				}
			}
			if lost == "the attempt ended" {
				failed := judge.Judge(task, record.NewMerged(), judge.Facts{Failure: lost, Kind: plan.FailedAgentLost})
				if err := r.EndAttempt("two", failed); err != nil {
					t.Fatal(err)
				}
			}
			m := record.NewMerged()
			m.Add(recorded(task))
			measure := task.Cell.Workload.Measure
			o := judge.Searched(task, judge.Judge(task.Step(1000, measure), m,
				judge.Facts{Started: time.Unix(1, 0).UTC(), Ended: time.Unix(2, 0).UTC()}),
				plan.SearchResult{Why: "too few agents", Steps: []plan.Step{{Rate: 1000, Attempt: "one",
					Kind: plan.StepBracket, Answer: plan.AnswerHeld, Measure: measure}}})
			if err := r.Finish(o); err != nil {
				t.Fatal(err)
			}
			stored, err := r.Outcome(task.ID)
			if err != nil {
				t.Fatal(err)
			}
			again, err := r.Rejudge(task.ID)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := canonical(t, again), canonical(t, stored); a != b {
				t.Errorf("judged again:\n%s\nstored:\n%s", a, b)
			}
			got, err := r.Record(task.ID)
			if n := m.Total(record.Sent); err != nil || got.Total(record.Sent) != n {
				t.Errorf("the record has %d messages, want %d (%v)", got.Total(record.Sent), n, err)
			}
			want, err := r.Histograms(task.ID)
			if err != nil || len(want) == 0 {
				t.Fatalf("no histograms (%v)", err)
			}
			for name, text := range want {
				if stored, err := os.ReadFile(filepath.Join(r.Dir(), "tasks", task.ID, name)); string(stored) != string(text) {
					t.Errorf("%s differs from the record (%v)", name, err)
				}
			}
		})
	}
}

// The outcome of a stored attempt is not written again.
func TestEndAttemptTwice(t *testing.T) {
	r := create(t, t.TempDir(), "run-1")
	task := r.Plan().Tasks()[0]
	if err := r.BeginAttempt(task.ID, "first"); err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{"agent a was lost", "agent b was lost"} {
		o := judge.Judge(task, record.NewMerged(), judge.Facts{Failure: reason, Kind: plan.FailedAgentLost})
		if err := r.EndAttempt("first", o); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(r.Dir(), "tasks", task.ID+".attempt1", outcomeFile))
	if err != nil || !strings.Contains(string(text), "agent a was lost") {
		t.Errorf("the outcome was written again: %s, %v", text, err)
	}
}

// TestRecordsThatNeedMuchMemoryAreNotRead writes small snapshots that unpack to much memory, as the author of a foreign
// record may do.
func TestRecordsThatNeedMuchMemoryAreNotRead(t *testing.T) {
	r := create(t, t.TempDir(), "run-1")
	task := r.Plan().Tasks()[0].ID
	var w record.Window
	for v := int64(1); v < int64(time.Hour); v += int64(1) << max(0, bits.Len64(uint64(v))-11) {
		w.RecordN(record.Publish, v, 1)
	}
	dense, err := json.Marshal(w.Hists[record.Publish])
	if err != nil {
		t.Fatal(err)
	}
	sparse := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\x00\x03\x00\x00", 16_000)))
	for what, line := range map[string]func(n int) string{
		"histograms": func(n int) string {
			windows := make([]string, 30)
			for i := range windows {
				windows[i] = fmt.Sprintf(`{"index":%d,"hists":{"publish":%s}}`, 30*n+i, dense)
			}
			return fmt.Sprintf(`{"agent":"a","seq":%d,"windows":[%s]}`, n+1, strings.Join(windows, ","))
		},
		"pages": func(n int) string {
			return fmt.Sprintf(`{"agent":"a","seq":%d,"sets":[{"kind":"sent","publisher":%d,"pages":%q}]}`, n+1, n, sparse)
		},
	} {
		attempt := "x-" + what
		if err := r.BeginAttempt(task, attempt); err != nil {
			t.Fatal(err)
		}
		dir := r.tasks(task)
		var text strings.Builder
		for n := range 20 {
			text.WriteString(line(n) + "\n")
		}
		if err := os.WriteFile(dir.file(snapshotFile), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := r.Record(task)
		if !errors.Is(err, plan.ErrTooLarge) || !strings.Contains(err.Error(), "record of task "+task+
			": its snapshots need more than") {
			t.Errorf("%s: a record of %d bytes: %v", what, text.Len(), err)
		}
	}
}

// Judging a record allocates memory for every second that it spans.
func TestSnapshotsWithImpossibleTimesAreSkipped(t *testing.T) {
	for _, c := range []struct {
		line string
		skip bool
	}{
		{`{"agent":"a","seq":1,"lastSend":9000000000000000000}`, true},
		{`{"agent":"a","seq":1,"at":-260000000000000}`, true},
		{`{"agent":"a","seq":1,"windows":[{"index":9223372036854775807}]}`, true},
		{`{"agent":"a","seq":1,"lastSend":250000000000000,"windows":[{"index":250000}]}`, false},
	} {
		r := create(t, t.TempDir(), "run-1")
		task := r.Plan().Tasks()[0].ID
		if err := r.BeginAttempt(task, "x"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.tasks(task).file(snapshotFile), []byte(c.line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := r.Record(task)
		warning := strings.Contains(strings.Join(r.Warnings(), "\n"), fmt.Sprintf("want at most %v", record.MaxTime))
		if err != nil || warning != c.skip || (len(m.Windows()) == 0) != c.skip {
			t.Errorf("%s: got %d windows, warnings %v, error %v, want it skipped: %t", c.line, len(m.Windows()),
				r.Warnings(), err, c.skip)
		}
		r.Close()
	}
}
