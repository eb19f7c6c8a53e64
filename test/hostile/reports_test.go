package hostile

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
)

// TestArrivalsAreBounded proves that an agent cannot store unlimited data in an attempt.
func TestArrivalsAreBounded(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	nc := f.dial("agents/a1.nk")
	r := aRun("victim")
	r.Cells[0].Workload.Publishers.Rate = 50
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
	attempted := false
	f.follow("victim", func(e wire.Entry) {
		if e.Event == nil || e.Event.Kind != wire.TaskStarted {
			return
		}
		attempted = true
		ref := wire.Ref{Run: "victim", Task: e.Event.Task, Attempt: e.Event.Attempt}
		nodes := map[string]int{}
		for i := range 600 {
			nodes[fmt.Sprint("n", i)] = i
		}
		for what, v := range map[string]wire.Arrival{
			"step":    {Step: wire.Step(strings.Repeat("x", 1000))},
			"host":    {Step: wire.StepOpen, Host: tooLong},
			"clock":   {Step: wire.StepOpen, Clock: tooLong},
			"version": {Step: wire.StepOpen, Version: tooLong},
			"phase":   {Step: wire.StepOpen, Phase: plan.Phase(tooLong)},
			"node":    {Step: wire.StepPublishers, Placement: &plan.Placement{Leaders: map[string]int{tooLong: 1}}},
			"nodes":   {Step: wire.StepPublishers, Placement: &plan.Placement{Consumers: nodes}},
		} {
			v.Ref, v.Agent = ref, "a1"
			refusal := refusalOf(t, nc, message("lockstep.agent.arrive.a1", text(t, v)))
			if !strings.Contains(refusal, "read arrival") {
				t.Errorf("an arrival with an invalid %s: refused with %q", what, refusal)
			}
		}
	})
	if !attempted {
		t.Error("no attempt was made")
	}
	f.alive("arrivals")
}

// TestOutcomesThatCannotBeStored proves that numbers of an agent which no outcome can contain harm only its own task.
func TestOutcomesThatCannotBeStored(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	nc := f.dial("agents/a1.nk")
	r := aRun("numbers")
	r.Cells[0].Workload.Publishers.Rate = 25
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
	sent := false
	end := f.follow("numbers", func(e wire.Entry) {
		if o := e.Outcome; o != nil && (o.Verdict != plan.Unknown || !strings.Contains(text(t, o.Reasons), "unsupported value")) {
			t.Errorf("the outcome is %s: %v", o.Verdict, o.Reasons)
		}
		if e.Snapshot == nil || sent {
			return
		}
		sent = true
		for i := range uint64(4) {
			const large = math.MaxFloat64
			s := record.Snapshot{Task: e.Ref.Task, Agent: "a1", Seq: hostileSeq + i, At: int64(i), Clock: e.Snapshot.Clock,
				Host: record.HostSample{At: int64(i+1) * 1e9, AgentCPU: large, HostCPU: large, HostCores: 1, BrokerCPU: large,
					DiskRead: large, DiskWrite: large, NetIn: large, NetOut: large, HasBroker: true}}
			refusal := "not stored"
			for begun := time.Now(); strings.Contains(refusal, "not stored") && time.Since(begun) < within; {
				// while one of the real agent is being stored
				refusal = refusalOf(t, nc, message("lockstep.agent.snapshot.a1", text(t, report{e.Ref, s})))
			}
			if refusal != "" {
				t.Error(refusal)
			}
		}
	})
	if end.Reason != wire.EndDone || end.Ran != 1 {
		t.Errorf("the run ended with %+v", end)
	}
}
