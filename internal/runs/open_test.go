package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

func TestAnotherRunWithTheSameIDIsRejected(t *testing.T) {
	root := t.TempDir()
	create(t, root, "run-1")
	other := someRun("run-1")
	other.Source.SHA256 = "ff"
	if _, err := Create(root, other); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("another matrix may write into the run: %v", err)
	}
	for _, id := range []string{"", "latest", "../x", "a/b", ".hidden"} {
		if _, err := Create(root, someRun(id)); err == nil {
			t.Errorf("%q was taken as an id", id)
		}
	}
}

// A folder without readable plans has no latest run, even if the working directory has a run of that name.
func TestNoLatestRun(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	create(t, here, "run-1").Close() // with the link "latest"
	for name, files := range map[string]map[string]string{"empty": nil, "unreadable plan": {"run-2": "{"}} {
		root := t.TempDir()
		for run, text := range files {
			if err := os.Mkdir(filepath.Join(root, run), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, run, runFile), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := Open(root, "latest"); err == nil || !strings.Contains(err.Error(), root+" contains no runs") {
			t.Errorf("%s: opened %v, %v; want an error", name, r, err)
		}
	}
}

func TestOpenByIDAndPrefix(t *testing.T) {
	root := t.TempDir()
	if _, err := Open(root, "latest"); err == nil {
		t.Error("opened the latest of no runs")
	}
	for i, id := range []string{"20260102-quick-aaaa", "20260102-quick-abbb", "20260103-slow-cccc"} {
		run := someRun(id)
		run.Started = run.Started.Add(time.Duration(i) * time.Hour)
		r, err := Create(root, run)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
	}
	for typed, want := range map[string]string{
		"20260102-quick-aaaa": "20260102-quick-aaaa",
		"20260102-quick-ab":   "20260102-quick-abbb",
		"20260103":            "20260103-slow-cccc",
		"latest":              "20260103-slow-cccc",
		filepath.Join(root, "20260102-quick-aaaa"): "20260102-quick-aaaa",
	} {
		r, err := Open(root, typed)
		if err != nil {
			t.Errorf("open %q: %v", typed, err)
			continue
		}
		if r.Plan().ID != want || filepath.Base(r.Dir()) != want {
			t.Errorf("open %q gives %s in %s, want %s", typed, r.Plan().ID, r.Dir(), want)
		}
	}
	for typed, want := range map[string][]string{
		"20260102": {"2 runs begin with it", "20260102-quick-aaaa", "20260102-quick-abbb"},
		"nope":     {"no such run", "20260102-quick-aaaa", "20260103-slow-cccc (quick, 0 of 4 tasks done)"},
		"":         {"no id given", "20260103-slow-cccc"},
	} {
		_, err := Open(root, typed)
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("open %q: error %v does not contain %q", typed, err, part)
			}
		}
	}
	if err := os.Remove(filepath.Join(root, "latest")); err != nil {
		t.Fatal(err)
	}
	if r, err := Open(root, "latest"); err != nil || r.Plan().ID != "20260103-slow-cccc" {
		t.Errorf("without the link, latest is %v, %v; want the run that started last", r, err)
	}
}

// The number of tasks of a run is a maximum while cells are repeated until a value is known well enough.
func TestErrorsNameTheMaximumOfTasks(t *testing.T) {
	root := t.TempDir()
	run := someRun("run-a")
	run.Repeat, run.Until = 8, &plan.StopRule{Rule: "p99 within 10%", Within: 0.1, Confidence: 0.9}
	r, err := Create(root, run)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const want = "run-a (quick, 0 of at most 16 tasks done)"
	if _, err := Open(root, "nope"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

func TestList(t *testing.T) {
	root := t.TempDir()
	if all, err := List(filepath.Join(root, "missing")); err != nil || len(all) != 0 {
		t.Errorf("a directory that is not there: %v, %v", all, err)
	}
	for i, id := range []string{"run-a", "run-b"} {
		run := someRun(id)
		run.Started = run.Started.Add(time.Duration(i) * time.Hour)
		r, err := Create(root, run)
		if err != nil {
			t.Fatal(err)
		}
		if id == "run-a" {
			finish(t, r, r.Plan().Tasks()[0])
		}
	}
	if err := os.Mkdir(filepath.Join(root, "not-a-run"), 0o755); err != nil {
		t.Fatal(err)
	}
	all, err := List(root)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, s := range all {
		got += fmt.Sprintf("%s %d/%d %s; ", s.ID, s.Done, s.Tasks, s.Name)
	}
	if want := "run-b 0/4 quick; run-a 1/4 quick; "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTaskIDsStayInTheDirectory(t *testing.T) {
	r := create(t, t.TempDir(), "run-1")
	for _, id := range []string{"", "../run.json", "a/b", ".", ".."} {
		if err := r.Append(id, record.Snapshot{}); err == nil {
			t.Errorf("a task called %q was recorded", id)
		}
	}
	if err := r.WriteFile("../x", nil); err == nil {
		t.Error("a file was written outside the run's directory")
	}
}

// TestGroupsStayInTheDirectory covers groups whose names are paths, which plan.ReadRun rejects.
func TestGroupsStayInTheDirectory(t *testing.T) {
	r := create(t, t.TempDir(), "run-1")
	task := r.Plan().Tasks()[0]
	s := recorded(task)
	s.Group = "x/../../y"
	if err := r.Append(task.ID, s); err != nil {
		t.Fatal(err)
	}
	err := r.Finish(plan.Outcome{Run: "run-1", Task: task.ID, Version: plan.RecordFormat})
	if err == nil || !strings.Contains(err.Error(), "the name contains a path") {
		t.Errorf("finish a task with a group x/../../y: got error %v", err)
	}
	if _, err := os.Stat(filepath.Join(r.Dir(), "tasks", "y.hlog")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("file outside the directory of the task: got error %v, want %v", err, fs.ErrNotExist)
	}
}
