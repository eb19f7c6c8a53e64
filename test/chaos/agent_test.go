package chaos

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/process"
)

// maxSilence is the maximum silence of an agent before the controller reports it as lost. It is checked in make
// test-long only.
const maxSilence = 5 * time.Second

// phases are the phases in which processes are killed.
var phases = []string{inPrepare, inReady, inWarmup, inMeasure, inDrain, inTeardown}

func agentFaults() (all []fault) {
	for _, phase := range phases {
		all = append(all, fault{name: "agent killed/" + phase, short: phase == inMeasure,
			do: func(r *row) { r.agentKilled(phase) }})
	}
	return append(all,
		fault{name: "agent killed/restarted at once", do: agentRestarted},
		fault{name: "agent stopped/3 s", do: agentPaused},
		fault{name: "agent stopped/30 s", do: agentStopped},
		fault{name: "agent clock stepped", short: true, do: clockStepped},
	)
}

// agentKilled kills one of two agents and starts it again when it is reported as lost. Its task is repeated.
func (r *row) agentKilled(phase string) {
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	target := r.oneOf("a1", "a2")
	b := f.awaitTaskPhase(r, 2, phase)
	r.describe("kill -9 of agent %s in %s", target, phase)
	at := f.agents[target].Kill()
	lost := f.awaitEvent(b.next, wire.AgentLost, stepLimit)
	f.restart(target)
	check := f.awaitEnd(0)
	check.checkAgentLost(r, at, target)
	r.line.resumed = check.timeToNextStart(at)
	if why := check.checkRepeated(lost.Task); !strings.Contains(why, target) { // the next task, if the kill was late
		r.t.Errorf("reason of the failed attempt: got %q, want agent %s lost (event %+v)", why, target, lost.RunEvent)
	}
}

// agentRestarted kills an agent and starts it again at once, before the controller notices.
func agentRestarted(r *row) {
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	target := r.oneOf("a1", "a2")
	b := f.awaitTaskPhase(r, 2, r.oneOf(inReady, inWarmup, inMeasure, inDrain))
	r.describe("kill -9 of agent %s, restarted at once", target)
	at := f.agents[target].Kill()
	f.restart(target)
	check := f.awaitEnd(0)
	check.checkAgentLost(r, at, target)
	r.line.resumed = check.timeToNextStart(at)
	check.checkRepeated(b.Task)
}

// agentPaused stops an agent for less than wire.LostAfter. On a slow machine it may be lost, but not earlier.
func agentPaused(r *row) {
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	target := r.oneOf("a1", "a2")
	phase := r.oneOf(phases...)
	b := f.awaitTaskPhase(r, 2, phase)
	r.describe("SIGSTOP of agent %s for 3 s in %s", target, phase)
	at := time.Now()
	f.agents[target].Signal(syscall.SIGSTOP)
	r.wait(3 * time.Second)
	f.agents[target].Signal(syscall.SIGCONT)
	check := f.awaitEnd(0, 3)
	r.line.resumed = check.timeToNextStart(at)
	if e, ok := check.firstEvent(wire.AgentLost, at); ok {
		if early := e.At.Sub(at); early < wire.LostAfter-wire.HeartbeatEvery-500*time.Millisecond {
			r.t.Errorf("agent %s was reported as lost after %v, want at least %v (minus one heartbeat interval)",
				target, early, wire.LostAfter)
		}
		check.checkRepeated(b.Task)
	}
}

// agentStopped stops an agent until it is lost and another one replaces it. Then it continues and returns to the fleet.
func agentStopped(r *row) {
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2", "a3"}})
	f.submit(f.matrix(8, "")) // longer than the agent is stopped
	phase := r.oneOf(phases...)
	b := f.awaitTaskPhase(r, 2, phase)
	target := b.Agents[r.random.IntN(len(b.Agents))]
	r.describe("SIGSTOP of agent %s for 30 s in %s", target, phase)
	at := time.Now()
	f.agents[target].Signal(syscall.SIGSTOP)
	r.wait(30 * time.Second)
	f.agents[target].Signal(syscall.SIGCONT)
	check := f.awaitEnd(0, 3)
	check.checkAgentLost(r, at, target)
	r.line.resumed = check.timeToNextStart(at)
	check.checkRepeated(b.Task)
	// Its run continues with the agents that it has.
	process.Eventually(r.t, "3 listed agents after SIGCONT", func() bool { return f.listedAgents() == 3 })
}

// clockStepped steps an agent's clock during a task. The outcome of that task has an event for it.
func clockStepped(r *row) {
	after := r.between(60*time.Second, 65*time.Second).Round(time.Millisecond)
	target := r.oneOf("a1", "a2")
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2"},
		env: map[string][]string{target: {"LOCKSTEP_CLOCK=step=100ms@" + after.String()}}})
	f.agents[target].Kill() // the step is counted from the agent's start, which must be just before the run
	process.Eventually(r.t, "1 listed agent after the kill", func() bool { return f.listedAgents() == 1 })
	spec := strings.NewReplacer(`["confirm-window", "confirm-each"]`, `["confirm-window"]`,
		fmt.Sprintf("measure: %q", measure), `measure: "69s"`, "rate: 300", "rate: 100")
	f.restart(target)
	f.submit(spec.Replace(f.matrix(1, "")))
	stepped := f.agents[target].Begun.Add(after)
	r.describe("clock of agent %s stepped by 100 ms, %v after its start", target, after)
	check := f.awaitEnd(0, 3)
	found := false
	for id, o := range check.outcomes {
		reported := slices.ContainsFunc(o.Events, func(e plan.Event) bool {
			return e.Kind == "clock-step" &&
				e.Agent == target
		})
		if reported {
			r.line.summary = append(r.line.summary, "clock-step of agent "+target)
		}
		inTask := stepped.After(o.Started.Add(2*time.Second)) && stepped.Before(o.Ended.Add(-2*time.Second))
		found = found || inTask
		if inTask && !reported {
			r.t.Errorf("task %s, from %v to %v: no event clock-step of the step at %v", id, o.Started,
				o.Ended, stepped)
		}
	}
	if !found {
		r.t.Errorf("no task was running when the clock was stepped at %v: %+v", stepped, check.outcomes)
	}
}

// checkAgentLost records the time from a fault until the event that an agent was lost.
func (c *recordCheck) checkAgentLost(r *row, at time.Time, agent string) {
	c.t.Helper()
	e, ok := c.firstEvent(wire.AgentLost, at)
	if !ok || !strings.Contains(e.Detail, "agent "+agent) {
		c.t.Errorf("the record has no event that agent %s was lost", agent)
		return
	}
	r.line.detected = e.At.Sub(at)
	if e.Silence <= 0 || long() && e.Silence.D() > maxSilence {
		c.t.Errorf("agent %s was reported as lost after %v without a message, want more than 0 and at most %v", agent,
			e.Silence, maxSilence)
	}
}

func (r *row) oneOf(names ...string) string { return names[r.random.IntN(len(names))] }
