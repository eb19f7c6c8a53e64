package wire

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"lockstep/internal/plan"
	"lockstep/internal/schedule"
)

// An agent has the server's acknowledgements of its own messages written where it may not write itself: over the lease and a schedule, as an outcome, as the end of a
// run, into the queue, over the fence of its run. Nobody takes them for messages: the leader leads on, and the run's record is what it has written.
func TestAcknowledgementsCountForNothing(t *testing.T) {
	g := guardPlane(t)
	controller, client := link(t, g.server), g.client(t, "client")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	lease := campaign(t, controller, "test")
	serveClients(t, lease)
	must("submit", client.Submit(ctx, Submission{Run: plan.Run{ID: "r1"}}))
	leading, err := lease.TakeUp(ctx, "r1")
	must("take up", err)
	must("record the plan", leading.Plan(ctx, plan.Run{ID: "r1"}))
	must("add a schedule", client.AddSchedule(ctx, schedule.New(aDefinition, "id", "me", time.Now())))
	ref := Ref{Run: "r1", Task: "t1", Try: "y1"}
	must("release", leading.Release(ctx, ref, Release{Step: StepConsumers}))

	nc, refused := g.hostile(t, "a1")
	targets := []struct{ stream, subject string }{{stateStream, stateKeys + keyLeader}, {scheduleStream, scheduleKeys + keySchedule("x")}, {streamRecord, subjectOutcome("r1", "t9")},
		{streamRecord, subjectEvent("r1")}, {streamRecord, subjectPlan("r1")}, {streamRecord, subjectEpoch("r1")}, {streamQueue, subjectCancel("r1")}, {streamQueue, subjectSubmit("r9")},
		{streamReleases, subjectRelease(ref)}, {streamTasks, subjectAssign("a1", "i1", ref)}}
	for _, to := range targets {
		before, err := controller.top(ctx, to.stream, to.subject)
		must("look at "+to.subject, err)
		must("publish", nc.PublishMsg(&nats.Msg{Subject: subjectArrival(ref, "a1"), Reply: to.subject, Data: []byte("{}")}))
		for { // the attack works: else this test shows nothing
			now, err := controller.top(ctx, to.stream, to.subject)
			must("look at "+to.subject, err)
			if now.Seq > before.Seq {
				break
			}
			must("wait for the acknowledgement on "+to.subject, wait(ctx, 10*time.Millisecond))
		}
	}

	must("write behind the fence", leading.Event(ctx, RunEvent{Kind: RunEnded, End: &End{Reason: EndDone, Submission: 1}}))
	var events, outcomes int
	end, err := client.Follow(ctx, "r1", func(e Entry) error {
		switch {
		case e.Event != nil:
			events++
		case e.Outcome != nil:
			outcomes++
		case e.Err != nil && !errors.Is(e.Err, ErrForeign):
			return e.Err
		}
		return nil
	})
	if err != nil || end.Reason != EndDone || events != 1 || outcomes != 0 {
		t.Errorf("the run ended with %+v, %v, after %d events and %d outcomes: want one, and none", end, err, events, outcomes)
	}
	releases, err := controller.Released(ctx, ref)
	if err != nil || len(releases) != 1 {
		t.Errorf("%d releases, %v: want the one that was made", len(releases), err)
	}
	if _, err := client.Follow(ctx, "r9", func(Entry) error { return nil }); !errors.Is(err, ErrNoRun) {
		t.Errorf("follow a run that nobody submitted: %v", err)
	}
	if kept, err := client.Schedule(ctx, "x"); !errors.Is(err, ErrForeign) {
		t.Errorf("the schedule is %+v, %v: want to be told", kept, err)
	}
	queue, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	_ = controller.Queue(queue, func(r Request) { // until its time has passed
		if r.Run != "" && (r.Run != "r1" || r.Submission == nil) { // one without a run says that there is no more
			t.Errorf("in the queue is %+v", r)
		}
	})
	kv, err := controller.state(ctx)
	must("look at the state", err)
	for { // renewed
		var now LeaderInfo
		if e, err := kv.Get(ctx, keyLeader); err == nil && json.Unmarshal(e.Value(), &now) == nil && now.Epoch == lease.Epoch() {
			break
		}
		must("wait for the lease", wait(ctx, 50*time.Millisecond))
	}
	if lease.Context().Err() != nil {
		t.Errorf("the lease was lost: %v", context.Cause(lease.Context()))
	}
	if _, err := lease.TakeUp(ctx, "r1"); err != nil {
		t.Errorf("take the run up again: %v", err)
	}
	for len(refused) > 0 {
		t.Errorf("the server refused: %v", <-refused)
	}
}

// An agent that writes over a dead leader's lease again and again does not keep the next one from it.
func TestForeignWordsDoNotRenewALease(t *testing.T) {
	s := stand{conn: &Conn{}, who: LeaderInfo{Instance: "me"}, log: slog.New(slog.DiscardHandler)}
	began := time.Now()
	held := LeaderInfo{Epoch: 3, Instance: "dead"}
	s.saw(1, held, began)
	for i := range 10 {
		var foreign LeaderInfo
		_ = json.Unmarshal([]byte(`{"stream":"LOCKSTEP_RECORD","seq":7}`), &foreign)
		s.saw(uint64(i)+2, foreign, began.Add(time.Duration(i)*time.Second))
	}
	if !s.since.Equal(began) || s.revision != 11 {
		t.Errorf("renewed at %v, revision %d: want %v, and 11", s.since, s.revision, began)
	}
	s.saw(12, held, began.Add(time.Minute))
	if !s.since.Equal(began.Add(time.Minute)) {
		t.Error("a renewal of its leader was not seen")
	}
}
