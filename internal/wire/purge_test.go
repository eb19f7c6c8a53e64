package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// A leader that does not know yet that another has taken the lease deletes nothing.
func TestAFormerLeaderDeletesNothing(t *testing.T) {
	t.Parallel()
	_, c, lease := bounded(t, 100_000)
	ref := Ref{Run: "r", Task: "t", Try: "y"}
	r, err := lease.TakeUp(t.Context(), "r")
	queueRun(t, c, plan.Run{ID: "r"})
	err = errors.Join(err,
		r.Assign(t.Context(), "i", Assignment{Assignment: plan.Assignment{Agent: "a", Task: plan.Task{Run: "r", ID: "t"}}, Try: "y"}),
		r.Release(t.Context(), ref, Release{Step: StepStart}), r.Outcome(t.Context(), plan.Outcome{Run: "r", Task: "t", Reasons: []string{fill(60_000)}}),
		lease.PutRun(t.Context(), RunState{Run: "r", State: string(EndDone), Copied: true}),
		c.Snapshot(t.Context(), NewKey(), Ref{Run: "invented", Task: "t", Try: "y"}, record.Snapshot{Task: "t", Agent: "a", Seq: 1}))
	if err != nil {
		t.Fatal(err)
	}
	kv, err := c.state(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other, err := json.Marshal(LeaderInfo{Epoch: lease.Epoch() + 1, Name: "other", Instance: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), keyLeader, other); err != nil {
		t.Fatal(err)
	}
	before, err := c.Stored(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	none := func(string) bool { return false }
	_, making := lease.MakeRoom(t.Context(), false, none)
	for what, err := range map[string]error{
		"clear away after an orphan": lease.Clear(t.Context(), ref), "delete assignments": r.Unassign(t.Context(), ref), "delete releases": r.Unrelease(t.Context(), ref),
		"delete a submission": lease.Unqueue(t.Context(), "r", 99), "make room": making, "delete invented runs": lease.sweepOlder(t.Context(), 0, none),
	} {
		if !errors.Is(err, ErrFenced) && !errors.Is(err, ErrLeaseLost) {
			t.Errorf("%s: %v: want to read that another leads", what, err)
		}
	}
	if after, err := c.Stored(t.Context()); err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("%v is left of %v, %v", after, before, err)
	}
}

// What comes while something is being deleted stays.
func TestOnlyWhatWasThereIsDeleted(t *testing.T) {
	t.Parallel()
	_, c, lease := bounded(t, 100_000)
	ref := Ref{Run: "r", Task: "t", Try: "y"}
	for _, step := range []Step{StepOpen, StepStart, StepFinish} {
		if err := lease.Release(t.Context(), ref, Release{Step: step}); err != nil {
			t.Fatal(err)
		}
	}
	if err := lease.purge(t.Context(), streamReleases, 2, subjectRelease(ref)); err != nil {
		t.Fatal(err)
	}
	if made, err := c.Released(t.Context(), ref); err != nil || len(made) != 1 || made[0].Step != StepFinish {
		t.Errorf("left are %+v, %v: want the last", made, err)
	}
	if err := lease.Clear(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if made, err := c.Released(t.Context(), ref); err != nil || len(made) != 0 {
		t.Errorf("left are %+v, %v: want none", made, err)
	}
}
