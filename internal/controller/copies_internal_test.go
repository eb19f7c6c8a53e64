package controller

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// A run that is submitted again while its record is copied is copied only once at a time.
func TestARunIsCopiedOnceAtATime(t *testing.T) {
	k := &copies{cfg: Config{Copies: t.TempDir()}, of: map[string]*copying{}}
	k.leads.Store(true)
	first := wire.RunState{Run: "r", State: wire.StateRunning, Seq: 1}
	if begin, _ := k.begin(first); !begin {
		t.Fatal("a run that is executed is not copied")
	}
	again := wire.RunState{Run: "r", State: wire.StateRunning, Seq: 2, Submitted: time.Now()}
	if begin, _ := k.begin(again); begin {
		t.Error("a second copy of the run begins beside the first")
	}
	k.end(t.Context(), first, nil)
	if begin, _ := k.begin(again); !begin {
		t.Error("the second submission is not copied after the first")
	}
}

// The state of copies does not grow with the number of runs that the control plane has ever had.
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
			t.Errorf("the runs %v have a state, want only the one that is being copied", slices.Collect(maps.Keys(k.of)))
		}
	})
}
