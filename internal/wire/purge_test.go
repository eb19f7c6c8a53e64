package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire/lease"
	"example.org/lockstep/lockstep/internal/wire/subject"
	"example.org/lockstep/lockstep/test/wiretest"
)

// A leader that has not noticed that another one leads deletes nothing.
func TestAFormerLeaderDeletesNothing(t *testing.T) {
	t.Parallel()
	_, c, leader := bounded(t, 8<<20)
	r, err := leader.Acquire(t.Context(), "r")
	queueRun(t, c, plan.Run{ID: "r"})
	err = errors.Join(err, r.Outcome(t.Context(), plan.Outcome{Run: "r", Task: "t", Reasons: []string{fill(60_000)}}),
		leader.PutRun(t.Context(), RunState{Run: "r", State: string(EndDone), Copied: true}))
	if err != nil {
		t.Fatal(err)
	}
	kv, err := c.js.KeyValue(t.Context(), subject.LeaseBucket)
	if err != nil {
		t.Fatal(err)
	}
	other, err := json.Marshal(lease.Holder{Epoch: leader.Epoch() + 1, Name: "other", Instance: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), lease.Key, other); err != nil {
		t.Fatal(err)
	}
	before, err := wiretest.Stored(t.Context(), c.js)
	if err != nil {
		t.Fatal(err)
	}
	_, freeing := leader.FreeStorage(t.Context(), "", none)
	for what, err := range map[string]error{
		"delete a submission": leader.Dequeue(t.Context(), "r", 99), "free storage": freeing,
		"store a baseline": leader.PutBaseline(t.Context(), plan.BaselineRecord{Baseline: plan.Baseline{Name: "b"}}),
	} {
		if !errors.Is(err, lease.ErrFenced) && !errors.Is(err, lease.ErrLost) {
			t.Errorf("%s: %v: want lease.ErrFenced or lease.ErrLost", what, err)
		}
	}
	if after, err := wiretest.Stored(t.Context(), c.js); err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("%v is left of %v, %v", after, before, err)
	}
}

// Messages that arrive during a deletion stay.
func TestOnlyWhatWasThereIsDeleted(t *testing.T) {
	t.Parallel()
	_, c, leader := bounded(t, 8<<20)
	for range 3 {
		queueRun(t, c, plan.Run{ID: "r"})
	}
	last, err := c.lastMessage(t.Context(), subject.QueueStream, subject.Submit("r"))
	if err == nil {
		err = leader.Dequeue(t.Context(), "r", last.Seq-1)
	}
	if kept, stored := wiretest.Stored(t.Context(), c.js); err != nil || stored != nil ||
		kept[subject.Submit("r")] != 1 {
		t.Errorf("of 3 submissions are left %v, %v, %v: want the last", kept, err, stored)
	}
}
