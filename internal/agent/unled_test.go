package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// TestAnAgentEndsAnAttemptThatNobodyLeads proves that an agent ends an attempt without a leader. The response to a
// heartbeat reports it. The agent removes the topology, also if another agent declared it, and is free long before its
// deadline.
func TestAnAgentEndsAnAttemptThatNobodyLeads(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newBench(t), &probe{}
		began := time.Now()
		ref := b.assign("t1", d, func(a *plan.Assignment) { a.Index, a.Deadline = 1, plan.Duration(time.Hour) })
		b.arrival(ref, wire.StepOpen)
		b.over.Store(&ref)
		if a := b.arrival(ref, wire.StepFinish); !strings.Contains(a.Error,
			"no controller leads the attempt") {
			t.Errorf("it finished with %q, want that nobody leads the attempt", a.Error)
		}
		b.arrival(ref, wire.StepDone)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it was free after %v", took)
		}
		if d.teardowns.Load() != 1 || d.open.Load() != 0 {
			t.Errorf("%d teardowns, %d sessions open: it did not clean up", d.teardowns.Load(), d.open.Load())
		}
	})
}

// TestAnAgentEndsAnAttemptWithoutAController proves that an agent waits some time for a controller before it ends its
// attempt.
func TestAnAgentEndsAnAttemptWithoutAController(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newBench(t), &probe{}
		ref := b.assign("t1", d, func(a *plan.Assignment) { a.Deadline = plan.Duration(time.Hour) })
		b.arrival(ref, wire.StepOpen)
		began := time.Now()
		b.leave()
		for d.open.Load() > 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took < wire.LeaderGone-2*time.Second || took > wire.LeaderGone+30*time.Second {
			t.Errorf("it gave the attempt up after %v without a controller, want %v", took, wire.LeaderGone)
		}
		if d.teardowns.Load() != 1 {
			t.Errorf("%d teardowns: it did not clean up", d.teardowns.Load())
		}
	})
}

// TestATaskEndsWithTheReasonForWhichItsAgentIsRefused proves that this reason is reported, not a request to leave.
func TestATaskEndsWithTheReasonForWhichItsAgentIsRefused(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newBench(t), &probe{}
		ref := b.assign("t1", d, func(a *plan.Assignment) { a.Deadline = plan.Duration(time.Hour) })
		b.arrival(ref, wire.StepOpen)
		refusal := errors.New("another process has taken its name")
		b.refuse.Store(&refusal)
		a := b.arrival(ref, wire.StepFinish)
		if !strings.Contains(a.Error, refusal.Error()) || strings.Contains(a.Error, "the agent was stopped") {
			t.Errorf("it finished with %q, want the refusal %q alone", a.Error, refusal)
		}
	})
}
