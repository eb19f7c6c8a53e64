package controller

import (
	"errors"
	"log/slog"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
)

// An agent that is asked to contact a broker cannot store snapshots: the record would begin with them, before the plan
// of the run, and could not be read.
func TestAProbeHasNoSnapshots(t *testing.T) {
	agent := wire.AgentInfo{}
	agent.Agent = "a"
	m := newMailbox(slog.New(slog.DiscardHandler), plan.Task{Run: "r", ID: "contact"}, []*part{{agent: agent}})
	o := &runOwnership{}
	defer o.own(m)()
	if err := o.snapshot(t.Context(), m.ref, record.Snapshot{Agent: "a"}); !errors.Is(err, wire.ErrNoAttempt) {
		t.Errorf("snapshot of a probe: got error %v, want %v", err, wire.ErrNoAttempt)
	}
}
