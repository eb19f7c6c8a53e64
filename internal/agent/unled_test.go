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

// TestAgentEndsAnAttemptWithoutALeader proves that an agent ends an attempt without a leader. The response to a
// heartbeat reports it. The agent removes the topology, also if another agent declared it, and is idle long before its
// deadline.
func TestAgentEndsAnAttemptWithoutALeader(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newHarness(t), &probe{}
		begin := time.Now()
		ref := b.assign("t1", d, func(a *plan.Assignment) { a.Index, a.Deadline = 1, plan.Duration(time.Hour) })
		b.awaitArrival(ref, wire.StepOpen)
		b.unledAttempt.Store(&ref)
		if a := b.awaitArrival(ref, wire.StepFinish); !strings.Contains(a.Error,
			"no controller leads the attempt") {
			t.Errorf("error of the arrival at finish: got %q, want \"no controller leads the attempt\"", a.Error)
		}
		b.awaitArrival(ref, wire.StepDone)
		if elapsed := time.Since(begin); elapsed > 5*time.Second {
			t.Errorf("time until the agent is idle: got %v, want at most 5 s", elapsed)
		}
		if d.teardowns.Load() != 1 || d.open.Load() != 0 {
			t.Errorf("got %d teardowns, %d open sessions, want 1, 0", d.teardowns.Load(), d.open.Load())
		}
	})
}

// TestAnAgentEndsAnAttemptWithoutAController proves that an agent waits some time for a controller before it ends its
// attempt.
func TestAnAgentEndsAnAttemptWithoutAController(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newHarness(t), &probe{}
		ref := b.assign("t1", d, func(a *plan.Assignment) { a.Deadline = plan.Duration(time.Hour) })
		b.awaitArrival(ref, wire.StepOpen)
		begin := time.Now()
		b.stopController()
		for d.open.Load() > 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if elapsed := time.Since(begin); elapsed < wire.LeaderGone-2*time.Second ||
			elapsed > wire.LeaderGone+30*time.Second {
			t.Errorf("time without a controller until the attempt ends: got %v, want %v", elapsed, wire.LeaderGone)
		}
		if d.teardowns.Load() != 1 {
			t.Errorf("got %d teardowns, want 1", d.teardowns.Load())
		}
	})
}

// TestTasksOfRejectedAgentsEndWithTheReason proves that this reason is reported, not a request to leave.
func TestTasksOfRejectedAgentsEndWithTheReason(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newHarness(t), &probe{}
		ref := b.assign("t1", d, func(a *plan.Assignment) { a.Deadline = plan.Duration(time.Hour) })
		b.awaitArrival(ref, wire.StepOpen)
		rejection := errors.New("another process has taken its name")
		b.heartbeatError.Store(&rejection)
		a := b.awaitArrival(ref, wire.StepFinish)
		if !strings.Contains(a.Error, rejection.Error()) || strings.Contains(a.Error, "the agent was stopped") {
			t.Errorf("error of the arrival at finish: got %q, want only %q", a.Error, rejection)
		}
	})
}
