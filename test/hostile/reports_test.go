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
	r := newRun("victim")
	r.Cells[0].Workload.Publishers.Rate = 50
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
	started := false
	f.readRun("victim", func(e wire.Entry) {
		if e.Event == nil || e.Event.Kind != wire.TaskStarted {
			return
		}
		started = true
		ref := wire.Ref{Run: "victim", Task: e.Event.Task, Attempt: e.Event.Attempt}
		nodes := map[string]int{}
		for i := range 600 {
			nodes[fmt.Sprint("n", i)] = i
		}
		for name, v := range map[string]wire.Arrival{
			"step":    {Step: wire.Step(strings.Repeat("x", 1000))},
			"host":    {Step: wire.StepOpen, Host: longName},
			"clock":   {Step: wire.StepOpen, Clock: longName},
			"version": {Step: wire.StepOpen, Version: longName},
			"phase":   {Step: wire.StepOpen, Phase: plan.Phase(longName)},
			"node":    {Step: wire.StepPublishers, Placement: &plan.Placement{Leaders: map[string]int{longName: 1}}},
			"nodes":   {Step: wire.StepPublishers, Placement: &plan.Placement{Consumers: nodes}},
		} {
			v.Ref, v.Agent = ref, "a1"
			rejection := requestError(t, nc, message("lockstep.agent.arrive.a1", jsonText(t, v)))
			if !strings.Contains(rejection, "read arrival") {
				t.Errorf("arrival with an invalid %s: got error %q, want \"read arrival\"", name, rejection)
			}
		}
	})
	if !started {
		t.Error("no task was started")
	}
	f.checkController("arrivals")
}

// TestOutcomesThatCannotBeStored proves that numbers that JSON cannot represent affect only the task of their agent.
func TestOutcomesThatCannotBeStored(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	nc := f.dial("agents/a1.nk")
	r := newRun("numbers")
	r.Cells[0].Workload.Publishers.Rate = 25
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
	sent := false
	end := f.readRun("numbers", func(e wire.Entry) {
		if o := e.Outcome; o != nil && (o.Verdict != plan.Unknown || !strings.Contains(jsonText(t, o.Reasons),
			"unsupported value")) {
			t.Errorf("outcome: got verdict %s, want unknown with \"unsupported value\": %v", o.Verdict, o.Reasons)
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
			rejection := "not stored"
			for start := time.Now(); strings.Contains(rejection, "not stored") && time.Since(start) < timeLimit; {
				// while a snapshot of the real agent is being stored
				rejection = requestError(t, nc, message("lockstep.agent.snapshot.a1", jsonText(t, snapshotReport{e.Ref,
					s})))
			}
			if rejection != "" {
				t.Errorf("send a snapshot with too large numbers: got error %q, want none", rejection)
			}
		}
	})
	if end.Reason != wire.EndDone || end.Ran != 1 {
		t.Errorf("end of the run: got %+v, want reason %s and 1 task", end, wire.EndDone)
	}
}
