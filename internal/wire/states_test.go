package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// TestReasonsOfRunsAreShortened proves that a run with long texts does not use much of the bucket with the states of
// all runs, and that the end of each run can be stored.
func TestReasonsOfRunsAreShortened(t *testing.T) {
	s := plane(t, ServerConfig{Shared: true})
	store := storeOf(t, s)
	l := campaign(t, store, "test")
	long := strings.Repeat("ü", 5<<20)
	r, err := l.Acquire(t.Context(), "r")
	if err == nil {
		err = r.Event(t.Context(), RunEvent{Kind: RunEnded, End: &End{Reason: EndRefused, Detail: long}})
	}
	if err == nil {
		err = l.PutRun(t.Context(), RunState{Run: "r", State: string(EndRefused), Detail: long, Waiting: long})
	}
	if err != nil {
		t.Fatal(err)
	}
	state, err := store.RunState(t.Context(), "r")
	if want := long[:maxText]; err != nil || state.Detail != want || state.Waiting != want {
		t.Errorf("texts of the state: got %d and %d bytes, error %v, want %d each", len(state.Detail), len(state.Waiting), err,
			maxText)
	}
	if r, err = l.Acquire(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	detail := ""
	err = r.Review(t.Context(), func(e Entry) {
		if e.Event != nil {
			detail = e.Event.End.Detail
		}
	})
	if err != nil || detail != long[:maxText] {
		t.Errorf("detail of the end: got %d bytes, error %v, want %d", len(detail), err, maxText)
	}
}

// TestTheListOfRunsFitsIntoAnAnswer proves that texts of clients cannot make the list of runs too large to be sent. The
// server's messages have at most 1 MiB, so that few runs suffice.
func TestTheListOfRunsFitsIntoAnAnswer(t *testing.T) {
	s := plane(t, ServerConfig{Shared: true})
	store := storeOf(t, s)
	store.conn.codec.maxPayload = func() int64 { return 1 << 20 }
	l := campaign(t, store, "test")
	stop, err := l.ServeClients(nil, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	text := strings.Repeat("<", maxText) // six bytes each in JSON
	const n = 80                         // 15 KB each
	for i := range n {
		if err := l.PutRun(t.Context(), RunState{Run: fmt.Sprint(i), Seq: uint64(i), State: string(EndRefused), Detail: text,
			Name: text[:MaxName], By: text[:MaxName], Schedule: text[:MaxName]}); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := clientOf(t, s).Runs(t.Context())
	if err != nil || len(runs) != n || !strings.HasPrefix(runs[0].Detail, "<<<") {
		t.Errorf("list of runs: got %d, error %v, want %d", len(runs), err, n)
	}
}

// TestTheLeaseIsRenewedWithFullBuckets proves that nothing that clients send can use the space of the lease.
func TestTheLeaseIsRenewedWithFullBuckets(t *testing.T) {
	s := plane(t, ServerConfig{Shared: true})
	store := storeOf(t, s)
	l := campaign(t, store, "test")
	for _, name := range []string{subject.StateBucket, subject.SchedulesBucket, subject.BaselinesBucket} {
		stream, err := store.js.Stream(t.Context(), "KV_"+name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := stream.CachedInfo().Config
		cfg.MaxBytes = int64(max(1, stream.CachedInfo().State.Bytes)) // as if it were full
		if _, err := store.js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.PutRun(t.Context(), RunState{Run: "r"}); codeOf(err) != jetstream.ErrorCode(10077) {
		t.Errorf("store a state in a full bucket: got error %v, want code 10077", err)
	}
	if err := l.Lease.Confirm(t.Context()); err != nil {
		t.Errorf("renew the lease: got error %v", err)
	}
	l.Lease.Resign(t.Context())
	campaign(t, store, strings.Repeat("n", 200))
}

// TestPlansWithPathsAreNotRead proves that followers do not get a plan whose names lead out of the folder of a run.
func TestPlansWithPathsAreNotRead(t *testing.T) {
	s := plane(t, ServerConfig{Shared: true})
	l := campaign(t, storeOf(t, s), "test")
	for _, id := range []string{"ok", "a/b"} {
		r, err := l.Acquire(t.Context(), "r")
		if err == nil {
			err = r.Plan(t.Context(), plan.Run{Version: plan.RecordFormat, ID: "r", Cells: []plan.Cell{{ID: id}}})
		}
		if err == nil {
			r, err = l.Acquire(t.Context(), "r")
		}
		if err != nil {
			t.Fatal(err)
		}
		var last Entry
		err = r.Review(t.Context(), func(e Entry) {
			if e.Plan != nil || e.Err != nil {
				last = e
			}
		})
		if err != nil || (last.Err == nil) != (id == "ok") || (last.Plan == nil) == (id == "ok") {
			t.Errorf("read a plan with the cell %q: got %+v, error %v", id, last, err)
		}
	}
}
