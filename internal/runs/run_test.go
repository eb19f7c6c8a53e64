package runs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

func someRun(id string) plan.Run {
	w := plan.Default()
	return plan.Run{Version: plan.RecordFormat, ID: id, Name: "quick", Repeat: 2,
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Cells: []plan.Cell{
			{ID: "c0", Index: 0, Workload: w, Broker: plan.Broker{Name: "b", Driver: "loopback",
				Options: json.RawMessage(`{"url":"amqp://guest:hunter2@h/"}`)}},
			{ID: "c1", Index: 1, Workload: w, Broker: plan.Broker{Name: "b", Driver: "loopback",
				Options: json.RawMessage(`{}`)}},
		},
		Source: plan.Source{File: "m.cue", SHA256: "00", Text: `brokers: b: options: url: "amqp://guest:hunter2@h/"`}}
}

func create(t *testing.T, root, id string) *Run {
	t.Helper()
	r, err := Create(root, someRun(id))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// recorded is an agent's snapshot with 200 messages per second, all confirmed and every second one received.
func recorded(task plan.Task) record.Snapshot {
	log := record.NewCollector(task.Cell.Workload.Measure.D())
	rec := log.Recorder()
	sent, confirmed, received := rec.Set(record.SetKey{Kind: record.SetSent}),
		rec.Set(record.SetKey{Kind: record.SetConfirmed}), rec.Set(record.SetKey{Kind: record.SetReceived})
	last := int64(0)
	for n := uint64(0); last < int64(task.Cell.Workload.Measure.D()-5*time.Millisecond); n++ {
		last = int64(n) * int64(5*time.Millisecond)
		w := rec.Window(last, true)
		w.Counts[record.Sent]++
		w.Counts[record.Confirmed]++
		w.Record(record.Publish, int64(time.Millisecond))
		sent.Add(n)
		confirmed.Add(n)
		if n%2 == 0 {
			w.Counts[record.Received]++
			w.Counts[record.Unique]++
			w.Record(record.EndToEnd, int64(2*time.Millisecond))
			received.Add(n)
		}
	}
	rec.Flush()
	s := record.Snapshot{Task: task.ID, Agent: "a", At: int64(10 * time.Second), Clock: "clock-1",
		LastSend: last, LastConfirm: last + int64(time.Millisecond), LastDelivery: last + int64(2*time.Millisecond)}
	s.Windows, s.Sets = log.Take()
	s.Events = []record.Event{{At: 2, Kind: record.EventGap, Nanos: 5, Detail: "dial amqp://guest:hunter2@h/ failed"}}
	return s
}

// finish records a whole task and returns its outcome.
func finish(t *testing.T, r *Run, task plan.Task) plan.Outcome {
	t.Helper()
	facts := judge.Facts{
		Cores: map[string]int{"a": 2}, DrainCut: true, Started: time.Unix(1000, 0).UTC(),
		Ended:  time.Unix(1015, 0).UTC(),
		Events: []plan.Event{{At: 1, Kind: "notice", Agent: "a", Detail: "seen by the controller"}},
	}
	for i, agent := range []string{"a", "b"} {
		facts.Agents = append(facts.Agents, plan.AgentPart{Agent: agent, Index: i, Host: "h", Clock: "clock-1",
			Phase: plan.PhaseTeardown})
	}
	s, m := recorded(task), record.NewMerged()
	for range 2 { // a copy that starts again receives everything twice
		if err := r.Append(task.ID, s); err != nil {
			t.Fatal(err)
		}
	}
	m.Add(s)
	o := judge.Judge(task, m, facts)
	if err := r.Finish(o); err != nil {
		t.Fatal(err)
	}
	return o
}

func canonical(t *testing.T, o plan.Outcome) string {
	t.Helper()
	text, err := encode(o, "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRunRoundTrip(t *testing.T) {
	root := t.TempDir()
	r := create(t, root, "run-1")
	tasks := r.Plan().Tasks()
	want := finish(t, r, tasks[1])
	again, err := Open(root, "run-1")
	if err != nil {
		t.Fatal(err)
	}
	if again.Done(tasks[0].ID) || !again.Done(tasks[1].ID) {
		t.Error("done must be the task with an outcome and no other")
	}
	if got := again.DoneTasks(); len(got) != 1 || got[0] != tasks[1].ID {
		t.Errorf("done tasks are %v", got)
	}
	got, err := again.Outcomes()
	if err != nil || len(got) != 1 {
		t.Fatalf("%d outcomes, %v", len(got), err)
	}
	if a, b := canonical(t, got[0]), canonical(t, want); a != b {
		t.Errorf("the outcome changed on its way through the disk:\n%s\n%s", a, b)
	}
	if w := again.Warnings(); len(w) > 0 {
		t.Errorf("warnings of a whole record: %q", w)
	}
}

// TestRejudgingGivesTheStoredOutcome proves that outcomes can be computed from records alone.
func TestRejudgingGivesTheStoredOutcome(t *testing.T) {
	root := t.TempDir()
	r := create(t, root, "run-1")
	task := r.Plan().Tasks()[0]
	if err := r.Append(task.ID, record.Snapshot{Agent: "a", Seq: 1, At: 7}); err != nil { // an interrupted attempt
		t.Fatal(err)
	}
	if err := r.BeginAttempt(task.ID, ""); err != nil {
		t.Fatal(err)
	}
	finish(t, r, task)
	stored, err := r.Outcomes()
	if err != nil || len(stored) != 1 {
		t.Fatal(stored, err)
	}
	again, err := r.Rejudge(task.ID)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := canonical(t, again), canonical(t, stored[0]); a != b {
		t.Errorf("judged again:\n%s\nstored:\n%s", a, b)
	}
}

func TestHistogramsAreWritten(t *testing.T) {
	r := create(t, t.TempDir(), "run-1")
	task := r.Plan().Tasks()[0]
	finish(t, r, task)
	text, err := os.ReadFile(filepath.Join(r.Dir(), "tasks", task.ID, "publish.hlog"))
	if err != nil || !bytes.Contains(text, []byte("[Histogram log format version 1.3]")) {
		t.Errorf("publish.hlog is no histogram log (%v): %.100s", err, text)
	}
	if _, err := os.Stat(filepath.Join(r.Dir(), "tasks", task.ID, "publish-intended.hlog")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a series without samples has a file: %v", err)
	}
}

// The ages of unsent messages, and of those that failed without a response, are in separate files.
func TestAgesOfMessagesWithoutAnAnswerAreWritten(t *testing.T) {
	r := create(t, t.TempDir(), "run-1")
	task := r.Plan().Tasks()[0]
	w := record.NewCollector(time.Second).Recorder().Window(0, true)
	w.RecordN(record.UnsentAge, int64(5*time.Second), 10)
	w.RecordN(record.Unanswered, int64(3*time.Second), 10)
	w.RecordN(record.PublishIntended, int64(time.Second), 10)
	if err := r.Append(task.ID, record.Snapshot{Agent: "a", Seq: 1, Windows: []record.Window{*w}}); err != nil {
		t.Fatal(err)
	}
	if err := r.Finish(judge.Judge(task, record.NewMerged(), judge.Facts{})); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"unsent.hlog", "unanswered.hlog", "publish-intended.hlog"} {
		if text, err := os.ReadFile(filepath.Join(r.Dir(), "tasks", task.ID, name)); err != nil ||
			!bytes.Contains(text, []byte("Lockstep series")) {
			t.Errorf("%s: %v: %s", name, err, text)
		}
	}
}

func TestNoSecretIsWritten(t *testing.T) {
	root := t.TempDir()
	r := create(t, root, "run-1")
	task := r.Plan().Tasks()[0]
	if err := r.Append(task.ID, record.Snapshot{Agent: "a", Seq: 1,
		Events: []record.Event{{Detail: "amqp://guest:hunter2@h/ refused"}}}); err != nil {
		t.Fatal(err)
	}
	o := judge.Judge(task, record.NewMerged(), judge.Facts{Failure: `dial "amqp://guest:hunter2@h/": refused`,
		Agents: []plan.AgentPart{{Error: "amqp://guest:hunter2@h"}},
		Subject: plan.Subject{Endpoints: []string{"amqp://guest:hunter2@h/"},
			Settings: map[string]string{"url": "amqp://guest:hunter2@h/"}}})
	if err := r.Finish(o); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteFile("tables.txt", []byte("failed: amqp://guest:hunter2@h/")); err != nil {
		t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte("hunter2")) {
			t.Errorf("%s contains the password:\n%s", path, text)
		}
		return err
	})
	if err != nil || files < 5 {
		t.Errorf("looked at %d files, %v", files, err)
	}
}

func TestTruncatedOutcome(t *testing.T) {
	root := t.TempDir()
	r := create(t, root, "run-1")
	task := r.Plan().Tasks()[0]
	finish(t, r, task)
	path := filepath.Join(r.Dir(), "tasks", task.ID, "outcome.json")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, 1, len(whole) / 2, len(whole) - 3} {
		if err := os.WriteFile(path, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		again, err := Open(root, "run-1")
		if err != nil {
			t.Fatal(err)
		}
		outcomes, err := again.Outcomes()
		if err != nil || len(outcomes) != 0 || again.Done(task.ID) {
			t.Errorf("cut to %d bytes it still shows: %d outcomes, done %v, %v", cut, len(outcomes),
				again.Done(task.ID), err)
		}
		if w := again.Warnings(); len(w) != 1 || !strings.Contains(w[0], "counts as not done") {
			t.Errorf("cut to %d bytes: warnings %q", cut, w)
		}
	}
}

// TestOutcomesOfOthersAreRejected covers outcomes of another format version, and of another task.
func TestOutcomesOfOthersAreRejected(t *testing.T) {
	for name, edit := range map[string]func(*plan.Outcome){
		"version": func(o *plan.Outcome) { o.Version++ },
		"task":    func(o *plan.Outcome) { o.Task = "c1-r1" },
		"run":     func(o *plan.Outcome) { o.Run = "run-2" },
	} {
		r := create(t, t.TempDir(), "run-1")
		task := r.Plan().Tasks()[0]
		o := finish(t, r, task)
		edit(&o)
		text, err := encode(o, "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.Dir(), "tasks", task.ID, "outcome.json"), text, 0o644); err != nil {
			t.Fatal(err)
		}
		if outcomes, err := r.Outcomes(); err != nil || len(outcomes) != 0 || len(r.Warnings()) != 1 {
			t.Errorf("an outcome of another %s: %d outcomes, warnings %q, %v", name, len(outcomes), r.Warnings(), err)
		}
	}
}

// TestATemporaryFileIsNoOutcome proves that the file of an interrupted write is not read as an outcome.
func TestATemporaryFileIsNoOutcome(t *testing.T) {
	r := create(t, t.TempDir(), "run-1")
	task := r.Plan().Tasks()[0]
	o := finish(t, r, task)
	dir := filepath.Join(r.Dir(), "tasks", task.ID)
	if err := os.Rename(filepath.Join(dir, "outcome.json"), filepath.Join(dir, ".outcome.json.123.tmp")); err != nil {
		t.Fatal(err)
	}
	if r.Done(task.ID) {
		t.Fatal("a temporary file counts as an outcome")
	}
	if err := r.BeginAttempt(task.ID, ""); err != nil {
		t.Fatal(err)
	}
	if err := r.Finish(o); err != nil || !r.Done(task.ID) {
		t.Errorf("the task cannot be done again: %v", err)
	}
}

func TestTruncatedSnapshot(t *testing.T) {
	root := t.TempDir()
	r := create(t, root, "run-1")
	task := r.Plan().Tasks()[0]
	for seq := range uint64(3) {
		s := record.Snapshot{Agent: "a", Seq: seq, At: int64(seq), Host: record.HostSample{AgentCPU: 1}}
		if err := r.Append(task.ID, s); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(r.Dir(), "tasks", task.ID, "snapshots.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, whole[:len(whole)-5], 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := Open(root, "run-1")
	if err != nil {
		t.Fatal(err)
	}
	m, err := again.Record(task.ID)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(m.Hosts()["a"]); n != 2 {
		t.Errorf("%d snapshots were read, want the 2 whole ones", n)
	}
	if w := again.Warnings(); len(w) != 1 || !strings.Contains(w[0], "line 3 is truncated") {
		t.Errorf("warnings %q", w)
	}
	// A damaged line in the middle does not hide later lines.
	lines := bytes.SplitAfter(whole, []byte("\n"))
	if err := os.WriteFile(path, bytes.Join([][]byte{lines[0], []byte("{broken\n"), lines[2]}, nil),
		0o644); err != nil {
		t.Fatal(err)
	}
	if m, err = again.Record(task.ID); err != nil || len(m.Hosts()["a"]) != 2 {
		t.Errorf("%d snapshots around a broken line, %v", len(m.Hosts()["a"]), err)
	}
}

// Each group of an outcome has a broker, whose settings are redacted, too.
func TestSettingsOfGroupsAreRedacted(t *testing.T) {
	r := create(t, t.TempDir(), "run-1")
	subject := &plan.Subject{Product: "Two", Settings: map[string]string{"url": "fake://u:hunter2@h/"}}
	o := judge.Judge(r.Plan().Tasks()[0], record.NewMerged(), judge.Facts{})
	o.Groups = []plan.GroupOutcome{{Name: "small", Subject: subject}}
	if err := r.Finish(o); err != nil {
		t.Fatal(err)
	}
	kept, err := r.Outcome(o.Task)
	if err != nil {
		t.Fatal(err)
	}
	if got := kept.Groups[0].Subject.Settings["url"]; got != "fake://u:***@h/" {
		t.Errorf("the setting is stored as %q", got)
	}
	if subject.Settings["url"] != "fake://u:hunter2@h/" {
		t.Error("the outcome that was given is changed")
	}
}

// TestRunsOfAnotherFormatAreRejected opens run directories with another format number in the plan, with and without a
// field that cannot be decoded.
func TestRunsOfAnotherFormatAreRejected(t *testing.T) {
	for _, format := range []int{0, plan.RecordFormat - 1, plan.RecordFormat + 1} {
		for _, name := range []string{`"quick"`, `{"of": "another type"}`} {
			if format == 0 && name != `"quick"` {
				continue // without a format, and with an error, it is no run
			}
			root := t.TempDir()
			path := filepath.Join(create(t, root, "run-1").Dir(), "run.json")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text = bytes.Replace(text, fmt.Appendf(nil, `"version": %d`, plan.RecordFormat),
				fmt.Appendf(nil, `"version": %d`, format), 1)
			text = bytes.Replace(text, []byte(`"name": "quick"`), []byte(`"name": `+name), 1)
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("format %d: this program reads format %d: use the release", format, plan.RecordFormat)
			if _, err := Open(root, "run-1"); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("format %d: %v: want %q", format, err, want)
			}
		}
	}
}

// TestRecordsAreReadableByTheirUserOnly proves that no other user of the host can read a run's folder.
func TestRecordsAreReadableByTheirUserOnly(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("permissions are not bits of the mode")
	}
	root := filepath.Join(t.TempDir(), "runs")
	r := create(t, root, "a")
	task := r.Plan().Tasks()[0]
	if err := errors.Join(r.BeginAttempt(task.ID, "x"), r.Append(task.ID, recorded(task)),
		r.AddEvent(TimelineEvent{Kind: TimelineEnd})); err != nil {
		t.Fatal(err)
	}
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() == fs.ModeSymlink {
			return err
		}
		info, err := d.Info()
		if found++; err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil || found < 7 {
		t.Errorf("%d files and folders, %v", found, err)
	}
}
