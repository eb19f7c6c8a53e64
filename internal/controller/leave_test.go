package controller_test

import (
	"slices"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// A draining agent finishes its task normally, gets no other one, and leaves.
func TestADrainingAgentLeavesAfterItsTask(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4", "a5")
		l.awaitAgents(5)
		steady := func(c *plan.Cell) {
			longCell(c)
			c.Workload.Measure = plan.Duration(6 * time.Second) // long enough for the controller to be informed
		}
		drained := false
		w := l.run(newRun(steady, nil), nil, func(p controller.Progress) {
			if p.Kind == liveMetrics && !drained {
				drained = true
				l.agents["a2"].drain()
			}
		})
		all := w.outcomes()
		if len(all) != 2 || w.end.Reason != wire.EndDone {
			t.Fatalf("got %d outcomes, end %+v, want 2", len(all), w.end)
		}
		for _, o := range all {
			for _, a := range o.Agents {
				if a.Lost || a.Phase != all[1].Agents[0].Phase {
					t.Errorf("agent %s: got lost %v, phase %s, want false, the last phase: %q", a.Agent, a.Lost,
						a.Phase, o.Reasons)
				}
			}
		}
		with := func(o plan.Outcome) bool {
			return slices.ContainsFunc(o.Agents, func(a plan.AgentPart) bool { return a.Agent == "a2" })
		}
		if !with(all[0]) || with(all[1]) {
			t.Errorf("a2 in the first and second task: got %v, %v, want true, false", with(all[0]),
				with(all[1]))
		}
		a := l.agents["a2"]
		select {
		case err := <-a.done:
			a.done <- err // for the end of the lab
			if err != nil {
				t.Errorf("Serve of the draining agent: got error %v, want nil", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the draining agent did not end")
		}
		l.awaitAgents(4)
	})
}
