package runs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

func TestDeliveriesAddUp(t *testing.T) {
	root := t.TempDir()
	r := create(t, root, "run-1")
	if all := r.Deliveries(); len(all) != 0 {
		t.Errorf("a run without InfluxDB has %+v", all)
	}
	first := plan.Delivery{URL: "http://h:8086", Bucket: "b", Began: time.Unix(5, 0).UTC(), Points: 9, Written: 7,
		Dropped: 2,
		Why:     map[string]int64{"queue full": 2}, LastError: "log in to http://u:hunter2@h: refused"}
	if err := r.AddDelivery(first); err != nil {
		t.Fatal(err)
	}
	if err := create(t, root, "run-1").AddDelivery(plan.Delivery{Points: 1, Written: 1}); err != nil { // resumed
		t.Fatal(err)
	}
	all := r.Deliveries()
	if len(all) != 2 || all[0].Written != 7 || all[0].Why["queue full"] != 2 || all[1].Written != 1 ||
		!all[0].Began.Equal(first.Began) {
		t.Errorf("got %+v", all)
	}
	text, err := os.ReadFile(filepath.Join(r.Dir(), deliveryFile))
	if err != nil || strings.Contains(string(text), "hunter2") {
		t.Errorf("a password is in %s: %s, %v", deliveryFile, text, err)
	}
	if err := os.WriteFile(filepath.Join(r.Dir(), deliveryFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.AddDelivery(first); err != nil {
		t.Fatal(err)
	}
	if all := r.Deliveries(); len(all) != 1 || all[0].Written != 7 || len(r.Warnings()) != 1 {
		t.Errorf("after a writer that was killed: %+v, warnings %q", all, r.Warnings())
	}
}

// TestInterruptedCopyIsNoNewAttempt proves that copying an attempt again is not another attempt.
func TestInterruptedCopyIsNoNewAttempt(t *testing.T) {
	root := t.TempDir()
	task := someRun("run-1").Tasks()[0]
	begin := func(attempt string, at int64) *Run {
		t.Helper()
		r := create(t, root, "run-1")
		if err := r.BeginAttempt(task.ID, attempt); err != nil {
			t.Fatal(err)
		}
		if err := r.Append(task.ID, record.Snapshot{Agent: "a", Seq: uint64(at), At: at}); err != nil {
			t.Fatal(err)
		}
		return r
	}
	begin("first", 7).Close()
	if r := begin("first", 8); r.Attempt(task.ID) != 1 {
		t.Errorf("the same attempt again is number %d", r.Attempt(task.ID))
	}
	last := begin("second", 9)
	if last.Attempt(task.ID) != 2 {
		t.Errorf("another attempt is number %d", last.Attempt(task.ID))
	}
	kept, err := os.ReadFile(filepath.Join(last.Dir(), "tasks", task.ID+".attempt1", snapshotFile))
	if err != nil || strings.Count(string(kept), `"at":7`) != 1 || strings.Count(string(kept), `"at":8`) != 1 {
		t.Errorf("of the first attempt %q is kept, %v; want what both copies had", kept, err)
	}
	finish(t, last, task)
	if err := last.BeginAttempt(task.ID, "second"); err == nil {
		t.Error("a task with an outcome was begun again")
	}
	if last.Attempt(task.ID) != 2 {
		t.Errorf("the outcome is of attempt %d", last.Attempt(task.ID))
	}
}
