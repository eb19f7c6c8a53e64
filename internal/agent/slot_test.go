package agent

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// TestSlotsExecuteTasksConcurrently proves that each slot is an agent that executes tasks independently of the others.
func TestSlotsExecuteTasksConcurrently(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newHarness(t, func(c *Config) { c.Slots = 3 }), &probe{}
		beats := make(chan wire.Heartbeat, 64)
		hand := func(h wire.Heartbeat) {
			select {
			case beats <- h:
			default:
			}
		}
		b.onHeartbeat.Store(&hand)
		slots := map[string]wire.Heartbeat{}
		awaitHeartbeats := func(enough func() bool) {
			t.Helper()
			for timeout := time.After(15 * time.Second); !enough(); {
				select {
				case h := <-beats:
					slots[h.Agent] = h
				case <-timeout:
					t.Fatalf("the expected heartbeats did not arrive; last ones: %+v", slots)
				}
			}
		}
		awaitHeartbeats(func() bool { return len(slots) == 3 })
		var refs []wire.Ref
		for _, name := range []string{"a1", "a1.2", "a1.3"} {
			h := slots[name]
			if h.Process != "a1" || h.Slots != 3 || h.Protocol == 0 {
				t.Fatalf("heartbeat of slot %s: got %+v, want process a1, 3 slots and a protocol", name, h)
			}
			b.instance = h.Instance
			refs = append(refs, b.assign("t"+name, d, func(a *plan.Assignment) { a.Agent = name }))
		}
		awaitHeartbeats(func() bool {
			return !slices.ContainsFunc(refs, func(r wire.Ref) bool { return slots[r.Task[1:]].Attempt != r })
		})
		for _, ref := range refs {
			b.release(ref, wire.Release{Step: wire.StepFinish})
			b.release(ref, wire.Release{Step: wire.StepDone})
		}
		awaitHeartbeats(func() bool {
			return !slices.ContainsFunc(refs,
				func(r wire.Ref) bool { return slots[r.Task[1:]].Attempt != (wire.Ref{}) })
		})
		if d.open.Load() != 0 {
			t.Errorf("open sessions: got %d, want 0", d.open.Load())
		}
	})
}

// TestARefusedSlotEndsTheAgent proves that an agent ends if one of its slots is rejected, because it would have too few
// slots.
func TestARefusedSlotEndsTheAgent(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s, err := wire.Embedded(t.Context(), wire.ServerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		conn, own := connect(t, s), connect(t, s)
		if err := wire.NewStore(conn, wire.StoreConfig{}).Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		stopHeartbeats, err := acquireLease(t, conn).AnswerHeartbeats(func(h wire.Heartbeat) (bool, error) {
			if h.Agent == "a1.2" && !h.Leaving {
				return false, errors.New("duplicate name")
			}
			return false, nil
		}, func(wire.Heartbeat, string) {})
		if err != nil {
			t.Fatal(err)
		}
		defer stopHeartbeats()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := Serve(ctx, wire.NewAgent(own), Config{Name: "a1", Slots: 2}); err == nil {
			t.Error("Serve with a rejected slot: got no error")
		}
	})
}

// Each step of an attempt is released once, regardless of the agent that a release names. Only the removal of the
// topology is released for one agent after the other.
func TestReleasesAreAcceptedOnce(t *testing.T) {
	var a attempts
	ref := wire.Ref{Run: "r", Task: "t", Attempt: "1"}
	in := a.add(ref)
	for _, r := range []wire.Release{{Step: wire.StepDone, Agent: "x"}, {Step: wire.StepDone},
		{Step: wire.StepTeardown, Agent: "x"}, {Step: wire.StepTeardown, Agent: "x"}, {Step: wire.StepTeardown, Agent: "y"}} {
		if err := a.release(ref, r); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(in.releases); n != 3 {
		t.Errorf("got %d releases, want 3: done, and teardown by x and y", n)
	}
}
