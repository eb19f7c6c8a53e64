package controller

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// A run that is submitted again while its record is copied is copied only once at a time.
func TestARunIsCopiedOnceAtATime(t *testing.T) {
	k := &copies{cfg: Config{Copies: t.TempDir()}, of: map[string]*copying{}}
	k.leads.Store(true)
	first := wire.RunState{Run: "r", State: wire.StateRunning, Seq: 1}
	if begin, _ := k.begin(first); !begin {
		t.Fatal("begin of a running run: got false, want true")
	}
	again := wire.RunState{Run: "r", State: wire.StateRunning, Seq: 2, Submitted: time.Now()}
	if begin, _ := k.begin(again); begin {
		t.Error("begin of a second submission during the first copy: got true, want false")
	}
	k.end(t.Context(), first, nil)
	if begin, _ := k.begin(again); !begin {
		t.Error("begin of a second submission after the first copy: got false, want true")
	}
}

// Whether a copy is complete does not depend on the clocks of the controller and of NATS.
func TestACopyIsCompleteByItsSubmission(t *testing.T) {
	root := t.TempDir()
	dir, err := runs.Create(root, plan.Run{ID: "r"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := errors.Join(dir.AddEvent(runs.TimelineEvent{At: now, Kind: runs.TimelineEnd, Submission: 5}),
		dir.Close()); err != nil {
		t.Fatal(err)
	}
	for _, submitted := range []time.Time{now.Add(-time.Hour), now.Add(time.Hour)} {
		for seq, want := range map[uint64]bool{5: true, 6: false} {
			if got := copied(root, wire.RunState{Run: "r", Seq: seq, Submitted: submitted}); got != want {
				t.Errorf("copy of submission 5, for submission %d at %v: got %v, want %v", seq, submitted, got, want)
			}
		}
	}
}

// The state of copies does not grow with the total number of runs.
func TestCopiesOfUnlistedRunsAreForgotten(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		server, err := wire.Embedded(t.Context(), wire.ServerConfig{Log: log})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		conn, err := server.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		store := wire.NewStore(conn, wire.StoreConfig{})
		if err := store.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		k := &copies{store: store, cfg: Config{Log: log, Copies: t.TempDir()},
			of: map[string]*copying{"deleted": {whole: true}, "being copied": {now: true}}}
		ctx, stop := context.WithTimeout(t.Context(), copyEvery+copyEvery/2)
		defer stop()
		k.run(ctx) // the control plane lists no runs
		if k.of["being copied"] == nil || len(k.of) != 1 {
			t.Errorf("runs with a state: got %v, want only the one that is being copied",
				slices.Collect(maps.Keys(k.of)))
		}
	})
}
