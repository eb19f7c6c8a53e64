package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// TestRoomIsMadeOfWhatWasCopiedAlone fills a small record with runs that have ended.
func TestRoomIsMadeOfWhatWasCopiedAlone(t *testing.T) {
	t.Parallel()
	c := link(t, plane(t, ServerConfig{}))
	lease := campaign(t, c, "test")
	s, err := c.js.Stream(t.Context(), streamRecord)
	if err != nil {
		t.Fatal(err)
	}
	cfg := limited(s.CachedInfo().Config, 114_286) // 100,000 without the reserve
	if _, err := c.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for i, state := range []RunState{
		{Run: "copied", State: string(EndDone), Copied: true},
		{Run: "uncopied", State: string(EndDone)},
		{Run: "again", State: string(EndDone), Copied: true},
		{Run: "running", State: StateRunning, Copied: true},
	} {
		r, err := lease.TakeUp(t.Context(), state.Run)
		if err != nil {
			t.Fatal(err)
		}
		state.Seq = uint64(i) + 1
		if err := r.Outcome(t.Context(), plan.Outcome{Task: "t", Run: state.Run, Reasons: []string{fill(23_500)}}); err != nil {
			t.Fatal(err)
		}
		if err := lease.PutRun(t.Context(), state); err != nil {
			t.Fatal(err)
		}
	}
	needed := func(run string) bool { return run == "again" }
	if room, err := lease.room(t.Context()); err != nil || !room.Full() {
		t.Fatalf("of the record %v is used, %v: the test is to begin with more", room, err)
	}
	if room, err := lease.MakeRoom(t.Context(), false, needed); err != nil || room.Full() {
		t.Errorf("%v is used, %v", room, err)
	}
	kept, err := c.Stored(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for run, want := range map[string]bool{"copied": false, "uncopied": true, "again": true, "running": true} {
		found := false
		for subject := range kept {
			found = found || strings.HasPrefix(subject, strings.TrimSuffix(recordAll(run), ">"))
		}
		if found != want {
			t.Errorf("the record of run %s is there: %v, want %v", run, found, want)
		}
	}
}

// fill is text that does not become smaller.
func fill(n int) string {
	var b strings.Builder
	for i := uint64(1); b.Len() < n; i++ {
		fmt.Fprintf(&b, "%x", i*0x9E3779B97F4A7C15)
	}
	return b.String()[:n]
}

// bounded is a control plane whose record has a limit, with a connection that leads.
func bounded(t *testing.T, limit int64) (*Server, *Conn, *Lease) {
	t.Helper()
	s := plane(t, ServerConfig{})
	c := link(t, s)
	c.LimitRecord(limit)
	if err := c.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, c, campaign(t, c, "test")
}

// An agent whose snapshots the record has no room for waits for some; what the leader says of runs still fits.
func TestTheReserveIsForWhatControllersSay(t *testing.T) {
	t.Parallel()
	s, c, lease := bounded(t, 400_000)
	agent := link(t, s).Agent()
	r, err := lease.TakeUp(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	next, err := lease.TakeUp(t.Context(), "next")
	if err != nil {
		t.Fatal(err)
	}
	ref := Ref{Run: "r", Task: "t", Try: "y"}
	takeReports(t, r.lease, r.Snapshots(t.Context(), ref, 1<<30, func(record.Snapshot) {}))
	send := func(ctx context.Context, n uint64) error {
		return agent.Snapshot(ctx, ref, record.Snapshot{Protocol: plan.Protocol, Task: "t", Agent: "a", Seq: n, Clock: fill(30_000)})
	}
	n := uint64(1)
	for ; err == nil; n++ {
		short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err = send(short, n)
		cancel()
	}
	if n < 9 || !errors.Is(err, ErrNotStored) || Hopeless(err) {
		t.Fatalf("snapshot %d: %v: want ErrNotStored, for now", n-1, err)
	}
	for i := range 20 { // 20 KB
		if err := r.Outcome(t.Context(), plan.Outcome{Task: fmt.Sprint("t", i), Run: "r", Reasons: []string{fill(1000)}}); err != nil {
			t.Fatalf("outcome %d: %v", i, err)
		}
	}
	if err := r.Event(t.Context(), RunEvent{Kind: RunEnded, End: &End{Reason: EndDone}}); err != nil {
		t.Fatal(err)
	}
	late := make(chan error, 1)
	go func() {
		store := next.Snapshots(t.Context(), Ref{Run: "next", Task: "t", Try: "y"}, 1<<30, func(record.Snapshot) {})
		for {
			err := store.Store(t.Context(), record.Snapshot{Task: "t", Agent: "a", Seq: 1, Clock: fill(30_000)})
			if !errors.Is(err, ErrNotStored) || wait(t.Context(), retryWait) != nil {
				late <- err
				return
			}
		}
	}()
	if err := lease.PutRun(t.Context(), RunState{Run: "old", State: string(EndDone), Copied: true}); err != nil {
		t.Fatal(err)
	}
	if err := lease.PutRun(t.Context(), RunState{Run: "r", State: string(EndDone), Copied: true}); err != nil {
		t.Fatal(err)
	}
	room, err := lease.MakeRoom(t.Context(), false, func(run string) bool { return run == "next" })
	if err != nil || room.Full() {
		t.Errorf("%v used, %v: want room", room, err)
	}
	if err := <-late; err != nil {
		t.Errorf("when there is room again: %v", err)
	}
	stream, err := c.js.Stream(t.Context(), streamRecord)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lease.room(t.Context()); err != nil {
		t.Fatal(err)
	}
	if info, err := stream.Info(t.Context()); err != nil || info.Config.MaxBytes != 350_000 {
		t.Errorf("the record takes %d bytes of agents, %v: want 350,000 again", info.Config.MaxBytes, err)
	}
}

// A controller that is started without a limit keeps that of the stream, and one of an earlier release gets its reserve.
func TestTheLimitOfTheRecordStays(t *testing.T) {
	t.Parallel()
	s, c, _ := bounded(t, 800_000)
	limit := func() (int64, int64) {
		stream, err := c.js.Stream(t.Context(), streamRecord)
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().Config.MaxBytes, limitOf(stream.CachedInfo().Config)
	}
	if err := link(t, s).Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if most, of := limit(); most != 700_000 || of != 800_000 {
		t.Errorf("without a word it has become %d of %d", most, of)
	}
	stream, err := c.js.Stream(t.Context(), streamRecord)
	if err != nil {
		t.Fatal(err)
	}
	old := stream.CachedInfo().Config
	old.Metadata, old.MaxBytes = nil, 1_600_000
	if _, err := c.js.UpdateStream(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if err := link(t, s).Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if most, of := limit(); most != 1_400_000 || of != 1_600_000 {
		t.Errorf("a stream of 1,600,000 bytes has become %d of %d", most, of)
	}
}

// A list of runs that has become too long loses those that were copied alone.
func TestRunsThatNobodyCopiedAreNotForgotten(t *testing.T) {
	t.Parallel()
	_, c, lease := bounded(t, 8<<20)
	for i := range mostEnded + 2 {
		run := fmt.Sprint("r", i)
		if i < 2 {
			r, err := lease.TakeUp(t.Context(), run)
			if err == nil {
				err = r.Outcome(t.Context(), plan.Outcome{Task: "t", Run: run})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := lease.PutRun(t.Context(), RunState{Run: run, State: string(EndDone), Copied: i != 0, Seq: uint64(i) + 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := lease.ForgetRuns(t.Context(), false, func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	kept, err := c.Stored(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if kept[subjectOutcome("r0", "t")] != 1 || kept[subjectOutcome("r1", "t")] != 0 {
		t.Errorf("of the run that was not copied %d outcomes are left, of the other %d: want 1 and 0", kept[subjectOutcome("r0", "t")], kept[subjectOutcome("r1", "t")])
	}
}

// Who follows a run whose record is deleted meanwhile is told.
func TestFollowingARunThatIsDeletedEnds(t *testing.T) {
	t.Parallel()
	s, _, lease := bounded(t, 800_000)
	follower := clientOf(t, s)
	serveClients(t, lease)
	r, err := lease.TakeUp(t.Context(), "r")
	err = errors.Join(err, r.Plan(t.Context(), plan.Run{ID: "r"}), r.Event(t.Context(), RunEvent{Kind: RunAccepted}))
	queueRun(t, lease.conn, plan.Run{ID: "r"})
	if err != nil {
		t.Fatal(err)
	}
	begun, ended := make(chan bool, 9), make(chan error, 1)
	go func() {
		_, err := follower.Follow(t.Context(), "r", func(Entry) error { begun <- true; return nil })
		ended <- err
	}()
	<-begun
	if err := lease.purge(t.Context(), streamRecord, 0, recordAll("r")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("while the run is in the queue: %v", err)
	case <-time.After(2 * time.Second):
	}
	if err := lease.Unqueue(t.Context(), "r", 1); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, ErrNoRecord) || !strings.Contains(err.Error(), "deleted") {
			t.Errorf("the follower ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the follower still waits")
	}
}
