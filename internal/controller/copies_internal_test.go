package controller

import (
	"testing"
	"time"

	"lockstep/internal/wire"
)

// A run that is submitted again while its record is copied has one copy at a time.
func TestARunIsCopiedOnceAtATime(t *testing.T) {
	k := &copies{cfg: Config{Copies: t.TempDir()}, of: map[string]*copying{}, backlog: make(chan struct{}, copyBeside)}
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
